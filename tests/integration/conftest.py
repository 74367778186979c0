"""What tests on real servers ask for; after each, what one service's tables alone must always say is checked."""

from collections.abc import AsyncIterator

import pytest

from tests.support.invariants import alone
from tests.support.servers import Servers
from tests.support.wire import Wire, wire


@pytest.fixture(autouse=True)
async def invariants(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Look after the test; what it broke on purpose it has to have undone."""
    yield
    if "running_servers" not in request.fixturenames:
        return
    servers: Servers = request.getfixturevalue("running_servers")
    if not servers.foundation.keepers["postgres"].is_alive:
        return
    connection = await servers.foundation.postgres.connect()
    try:
        assert await alone(connection, servers.migrated) == []
    finally:
        await connection.close()


@pytest.fixture
async def line(servers: Servers) -> AsyncIterator[Wire]:
    """All that is said on the streams, and a way to say something."""
    async with wire(servers) as opened:
        yield opened
