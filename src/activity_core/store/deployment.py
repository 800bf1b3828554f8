"""The one row that says which Temporal namespace this database serves (R7)."""

import uuid
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ProgrammingError

from activity_core.errors import ConfigurationError
from activity_core.store.database import Database
from activity_core.store.tables import deployment


@dataclass(frozen=True, slots=True)
class Deployment:
    database_id: uuid.UUID
    temporal_namespace: str


async def bind(database: Database, namespace: str) -> Deployment:
    """The deployment of this database, bound to the namespace at the first call.

    Raises ConfigurationError when the database serves another namespace, or has no schema yet.
    """
    try:
        async with database.begin() as connection:
            await connection.execute(
                insert(deployment).values(id=1, temporal_namespace=namespace).on_conflict_do_nothing()
            )
            row = (await connection.execute(select(deployment.c.database_id, deployment.c.temporal_namespace))).one()
    except ProgrammingError as error:
        raise ConfigurationError("the database has no schema yet: run 'activity-core migrate' first") from error
    if row.temporal_namespace != namespace:
        raise ConfigurationError(
            f"this database serves the Temporal namespace '{row.temporal_namespace}', not '{namespace}': "
            "uniqueness holds per namespace, so set ACTIVITY_CORE_TEMPORAL_NAMESPACE or use another database"
        )
    return Deployment(*row)
