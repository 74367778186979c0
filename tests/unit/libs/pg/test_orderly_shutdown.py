"""A Postgres that shuts down in good order says so on idle connections, and cuts them a moment later."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from libs.errors import UnavailableError
from libs.pg.pool import connect, translated


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


WELCOME = message(b"R", struct.pack("!I", 0)) + message(b"S", b"server_version\x0018.0\x00") + message(b"Z", b"I")
GOODBYE = message(b"E", b"SFATAL\x00VFATAL\x00C57P01\x00Mterminating connection due to administrator command\x00\x00")


@asynccontextmanager
async def a_server_that_says_goodbye() -> AsyncIterator[int]:
    open_ones: list[asyncio.StreamWriter] = []  # it does not cut them inside

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(WELCOME + GOODBYE)
        open_ones.append(writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for writer in open_ones:
            writer.close()


async def test_a_connection_in_that_moment_is_away_and_no_defect() -> None:
    async with a_server_that_says_goodbye() as port:
        connection = await connect(f"postgresql://nobody@127.0.0.1:{port}/none?sslmode=disable", schema="none")
        with pytest.raises(UnavailableError) as raised, translated():
            await connection.fetchval("SELECT 1")
        connection.terminate()
    assert isinstance(raised.value.__cause__, asyncpg.InternalClientError)
