"""What the loop of the services says of a connection that the other side cut is known for what it is."""

import asyncio
import inspect

import asyncpg
import pytest
import uvloop
from asyncpg.pool import PoolConnectionHolder

from libs.bus.steady import SteadyTransport
from libs.errors import UnavailableError, says_cut
from libs.pg.pool import translated


async def _write_after_the_cut() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.transport.abort()
        await asyncio.sleep(0)
        writer.write(b"a question")


def test_uvloop_says_it_in_words_that_are_known() -> None:
    with pytest.raises(RuntimeError) as raised:
        uvloop.run(_write_after_the_cut())
    assert says_cut(raised.value)


def test_a_cut_while_postgres_is_asked_is_said_as_unavailable() -> None:
    with pytest.raises(UnavailableError, match="connection to Postgres is gone"), translated():
        uvloop.run(_write_after_the_cut())


async def _write_to_nats_after_the_cut() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        transport = SteadyTransport.__new__(SteadyTransport)  # as the client has it: of another class when it was made
        transport._io_writer = writer
        writer.transport.abort()
        await asyncio.sleep(0)
        transport.write(b"PING\r\n")


def test_a_cut_while_nats_is_told_something_is_an_error_of_the_connection() -> None:
    with pytest.raises(ConnectionResetError):
        uvloop.run(_write_to_nats_after_the_cut())


def test_other_defects_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="no such thing"), translated():
        raise RuntimeError("no such thing")


def test_a_connection_that_is_lost_while_it_is_given_back_is_said_as_unavailable() -> None:
    said = "PoolConnectionHolder.release() called on a free connection holder"
    assert "a free connection holder" in inspect.getsource(PoolConnectionHolder.release)
    with pytest.raises(UnavailableError, match="connection to Postgres is gone"), translated():
        raise asyncpg.InternalClientError(said)
