"""The client of NATS on the loop of the services: what its flush means, and a server that cuts new connections."""

import asyncio
from contextlib import suppress

import nats.errors
import uvloop
from nats.aio.msg import Msg

from libs.bus.steady import SteadyClient, connected
from tests.support.cutting_nats import cutting
from tests.support.eventually import eventually

CUTS = 400  # one of about twenty hit the client between two writes


async def _hear(_: Msg) -> None:
    """Hear nothing."""


async def _told(_: Exception) -> None:
    """Let errors be."""


async def _connected_through_it_all(url: str) -> None:
    client = SteadyClient()
    await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0, error_cb=_told)
    for number in range(50):
        await client.subscribe(f"call.{number}", cb=_hear)

    async def answered() -> bool:
        if client.is_connected:
            with suppress(nats.errors.Error):
                await client.flush(1)
                return True
        return False

    await eventually(answered, 60)
    await client.close()


def test_a_client_that_is_cut_again_and_again_while_it_reconnects_is_connected_in_the_end() -> None:
    with cutting(CUTS) as url:
        uvloop.run(asyncio.wait_for(_connected_through_it_all(url), 90))


async def test_what_was_said_before_a_flush_comes_to_the_server_before_the_ping_of_it() -> None:
    said: list[bytes] = []
    with cutting(-1, said) as url:
        client = await connected(url)
        await client.subscribe("call.test", cb=_hear)
        await client.flush()
        await client.close()
    assert [line.split()[0] for line in said] == [b"CONNECT", b"PING", b"SUB", b"PING"]
