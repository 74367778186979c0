"""The clock of the whole machine is put forward and back while jobs go through a stack, as when NTP finds it wrong."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.client.client import AsyncClient
from tests.e2e.kills.conftest import FLEET
from tests.support import faketime, victims
from tests.support.batches import Batch
from tests.support.victims import Stack
from tests.support.work_log import doubled

pytestmark = [
    pytest.mark.kills,
    pytest.mark.timeout(600),
    pytest.mark.skipif(faketime.LIBRARY is None, reason=faketime.MISSING),
]
CLASS, QUOTA, JOBS = "h100", 10, 60
JOBS_SECONDS, QUIET_SECONDS = 200, 60  # of a busy machine; the library makes every look at the clock slow
HOUR = 3_600  # more than all that is waited for before a silent node is given up
TIMES = (  # these times lie; what the processes wrote down does not
    "two claims of one device overlap in time",
    "granted time and billed time differ",  # an hour that is there twice is set aside
)
GRACE = {"TRIPLANE_PLACEMENT_LATE_START_GRACE_SECONDS": "60"}
LOST = "SELECT count(*) FROM health.incidents WHERE severity = 'lost'"


@pytest.fixture
def clock(tmp_path: Path) -> faketime.FakeClock:
    return faketime.FakeClock(tmp_path / "clock")


@pytest.fixture
def stack(clock: faketime.FakeClock, request: pytest.FixtureRequest) -> Iterator[Stack]:
    failed = request.session.testsfailed
    with victims.stack(FLEET, {**clock.environment(), **GRACE}) as opened:
        yield opened
    if request.session.testsfailed == failed:
        victims.remove(opened)


async def test_every_job_reaches_its_one_right_end_and_no_node_is_given_up(
    stack: Stack, clock: faketime.FakeClock
) -> None:
    async with AsyncClient(stack.access) as admin:
        batch = Batch("clocks", JOBS, admin, stack.work_log)
        handing_in = asyncio.ensure_future(batch.hand_in(CLASS, QUOTA, JOBS_SECONDS))
        for share, seconds in ((0.2, HOUR), (0.5, -HOUR), (0.8, 0)):
            await batch.reached(share, JOBS_SECONDS)
            clock.ahead(seconds)
        await handing_in
        wrong = await batch.wrong(JOBS_SECONDS)
    broken = [*await stack.breaches(batch.processes(), QUIET_SECONDS, besides=TIMES), *await stack.dead_letters(0)]
    async with stack.ledger() as ledger:
        lost = await ledger.fetchval(LOST)
    assert ([*wrong, *broken, *doubled(batch.processes())], lost) == ([], 0), await stack.whys(wrong)
