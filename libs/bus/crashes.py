"""Hears when a durable gave a message up although no handler ever said a word: its process died of it each time."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from libs.bus.dead import Kind, letter
from libs.bus.ports import Store
from libs.log import get_logger
from libs.telemetry.telemetry import Telemetry

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A message that a durable will not deliver again. Its bytes stay on the stream, under ``origin``."""

    origin: str
    attempt: int
    subject: str = "unknown"
    body: bytes = b""

    @property
    def headers(self) -> Mapping[str, str]:
        """Nothing is known of them."""
        return {}

    async def ack(self) -> None:
        """The server has given it up already."""

    async def again(self, seconds: float) -> None:
        """The server has given it up already."""

    async def working(self) -> None:
        """The server has given it up already."""


async def bury(service: str, durable: str, store: Store, telemetry: Telemetry, advisory: bytes) -> None:
    """Say the dead letter of a message that crashed every handler. Raises TransientError."""
    told = orjson.loads(advisory)
    given_up = GivenUp(f"{told['stream']}/{told['stream_seq']}/{told['timestamp']}", told["deliveries"])
    log.error("dead letter", durable=durable, origin=given_up.origin, kind=Kind.CRASHED)
    async with store.turn() as turn:
        turn.put(letter(service, durable, given_up, Kind.CRASHED, "every delivery ended without a word"))
        turn.after_commit(telemetry.meters.dead_letters.labels(durable, Kind.CRASHED).inc)
