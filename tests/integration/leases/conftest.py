"""One server of each kind for the lease suite."""

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from libs.leases import Leases
from tests.support.lease_servers import binaries, running


@pytest.fixture(scope="package", params=sorted(binaries().items()), ids=lambda server: server[0])
def lease_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(request.param[1], tmp_path_factory.mktemp("leases")) as url:
        yield url


@pytest.fixture(autouse=True)
def redis(lease_url: str) -> Iterator[Redis]:
    with Redis.from_url(lease_url, decode_responses=True) as server:
        server.flushall()
        yield server


@pytest.fixture
async def leases(lease_url: str) -> AsyncIterator[Leases]:
    client = Leases(lease_url)
    yield client
    await client.close()
