"""Dead letters: what a durable could not handle, kept whole on the DEAD stream with the reason."""

from collections.abc import Mapping
from enum import StrEnum

from libs.bus.ports import Delivery
from libs.bus.subjects import DEAD_STREAM, dead
from libs.pg.outbox import Message
from schemas.codec import MAX_BYTES
from schemas.ids import named

REASON = "Triplane-Reason"
KIND = "Triplane-Kind"
SUBJECT = "Triplane-Subject"
DURABLE = "Triplane-Durable"
ATTEMPT = "Triplane-Attempt"
ORIGIN = "Triplane-Origin"
_REASON_CHARACTERS = 1_000


class Kind(StrEnum):
    """Why a message is dead."""

    UNDECODABLE = "undecodable"  # no fact of the catalogue
    POISON = "poison"  # the handler says that it can never be handled
    EXHAUSTED = "exhausted"  # the last delivery failed as those before it
    DEFECT = "defect"  # the handler broke on it, to the last delivery
    CRASHED = "crashed"  # every delivery ended without a word: the process died of it


def letter(service: str, durable: str, delivery: Delivery, kind: Kind, reason: str) -> Message:
    """Return the dead letter of a delivery, the same for the same stored message. Bodies are cut at 512 KiB."""
    return Message(
        id=named(f"dead/{durable}/{delivery.origin}"),
        subject=dead(service, durable),
        stream=DEAD_STREAM,
        body=delivery.body[:MAX_BYTES],
        headers=_headers(durable, delivery, kind, reason),
    )


def _headers(durable: str, delivery: Delivery, kind: Kind, reason: str) -> Mapping[str, str]:
    return {
        KIND: kind,
        REASON: _one_line(reason),
        SUBJECT: delivery.subject,
        DURABLE: durable,
        ATTEMPT: str(delivery.attempt),
        ORIGIN: delivery.origin,
    }


def _one_line(text: str) -> str:
    """Return what may stand in a header: printable ASCII in one line, bounded."""
    return " ".join(text.encode("ascii", "replace").decode().split())[:_REASON_CHARACTERS] or "no reason given"
