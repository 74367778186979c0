"""Health endpoints over plain HTTP: GET /healthz (the process lives), /readyz (it can do its work) and /metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from libs.log import get_logger

REQUEST_SECONDS: Final = 2.0
REQUEST_BYTES: Final = 8_192
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text form
log = get_logger(__name__)


class Probes:
    """Serves the endpoints until closed. ``ready`` returns what is missing: empty, nothing is."""

    def __init__(self, ready: Callable[[], list[str]], metrics: Callable[[], Awaitable[bytes]] | None = None) -> None:
        self._ready = ready
        self._metrics = metrics
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
                writer.write(await self._answer(head.split(b"\r\n", 1)[0]))
                await writer.drain()
        writer.close()

    async def _answer(self, request: bytes) -> bytes:
        match request.split(b" ")[:2]:
            case [b"GET", b"/healthz"]:
                return _response("200 OK", "alive")
            case [b"GET", b"/readyz"]:
                missing = self._ready()
                return _response("503 Service Unavailable" if missing else "200 OK", ", ".join(missing) or "ready")
            case [b"GET", b"/metrics"] if self._metrics is not None:
                return _written("200 OK", METRICS_TYPE, await self._metrics())
            case _:
                return _response("404 Not Found", "GET /healthz, /readyz or /metrics")


def _response(status: str, text: str) -> bytes:
    return _written(status, "text/plain", f"{text}\n".encode())


def _written(status: str, kind: str, body: bytes) -> bytes:
    lines = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + body
