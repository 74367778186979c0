"""Every test of the shell runs in both worlds, unless it is about a real server."""

from collections.abc import AsyncIterator

import pytest

from tests.support.servers import Servers
from tests.support.shell_worlds import MemoryWorld, RealWorld, World, real_world

SERVICES = ("gateway", "admission", "audit")


@pytest.fixture(params=["real", "memory"])
def world_servers(request: pytest.FixtureRequest) -> Servers | None:
    servers: Servers | None = request.getfixturevalue("running_servers") if request.param == "real" else None
    return servers


@pytest.fixture
async def world(world_servers: Servers | None) -> AsyncIterator[World]:
    if world_servers is None:
        yield MemoryWorld()
        return
    await world_servers.wipe()
    async with real_world(world_servers, SERVICES) as opened:
        yield opened


@pytest.fixture
async def real(servers: Servers) -> AsyncIterator[RealWorld]:
    async with real_world(servers, SERVICES) as opened:
        yield opened
