"""NATS permissions from the catalogue: a service says its own nouns, reads its own durables, and nothing of others."""

from schemas.catalog import CALLS, FACTS, SERVICES, STREAMS, durables

Permissions = dict[str, dict[str, list[str]]]


def permissions(service: str) -> Permissions:
    """Return what one service's NATS user may publish and subscribe to, in the server's configuration shape."""
    publish = [fact.pattern for fact in FACTS if fact.owner == service]
    publish += [call.subject for call in CALLS if service in call.asked_by]
    publish += [f"dead.{service}.>", "$JS.API.INFO"]
    publish += _streams(service) + _durables(service)
    subscribe = [f"_INBOX.{service}.>"]
    subscribe += [call.subject for call in CALLS if call.answered_by == service]
    subscribe += [
        f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{durable.stream}.{durable.name}" for durable in durables(service)
    ]
    return {"publish": {"allow": publish}, "subscribe": {"allow": subscribe}}


def all_permissions() -> dict[str, Permissions]:
    """Return the permissions of every service."""
    return {service: permissions(service) for service in SERVICES}


def _streams(service: str) -> list[str]:
    """A service declares, and after a loss declares again, the streams it says something on or hears something from."""
    used = (
        {fact.stream for fact in FACTS if fact.owner == service} | {row.stream for row in durables(service)} | {"DEAD"}
    )
    names = [stream.name for stream in STREAMS if stream.name in used]
    return [f"$JS.API.STREAM.{verb}.{name}" for name in names for verb in ("INFO", "CREATE", "UPDATE")]


def _durables(service: str) -> list[str]:
    allowed = []
    for row in durables(service):
        place = f"{row.stream}.{row.name}"
        allowed += [
            f"$JS.API.CONSUMER.INFO.{place}",
            f"$JS.API.CONSUMER.CREATE.{place}",
            f"$JS.API.CONSUMER.CREATE.{place}.>",
            f"$JS.API.CONSUMER.DURABLE.CREATE.{place}",
            f"$JS.API.CONSUMER.MSG.NEXT.{place}",
            f"$JS.ACK.{place}.>",
        ]
    return allowed
