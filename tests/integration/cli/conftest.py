from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.gateways import gateway
from tests.support.servers import Servers
from tests.support.triplane_command import Shell


@pytest.fixture
async def shell(servers: Servers, tmp_path: Path) -> AsyncIterator[Shell]:
    async with gateway(servers) as asking:
        await asking.furnish()
        yield Shell(asking, tmp_path)
