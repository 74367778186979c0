"""Takes batches from a durable with one request each, and without a task for each message."""

import asyncio
from contextlib import suppress
from typing import Final

import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from libs.errors import UnavailableError
from schemas.catalog import Durable

MARGIN_SECONDS: Final = 1.0  # how long an end of the request, which the server owes, may be late
_ENDS: Final = ("404", "408")  # nothing is left; the time is over


class Fetcher:
    """Asks for up to a batch and returns at once what is there; on an idle stream it waits for the first message.

    What nobody asked for (the server was late) is kept and belongs to the next batch.
    """

    def __init__(self, client: Client, durable: Durable) -> None:
        self.over = asyncio.Event()  # set by others, too: the server will not answer any more
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}"
        self._inbox = client.new_inbox()
        self._number = 0
        self._wanted = 0
        self._taken: list[Msg] = []
        self._refusal: str | None = None
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Begin to listen."""
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            with suppress(nats.errors.Error):
                await self._subscription.unsubscribe()

    async def fetch(self, size: int, seconds: float) -> list[Msg]:
        """Return up to so many messages, none after so many seconds. Raises UnavailableError when refused."""
        if not self._taken:
            await self._ask(size, seconds)
        batch, self._taken = self._taken[:size], self._taken[size:]
        if self._refusal is not None and not batch:
            raise UnavailableError(self._refusal)
        return batch

    async def _ask(self, size: int, seconds: float) -> None:
        self._number += 1
        self._wanted, self._refusal = size, None
        self.over.clear()
        # no_wait beside expires: wait for the first message only
        question = {"batch": size, "expires": int(seconds * 1e9), "no_wait": True}
        await self._client.publish(self._next, orjson.dumps(question), reply=self._reply)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds + MARGIN_SECONDS):
                await self.over.wait()

    @property
    def _reply(self) -> str:
        return f"{self._inbox}.{self._number}"

    async def _take(self, message: Msg) -> None:
        if message.reply:
            self._taken.append(message)
            if len(self._taken) >= self._wanted:
                self.over.set()
        elif message.subject == self._reply:
            self._end(message.headers or {})

    def _end(self, said: dict[str, str]) -> None:
        status = said.get("Status", "")
        if status not in _ENDS:
            self._refusal = f"{status} {said.get('Description', '')}".strip()
        self.over.set()
