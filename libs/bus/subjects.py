"""Where messages go: every name on the bus is made here or by the codec."""

from typing import Final
from uuid import UUID

from libs.pg.outbox import Message
from schemas import codec
from schemas.base import Envelope
from schemas.catalog import FACTS

DEAD_STREAM: Final = "DEAD"
TRACEPARENT: Final = "traceparent"  # beside the fact too, for who does not open it
_STREAMS: Final = {fact.type: fact.stream for fact in FACTS}


def message(envelope: Envelope) -> Message:
    """Return the message that says a fact. Raises schemas.codec.CodecError."""
    return Message(
        id=envelope.id,
        cause=envelope.cause,
        subject=codec.subject_of(envelope),
        stream=_STREAMS[envelope.type],
        body=codec.encode(envelope),
        headers={TRACEPARENT: envelope.traceparent} if envelope.traceparent else {},
    )


def message_id(fact: UUID, said: int) -> str:
    """Return the Nats-Msg-Id of a fact that is said for the said-th time (from 1): the stream drops doubles of it."""
    return f"{fact}.{said}"


def dead(service: str, durable: str) -> str:
    """Return the subject of what a durable could not handle."""
    return f"dead.{service}.{durable}"
