"""What placement's tests ask for."""

from collections.abc import AsyncIterator

import pytest

from libs.config import Infrastructure
from tests.support.placements import Agents, agents
from tests.support.servers import Servers
from tests.support.wire import Wire


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("placement")


@pytest.fixture
async def standing(line: Wire) -> AsyncIterator[Agents]:
    async with agents(line) as opened:
        yield opened
