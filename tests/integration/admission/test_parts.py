"""A gang whose parts end at different times, on real servers: what is charged and held goes part by part."""

from collections.abc import AsyncIterator

import pytest

from schemas.reasons import Code
from schemas.workload import GrantIssued, GrantNarrowed, GrantReleased, JobAdmitted, JobHeld, RunFailed, RunStarted
from tests.support.bookings import Book, Noted
from tests.support.builders import a_job_id
from tests.support.eventually import eventually
from tests.support.launching import SERVICES, Launching, launching
from tests.support.servers import Servers

NODES, QUOTA = 5, 32  # 40 devices: what is refused is refused by the quota


@pytest.fixture
async def stage(book: Book, servers: Servers) -> AsyncIterator[Launching]:
    """All services and five nodes; they end before the database is cleared of what it noted."""
    del book
    async with launching(servers, nodes=NODES, backoff_seconds=1) as opened:
        yield opened


async def test_s02_a_gang_that_comes_again_is_charged_whole_again_and_waits_for_it(
    stage: Launching, book: Book
) -> None:
    """Two of three parts end well, others take their devices, and then the third one fails and all come again."""
    await stage.start(*SERVICES)
    await stage.say_queue(QUOTA)
    await stage.say_fleet()
    await book.watch()
    await stage.submit("j1", replicas=3, retries=1)
    await eventually(lambda: _started(stage, "j1", 1))
    assert await book.now() == Noted(24, 24)
    gang = _grant(stage, "j1", 1)
    for part in gang.parts[:2]:
        stage.agent.cluster.finish(part.node)
    await _comes_to(book, Noted(8, 8))
    released = [(fact.remaining, fact.alone) for fact in stage.line.facts(GrantReleased)]
    assert (len(stage.line.facts(GrantNarrowed)), released) == (2, [(2, True), (1, True)])

    await stage.submit("j2", replicas=2)
    await eventually(lambda: _started(stage, "j2", 1))
    assert await book.now() == Noted(24, 24)

    stage.agent.cluster.kill(gang.parts[2].node)
    await eventually(lambda: stage.line.facts(JobHeld), 30)
    (failed,) = stage.line.facts(RunFailed)
    (held,) = stage.line.facts(JobHeld)
    assert (failed.job, failed.reason.code) == (a_job_id("j1"), Code.SIGNALLED)
    assert (held.job, held.attempt) == (a_job_id("j1"), 2)
    assert held.reason.message == "queue main: quota 32 h100, used 16, asked 24"
    assert await book.now() == Noted(16, 16)

    for part in _grant(stage, "j2", 1).parts:
        stage.agent.cluster.finish(part.node)
    await eventually(lambda: _started(stage, "j1", 2), 30)
    assert await book.now() == Noted(24, 24)
    noted = await book.noted()
    assert max(noted.charged for noted in noted) <= QUOTA
    assert max(noted.held for noted in noted) <= QUOTA
    assert [fact.attempt for fact in stage.line.facts(JobAdmitted) if fact.job == a_job_id("j1")] == [1, 2]
    await stage.withdraw("j1")
    await stage.settle()


def _grant(stage: Launching, name: str, attempt: int) -> GrantIssued:
    return next(fact for fact in stage.line.facts(GrantIssued) if (fact.job, fact.attempt) == (a_job_id(name), attempt))


def _started(stage: Launching, name: str, attempt: int) -> bool:
    return any((fact.job, fact.attempt) == (a_job_id(name), attempt) for fact in stage.line.facts(RunStarted))


async def _comes_to(book: Book, wanted: Noted) -> None:
    async def same() -> bool:
        return await book.now() == wanted

    await eventually(same, 30)
