from collections.abc import AsyncIterator

import pytest

from tests.support.gateways import Asking, gateway
from tests.support.servers import Servers


@pytest.fixture
async def asking(servers: Servers) -> AsyncIterator[Asking]:
    """A gateway with tenants acme and zoo, a queue each, one class and one cluster."""
    async with gateway(servers) as opened:
        await opened.furnish()
        yield opened
