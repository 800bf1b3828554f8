"""The use cases of an API process, wired once and passed to the routes as a value."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from activity_core.services import egress
from activity_core.services.accept import Acceptor
from activity_core.services.activities import Activities
from activity_core.services.apply import Apply
from activity_core.services.backfilling import Backfilling
from activity_core.services.causes import Causes
from activity_core.services.consumers import Consumers
from activity_core.services.definitions import Definitions
from activity_core.services.egress import Fetch
from activity_core.services.event_types import EventSchemas, EventTypes
from activity_core.services.freezes import Freezes
from activity_core.services.pausing import Pausing
from activity_core.services.reads import Reads
from activity_core.services.receipts import Receipts
from activity_core.services.receiving import Receiving
from activity_core.services.replaying import Replaying
from activity_core.services.reserved import ReservedIds
from activity_core.services.secrets import Secrets
from activity_core.services.simulating import Simulating
from activity_core.services.sns import SnsCertificates
from activity_core.services.sources import Sources
from activity_core.services.tasks import Tasks
from activity_core.services.triggering import Triggering
from activity_core.services.trying import Trying
from activity_core.services.why import Why
from activity_core.settings import Settings
from activity_core.store.database import Database
from activity_core.temporal.client import Temporal


@dataclass(frozen=True, slots=True)
class Services:
    """`temporal` is only asked whether it is there; the API does its work without it."""

    database: Database
    event_types: EventTypes
    temporal: Temporal | None
    acceptor: Acceptor
    causes: Causes
    receipts: Receipts
    receiving: Receiving
    reserved: ReservedIds
    activities: Activities
    consumers: Consumers
    sources: Sources
    apply: Apply
    triggering: Triggering
    trying: Trying
    pausing: Pausing
    freezes: Freezes
    backfilling: Backfilling
    simulating: Simulating
    reads: Reads
    replaying: Replaying
    tasks: Tasks
    why: Why

    async def run(self) -> None:
        """Commit what requests bring, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.acceptor.run())
            group.create_task(self.receipts.run())


def build(settings: Settings, database: Database, temporal: Temporal | None, fetch: Fetch = egress.fetch) -> Services:
    """`fetch` is the way to the public internet, for what senders have us call."""
    definitions = Definitions()
    secrets = Secrets.of(settings)
    schemas = EventSchemas(database)
    acceptor = Acceptor(database, schemas, max_data_bytes=settings.max_event_data_bytes)
    sources, receipts = Sources(database, secrets), Receipts(database)
    certificates, causes = SnsCertificates(fetch), Causes(database)
    return Services(
        database=database,
        event_types=EventTypes(database, schemas),
        temporal=temporal,
        acceptor=acceptor,
        causes=causes,
        receipts=receipts,
        receiving=Receiving(
            database, sources, acceptor, receipts, certificates, causes=causes, max_bytes=settings.max_request_bytes
        ),
        reserved=ReservedIds(database),
        activities=Activities(database, definitions),
        consumers=Consumers(database),
        sources=sources,
        apply=Apply(database, definitions, secrets),
        triggering=Triggering(database, definitions),
        trying=Trying(database),
        pausing=Pausing(database, definitions),
        freezes=Freezes(database),
        backfilling=Backfilling(database, definitions),
        simulating=Simulating(),
        reads=Reads(database),
        replaying=Replaying(database, definitions),
        tasks=Tasks(database),
        why=Why(database),
    )


async def services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


Use = Annotated[Services, Depends(services_of)]
