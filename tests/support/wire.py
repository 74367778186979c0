"""The bus as a test sees it: say facts in anybody's name, and hear all that is said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg

from libs.bus.steady import connected
from libs.bus.streams import declare
from libs.pg.outbox import ASKS
from schemas.base import Envelope, Event
from schemas.catalog import STREAMS
from schemas.codec import decode, encode, subject_of
from tests.support.eventually import eventually
from tests.support.servers import Servers

E = TypeVar("E", bound=Event)
RECEIPT_SECONDS = 60  # thousands of facts at once, on a busy machine


@dataclass
class Wire:
    """A connection with every right. ``heard`` are the facts on the streams' subjects since it was opened."""

    connection: Client
    heard: list[Envelope] = field(default_factory=list)

    async def say(self, *envelopes: Envelope, again: str = "") -> None:
        """Publish facts to their streams; ``again`` makes the message ids new and asks for answers, as a sweep does."""
        jetstream, asks = self.connection.jetstream(), {ASKS: ""} if again else {}
        sends = (
            jetstream.publish(
                subject_of(each),
                encode(each),
                timeout=RECEIPT_SECONDS,
                headers={"Nats-Msg-Id": f"{each.id}{again}", **asks},
            )
            for each in envelopes
        )
        await asyncio.gather(*sends)

    def facts(self, kind: type[E]) -> list[E]:
        """Return what was heard of one kind, once per id, in order."""
        unique = {envelope.id: envelope.data for envelope in self.heard}
        return [fact for fact in unique.values() if isinstance(fact, kind)]

    async def wait(self, kind: type[E], count: int = 1, seconds: float = 60) -> list[E]:
        """Return the first ``count`` facts of a kind as soon as they were heard."""
        await eventually(lambda: len(self.facts(kind)) >= count, seconds)
        return self.facts(kind)[:count]

    async def _take(self, message: Msg) -> None:
        self.heard.append(decode(message.data))


@asynccontextmanager
async def wire(servers: Servers) -> AsyncIterator[Wire]:
    """Open a wire on declared streams."""
    connection = await connected(**servers.operator_nats)
    line = Wire(connection)
    try:
        await declare(connection.jetstream(), STREAMS, ())
        for stream in STREAMS:
            if stream.name != "DEAD":
                await connection.subscribe(stream.subjects[0], cb=line._take)
        yield line
    finally:
        await connection.close()
