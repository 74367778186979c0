"""Jobs that never come to start, on real servers: no attempt that is over comes back, and none is charged twice."""

from collections.abc import AsyncIterator

import pytest

from schemas.reasons import Code
from schemas.workload import GrantRevoked, JobAdmitted, JobEvicted, JobHeld, JobRequeued, RunStarted
from tests.support.bookings import Book
from tests.support.builders import a_job_id
from tests.support.eventually import eventually
from tests.support.launching import SERVICES, Launching, launching
from tests.support.servers import Servers

CYCLES = 10
REPLICAS = ("replica-0", "replica-1")


@pytest.fixture
async def stage(book: Book, servers: Servers) -> AsyncIterator[Launching]:
    """All services, none started; they end before the database is cleared of what it noted."""
    del book
    async with launching(servers, start_deadline_seconds=1) as opened:
        yield opened


async def test_s04_starts_that_never_come_leave_no_ghosts_and_the_quota_to_others(stage: Launching, book: Book) -> None:
    """Two replicas of 1 device in a queue of 8 whose containers never get ready; ten cycles; then a job of 6."""
    stage.agent.steps.shut()
    await stage.start(*SERVICES)
    await book.watch()
    await stage.say_queue(8)
    await stage.say_fleet()
    for name in REPLICAS:
        await stage.submit(name, devices=1)
    await eventually(lambda: all(len(_attempts(stage, JobEvicted, name)) >= CYCLES for name in REPLICAS), 90, every=0.2)
    first, *charged = [noted.charged for noted in await book.noted()]
    assert (first in {1, 2}, set(charged), len(charged) >= 2 * CYCLES) == (True, {2}, True), charged
    await stage.submit("j2", devices=6)
    await eventually(lambda: _attempts(stage, JobAdmitted, "j2") == [1])
    assert stage.line.facts(JobHeld) == []
    _check_no_ghosts(stage)
    for name in (*REPLICAS, "j2"):
        await stage.withdraw(name)
    await stage.settle()


def _attempts(stage: Launching, kind: type[JobAdmitted | JobEvicted | JobRequeued], name: str) -> list[int]:
    return [fact.attempt for fact in stage.line.facts(kind) if fact.job == a_job_id(name)]


def _check_no_ghosts(stage: Launching) -> None:
    """Each attempt was admitted once and ended once, and only the next one came home."""
    assert stage.line.facts(RunStarted) == []
    reasons = {fact.reason.code for fact in stage.line.facts(GrantRevoked)}
    assert reasons == {Code.PODS_READY_TIMEOUT}
    for name in REPLICAS:
        over = _attempts(stage, JobEvicted, name)
        assert over == [*range(1, len(over) + 1)]
        assert _attempts(stage, JobRequeued, name) == [attempt + 1 for attempt in over]
        assert _attempts(stage, JobAdmitted, name) == [1, *(attempt + 1 for attempt in over)]
