"""Asking a service over HTTP whether it can do its work."""

import asyncio

ASK_SECONDS = 2.0
LOOK_SECONDS = 0.1


async def is_ready(port: int) -> bool:
    """Return whether GET /readyz on the loopback port is answered with 200."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await _says_ready(port)
    except (OSError, TimeoutError):
        return False


async def until_ready(port: int) -> None:
    """Wait, for ever, until it is ready."""
    while not await is_ready(port):  # noqa: ASYNC110
        await asyncio.sleep(LOOK_SECONDS)


async def _says_ready(port: int) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b" 200 " in await reader.readline()
    finally:
        writer.close()
