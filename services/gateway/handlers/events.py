"""The stream of facts to many readers: one query feeds all, buffers are bounded, slow readers are cut."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from libs.pg.pool import Pool, translated
from services.gateway.store import fleet
from services.gateway.store.fleet import EventRow

_PIECE: Final = 500
_BEAT: Final = b": beat\n\n"
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a reader may and wants to see; None: all."""

    tenant: str | None = None
    job: str | None = None
    prefix: str = ""

    def takes(self, event: EventRow) -> bool:
        """The event is one of them."""
        return (
            (self.tenant is None or event.tenant == self.tenant)
            and (self.job is None or event.job == self.job)
            and event.type.startswith(self.prefix)
        )


@dataclass(eq=False)
class Reader:
    """One open stream: what waits for it."""

    wanted: Wanted
    since: int
    waiting: deque[EventRow] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    is_cut: bool = False

    def offer(self, event: EventRow, limit: int) -> None:
        """Let an event wait; a reader that lags too far behind is cut and comes back with its last id."""
        if len(self.waiting) >= limit:
            self.cut()
        elif self.wanted.takes(event):
            self.waiting.append(event)
            self.arrived.set()

    def cut(self) -> None:
        """End the stream."""
        self.is_cut = True
        self.waiting.clear()
        self.arrived.set()


class Hub:
    """Reads the log of events once and hands every new one to all readers."""

    def __init__(self, *, buffer: int, streams: int) -> None:
        self._buffer = buffer
        self._streams = streams
        self._readers: set[Reader] = set()
        self._position: int | None = None

    async def feed(self, pool: Pool) -> None:
        """Hand on what is new in the log."""
        with translated():
            if self._position is None:
                self._position = await fleet.last_position(pool)
            while rows := await fleet.events(pool, self._position, _PIECE):
                self._hand_on(rows)
                self._position = rows[-1].position

    def _hand_on(self, rows: list[EventRow]) -> None:
        for reader in self._readers:
            for row in rows:
                reader.offer(row, self._buffer)

    def open(self, wanted: Wanted) -> Reader | None:
        """Return a new reader that is handed everything from now on; None: there are too many."""
        if len(self._readers) >= self._streams:
            return None
        reader = Reader(wanted, self._position or 0)
        self._readers.add(reader)
        return reader

    @property
    def readers(self) -> int:
        """How many there are."""
        return len(self._readers)

    def close(self, reader: Reader) -> None:
        """Forget a reader."""
        self._readers.discard(reader)

    def end(self) -> None:
        """Cut all readers: the gateway stops."""
        for reader in self._readers:
            reader.cut()


class EventStream(Response):
    """Server-sent events: what is in the log behind ``after`` (None: nothing), then everything new."""

    media_type = "text/event-stream"

    def __init__(self, pool: Pool, hub: Hub, reader: Reader, after: int | None, *, beat: float, stuck: float) -> None:
        super().__init__()
        self._pool, self._hub, self._reader, self._after = pool, hub, reader, after
        self._beat, self._stuck = beat, stuck

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client leaves, is cut, or the gateway stops."""
        writing = asyncio.ensure_future(self._write(send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._hub.close(self._reader)
            writing.cancel()
            leaving.cancel()
            await asyncio.gather(writing, leaving, return_exceptions=True)

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            async for piece in self._pieces():
                async with asyncio.timeout(self._stuck):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            async with asyncio.timeout(self._stuck):
                await send({"type": "http.response.body", "body": b""})
        except TimeoutError:
            return  # it takes nothing: the connection is closed, and whoever comes back says its last id

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield _BEAT
        async for piece in self._missed():
            yield piece
        while not self._reader.is_cut:
            try:
                async with asyncio.timeout(self._beat):
                    await self._reader.arrived.wait()
            except TimeoutError:
                yield _BEAT
                continue
            self._reader.arrived.clear()
            if self._reader.waiting:
                piece = b"".join(map(_encoded, self._reader.waiting))
                self._reader.waiting.clear()
                yield piece

    async def _missed(self) -> AsyncIterator[bytes]:
        if self._after is None:
            return
        first = await fleet.first_position(self._pool)
        if first > self._after + 1 > 1 or self._after > self._reader.since:
            # what lay between is not kept any more, or what the client knows is of a log that was lost
            yield f'event: gap\ndata: {{"first":{first}}}\n\n'.encode()
        wanted, after = self._reader.wanted, self._after
        while after < self._reader.since:
            rows = await fleet.events(
                self._pool, after, _PIECE, tenant=wanted.tenant, job=wanted.job, prefix=wanted.prefix
            )
            yield b"".join(_encoded(row) for row in rows if row.position <= self._reader.since)
            after = rows[-1].position if len(rows) == _PIECE else self._reader.since


def _encoded(event: EventRow) -> bytes:
    return f"id: {event.position}\nevent: {event.type}\ndata: {event.body}\n\n".encode()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
