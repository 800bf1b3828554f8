"""What is known of well-known senders: how they sign, and where the id and the type of their events are.

A preset is a value to start from: `replace(PRESETS["shopify"], ids=(from_header("X-Shopify-Webhook-Id"),))`.
"""

from dataclasses import dataclass
from typing import Literal

from activity_core.domain.webhooks.identity import IdFrom, TypeFrom, from_header, from_pointer, from_template
from activity_core.domain.webhooks.schemes import Basic, Bearer, Hmac, SharedSecret, Stripe, Unsigned
from activity_core.domain.webhooks.sns import Sns

PresetName = Literal[
    "standard_webhooks",
    "github",
    "stripe",
    "slack",
    "shopify",
    "pagerduty",
    "sns",
    "hmac",
    "bearer",
    "basic",
    "none",
]


@dataclass(frozen=True, slots=True)
class Source:
    """How the requests of one source are judged. `ids` and `types` are tried in order. `document_field`: see
    `bodies.read_body`."""

    scheme: SharedSecret | Sns
    ids: tuple[IdFrom, ...] = ()
    types: tuple[TypeFrom, ...] = ()
    handshake: Literal["slack", "sns"] | None = None
    document_field: str | None = None


def standard_webhooks(header_prefix: str = "webhook-") -> Source:
    """Some senders use the same scheme with headers of their own: `svix-`."""
    return Source(
        Hmac(
            header=f"{header_prefix}signature",
            encoding="base64",
            prefix="v1,",
            separator=" ",
            signed="{id}.{timestamp}.{body}",
            timestamp_header=f"{header_prefix}timestamp",
            id_header=f"{header_prefix}id",
            key="whsec",
        ),
        ids=(from_header(f"{header_prefix}id"),),
        types=(from_pointer("/type"), *_ANY_TYPE),
    )


_ANY_ID = (from_header("X-Event-Id"),)
_ANY_TYPE = (from_header("X-Event-Type"), from_template("webhook.received"))

PRESETS: dict[PresetName, Source] = {
    "standard_webhooks": standard_webhooks(),
    # The id is neither signed nor one per hook: every hook that is subscribed to an event gets the same one.
    "github": Source(
        Hmac(header="X-Hub-Signature-256", prefix="sha256="),
        ids=(from_header("X-GitHub-Delivery"),),
        types=(
            from_template("github.{header:X-GitHub-Event}.{/action}"),
            from_template("github.{header:X-GitHub-Event}"),
        ),
        document_field="payload",
    ),
    "stripe": Source(Stripe(), ids=(from_pointer("/id"),), types=(from_template("stripe.{/type}"),)),
    # Slash commands and interactions have a trigger_id in place of an event_id.
    "slack": Source(
        Hmac(
            header="X-Slack-Signature",
            prefix="v0=",
            signed="v0:{timestamp}:{body}",
            timestamp_header="X-Slack-Request-Timestamp",
        ),
        ids=(from_pointer("/event_id"), from_pointer("/trigger_id")),
        types=(
            from_template("slack.{/event/type}"),
            from_template("slack.command.{/command|dots}"),
            from_template("slack.{/type}"),
        ),
        handshake="slack",
        document_field="payload",
    ),
    # Shopify's pages disagree about which header is the same for all deliveries of one event; the other one is
    # X-Shopify-Webhook-Id.
    "shopify": Source(
        Hmac(header="X-Shopify-Hmac-Sha256", encoding="base64"),
        ids=(from_header("X-Shopify-Event-Id"),),
        types=(from_template("shopify.{header:X-Shopify-Topic|dots}"),),
    ),
    # /event/data/id is the incident, which has many events.
    "pagerduty": Source(
        Hmac(header="X-PagerDuty-Signature", prefix="v1=", separator=","),
        ids=(from_pointer("/event/id"),),
        types=(from_template("pagerduty.{/event/event_type}"),),
    ),
    # The topics are to be named: without, everything is refused.
    "sns": Source(
        Sns(),
        ids=(from_pointer("/MessageId"),),
        types=(from_template("sns.{/TopicArn|tail}"),),
        handshake="sns",
    ),
    "hmac": Source(Hmac(header="X-Signature"), ids=_ANY_ID, types=_ANY_TYPE),
    "bearer": Source(Bearer(), ids=_ANY_ID, types=_ANY_TYPE),
    "basic": Source(Basic(), ids=_ANY_ID, types=_ANY_TYPE),
    "none": Source(Unsigned(), ids=_ANY_ID, types=_ANY_TYPE),
}
