"""Lines between services and servers that a test can cut, hold, slow down or let lose what they carry."""

import asyncio
import contextlib
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

PIECE_BYTES = 1 << 16
SLOW_SECONDS = 0.3  # by which every piece is late


class Weather(StrEnum):
    """What a line does to what it carries."""

    CLEAR = "clear"
    CUT = "cut"  # connections are reset, and new ones at once
    HOLD = "hold"  # nothing arrives until it clears; new connections are taken
    SLOW = "slow"  # each piece is late
    SWALLOW = "swallow"  # connections are taken, and what is said on them is lost
    DEAF = "deaf"  # questions arrive, answers are lost


@dataclass(eq=False)
class Link:
    """One line from one client to one server. It belongs to the loop of its ``Links``."""

    target: int
    port: int = 0
    weather: Weather = Weather.CLEAR
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: dict[asyncio.StreamWriter, bool] = field(default_factory=dict)  # and whether something said was lost

    async def listen(self) -> asyncio.Server:
        """Begin to carry."""
        self._open.set()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def becomes(self, weather: Weather) -> None:
        """Change. A connection that has lost something is reset when the line clears: nobody could go on with it."""
        self.weather = weather
        for writer, has_lost in list(self._writers.items()):
            if weather is Weather.CUT or (weather is Weather.CLEAR and has_lost):
                writer.transport.abort()
        if weather is Weather.HOLD:
            self._open.clear()
        else:
            self._open.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers[writer] = False
        try:
            if self.weather is not Weather.CUT:
                await self._between(reader, writer)
        except OSError:
            pass  # one of the two has gone, or the line was cut
        finally:
            writer.transport.abort()
            del self._writers[writer]

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, server = await asyncio.open_connection("127.0.0.1", self.target)
        ways = [
            asyncio.ensure_future(self._pump(reader, server, writer, answers=False)),
            asyncio.ensure_future(self._pump(answers, writer, writer, answers=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            server.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, client: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while piece := await source.read(PIECE_BYTES):
            if self.weather is Weather.SLOW:
                await _late(SLOW_SECONDS)
            await self._open.wait()
            if self.weather is Weather.SWALLOW or (self.weather is Weather.DEAF and answers):
                self._writers[client] = True
            elif not self._writers[client] or self.weather is Weather.DEAF:
                sink.write(piece)
                await sink.drain()


@dataclass
class Links:
    """All lines of a stack, carried by a thread of their own. ``ports``: where a client finds a server."""

    _lines: dict[tuple[str, str], Link] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _servers: list[asyncio.Server] = field(default_factory=list)

    def lay(self, clients: Iterable[str], servers: dict[str, int]) -> dict[str, dict[str, int]]:
        """Lay a line from each client to each server's port; return where each client finds each server."""
        wanted = [(client, server) for client in clients for server in servers]
        self._lines.update({pair: Link(servers[pair[1]]) for pair in wanted})
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return {client: {server: self._lines[client, server].port for server in servers} for client, _ in wanted}

    def become(self, weather: Weather, client: str, server: str) -> None:
        """Change one line, or (client "all") all lines to a server."""
        for (one, other), link in self._lines.items():
            if other == server and client in (one, "all"):
                self._loop.call_soon_threadsafe(link.becomes, weather)

    def clear(self) -> None:
        """Let every line carry again."""
        for link in self._lines.values():
            self._loop.call_soon_threadsafe(link.becomes, Weather.CLEAR)

    async def _listen(self) -> None:
        self._servers += [await link.listen() for link in self._lines.values()]

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for link in self._lines.values():
            link.becomes(Weather.CUT)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others, timeout=5) if others else None


@contextmanager
def opened() -> Iterator[Links]:
    """Have lines, and none afterwards."""
    links = Links()
    thread = threading.Thread(target=links._loop.run_forever, name="links", daemon=True)
    thread.start()
    try:
        yield links
    finally:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(links._end(), links._loop).result(10)
        links._loop.call_soon_threadsafe(links._loop.stop)
        thread.join()
        links._loop.close()


async def _late(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    timer = loop.call_later(seconds, over.set_result, None)
    try:
        await over
    finally:
        timer.cancel()
