"""Health endpoints: GET /healthz (the process lives) and /readyz (it can do its work), over plain HTTP."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from libs.log import get_logger

REQUEST_SECONDS: Final = 2.0
REQUEST_BYTES: Final = 8_192
log = get_logger(__name__)


class Probes:
    """Serves the two endpoints until closed. ``ready`` returns what is missing; empty: nothing is."""

    def __init__(self, ready: Callable[[], list[str]]) -> None:
        self._ready = ready
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> None:
        """Listen. Port 0 takes any free one."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES)
        log.info("health endpoints are open", host=host, port=self.port)

    @property
    def port(self) -> int:
        """The port it listens on; 0 before it does."""
        if self._server is None or not self._server.sockets:
            return 0
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        writer.close()

    def _answer(self, request: bytes) -> bytes:
        match request.split(b" ")[:2]:
            case [b"GET", b"/healthz"]:
                return _response("200 OK", "alive")
            case [b"GET", b"/readyz"]:
                missing = self._ready()
                return _response("503 Service Unavailable" if missing else "200 OK", ", ".join(missing) or "ready")
            case _:
                return _response("404 Not Found", "GET /healthz or /readyz")


def _response(status: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
