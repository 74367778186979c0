"""What the tests of moves ask for."""

from collections.abc import AsyncIterator

import pytest

from tests.support.moving import Moving, moving
from tests.support.servers import Servers


@pytest.fixture
async def stage(servers: Servers) -> AsyncIterator[Moving]:
    async with moving(servers) as opened:
        yield opened
