"""Every form of a destination."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.backends import Backend, in_memory, pretended_over_nats, processes_over_nats
from tests.support.servers import Servers

FORMS = {"pretended over NATS": pretended_over_nats, "processes over NATS": processes_over_nats}
IN_MEMORY = "pretended in memory"


@pytest.fixture(params=[IN_MEMORY, *FORMS])
def form(request: pytest.FixtureRequest) -> tuple[str, Servers | None]:
    """A form, and the servers where it needs them."""
    servers = None if request.param == IN_MEMORY else request.getfixturevalue("running_servers")
    return request.param, servers


@pytest.fixture
async def backend(form: tuple[str, Servers | None], tmp_path: Path) -> AsyncIterator[Backend]:
    """A destination, empty."""
    name, servers = form
    if servers is None:
        async with in_memory() as made:
            yield made
        return
    await servers.wipe()
    async with FORMS[name](servers, tmp_path) as made:
        yield made
