"""Where messages go: every name on the bus is made here or by the codec."""

from typing import Final
from uuid import UUID

from libs.pg.outbox import Message
from schemas import codec
from schemas.base import Envelope
from schemas.catalog import FACTS

DEAD_STREAM: Final = "DEAD"
TRACEPARENT: Final = "traceparent"  # every fact has it inside; as a header it costs as much as a tenth of a turn
_STREAMS: Final = {fact.type: fact.stream for fact in FACTS}


def message(envelope: Envelope, *, traced: bool = False) -> Message:
    """Return the message that says a fact; traced, with its traceparent as a header. Raises codec.CodecError."""
    return Message(
        id=envelope.id,
        cause=envelope.cause,
        subject=codec.subject_of(envelope),
        stream=_STREAMS[envelope.type],
        body=codec.encode(envelope),
        headers={TRACEPARENT: envelope.traceparent} if traced and envelope.traceparent else {},
    )


def message_id(fact: UUID, said: int) -> str:
    """Return the Nats-Msg-Id of a fact that is said for the said-th time (from 1): the stream drops doubles of it."""
    return f"{fact}.{said}"


def dead(service: str, durable: str) -> str:
    """Return the subject of what a durable could not handle."""
    return f"dead.{service}.{durable}"
