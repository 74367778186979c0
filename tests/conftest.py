"""What every test may ask for."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator

import pytest

from libs.config import Infrastructure
from tests.support.servers import Servers, lay_servers


@pytest.fixture(scope="session")
def running_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Three servers, one set a test process, started when the first test asks."""
    root = tmp_path_factory.mktemp("servers")
    servers = lay_servers(root)
    asyncio.run(servers.foundation.start())
    yield servers
    asyncio.run(servers.foundation.stop())
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
async def servers(running_servers: Servers) -> Servers:
    """The servers of the session, alive and empty."""
    await running_servers.wipe()
    return running_servers


@pytest.fixture
def infrastructure(servers: Servers) -> Callable[[str], Awaitable[Infrastructure]]:
    """`await infrastructure("placement")`: what that service is told, on empty servers with its schema in place."""
    return servers.infrastructure
