"""FastStream's batch-pull subscriber with our own fetch, which hands over at once whatever came."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import nats.errors
from faststream import AckPolicy
from faststream.nats import JStream, NatsBroker, PullSub
from faststream.nats.subscriber.usecases import BatchPullStreamSubscriber
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig

from libs.bus.batch import caught
from libs.bus.fetcher import Fetcher
from libs.bus.ports import BATCH
from libs.errors import UnavailableError
from libs.log import get_logger
from schemas.catalog import Durable

FETCH_SECONDS: Final = 5.0
_SHORT_TOKENS, _DELIVERED_SHORT, _DELIVERED = 9, 4, 6  # where $JS.ACK.… has the number, without and with a domain
log = get_logger(__name__)


@dataclass(slots=True)
class Keeper:
    """What the fetch loops share with their bus: how to declare again what is gone, and when to ask anew."""

    declare_again: Callable[[], Awaitable[None]]
    died: Callable[[Exception], None]
    client: Client | None = None
    ask_anew: set[asyncio.Event] = field(default_factory=set)

    def reconnected(self) -> None:
        """Let every loop ask again: the server has forgotten what it was asked before."""
        for event in self.ask_anew:
            event.set()


class PromptSubscriber(BatchPullStreamSubscriber):
    """Fetches up to a batch and hands it over without waiting for more (the stock loop waits its timeout out)."""

    __slots__ = ()

    keeper: Keeper
    durable: Durable
    fetcher: Fetcher

    async def _create_subscription(self) -> None:
        """Listen for the messages of the durable, which we declare ourselves."""
        assert self.keeper.client is not None, "the bus is not connected"
        self.fetcher = Fetcher(self.keeper.client, self.durable)
        await self.fetcher.open()
        self.add_task(self._consume_pull, restart_on_failure=False)

    async def stop(self) -> None:
        """Take nothing new, and end when what was taken is settled."""
        await super().stop()
        await self.fetcher.close()

    async def _consume_pull(self) -> None:
        error = await caught(self._pull())
        if error is not None:
            self.keeper.died(error)

    async def _pull(self) -> None:
        self.keeper.ask_anew.add(self.fetcher.over)
        while self.running:
            messages = await self._fetched()
            if messages and self.running:
                await self.consume(messages)

    async def _fetched(self) -> list[Msg]:
        try:
            return await self.fetcher.fetch(BATCH, FETCH_SECONDS)
        except (nats.errors.Error, UnavailableError) as error:
            log.warning("cannot fetch", durable=self.durable.name, why=repr(error))
            await self.keeper.declare_again()
            return []


def subscribe(
    broker: NatsBroker, durable: Durable, keeper: Keeper, handle: Callable[[Sequence[Msg]], Awaitable[None]]
) -> None:
    """Let a broker hand the batches of a durable to ``handle``: raw, so that our codec decodes each message alone."""
    subscriber = broker.subscriber(
        config=ConsumerConfig(durable_name=durable.name, filter_subjects=list(durable.filter_subjects)),
        stream=JStream(durable.stream, declare=False),
        pull_sub=PullSub(batch=True, batch_size=BATCH, timeout=FETCH_SECONDS),
        durable=durable.name,
        decoder=_raw,
        ack_policy=AckPolicy.MANUAL,
        title=durable.name,
    )
    subscriber.__class__ = PromptSubscriber  # FastStream has no other way to name the class of a subscriber
    assert isinstance(subscriber, PromptSubscriber), subscriber
    subscriber.keeper, subscriber.durable = keeper, durable

    async def handler(batch: list[Any]) -> None:
        await handle(batch)

    subscriber(handler)


async def _raw(message: Any) -> Any:
    return message.raw_message


class NatsDelivery:
    """One message of a durable on JetStream."""

    __slots__ = ("_message",)

    def __init__(self, message: Msg) -> None:
        self._message = message

    @property
    def subject(self) -> str:
        """Where it was said."""
        return self._message.subject

    @property
    def body(self) -> bytes:
        """What was said."""
        return self._message.data

    @property
    def headers(self) -> Mapping[str, str]:
        """What was said beside it."""
        return self._message.headers or {}

    @property
    def attempt(self) -> int:
        """Which delivery this is, from 1."""
        tokens = self._message.reply.split(".")  # the client's own reading of all of it takes ten times as long
        return int(tokens[_DELIVERED_SHORT if len(tokens) == _SHORT_TOKENS else _DELIVERED])

    @property
    def origin(self) -> str:
        """Stream, sequence and time of the stored message."""
        metadata = self._message.metadata
        return f"{metadata.stream}/{metadata.sequence.stream}/{metadata.timestamp.isoformat()}"

    async def ack(self) -> None:
        """Say that it took effect. A lost ack costs one more delivery, which the inbox knows."""
        await self._say(self._message.ack())

    async def again(self, seconds: float) -> None:
        """Ask for it again after so many seconds."""
        await self._say(self._message.nak(delay=seconds))

    async def working(self) -> None:
        """Start its time anew."""
        await self._say(self._message.in_progress())

    async def _say(self, word: Awaitable[None]) -> None:
        with suppress(nats.errors.Error):
            await word
