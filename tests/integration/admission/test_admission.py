"""Admission on real NATS and Postgres: every transition once, whatever is said twice or lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from libs.config import Infrastructure
from libs.pg.pool import Connection
from schemas.base import Envelope
from schemas.reasons import Code
from schemas.workload import (
    GrantIssued,
    GrantReleased,
    GrantRevoked,
    JobAdmitted,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobQueued,
    JobRequeued,
    Outcome,
    RequestSubmitted,
    RequestWithdrawn,
    RunFailed,
    RunSucceeded,
)
from tests.support.admissions import admission
from tests.support.builders import (
    a_grant,
    a_part,
    a_queue,
    a_submission,
    a_withdrawal,
    an_envelope,
    failed,
    released,
    revoked,
    succeeded,
)
from tests.support.eventually import eventually
from tests.support.wire import Wire

OfJob = RequestSubmitted | RequestWithdrawn | GrantIssued | GrantRevoked | GrantReleased | RunSucceeded | RunFailed


@asynccontextmanager
async def _asking(infrastructure: Infrastructure) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(infrastructure.postgres_dsn.get_secret_value())
    try:
        yield connection
    finally:
        await connection.close()


async def used(infrastructure: Infrastructure) -> int:
    async with _asking(infrastructure) as connection:
        return int(await connection.fetchval("SELECT coalesce(sum(devices), 0) FROM charges WHERE NOT over"))


def queue_of(devices: int, version: int = 1) -> Envelope:
    return an_envelope(a_queue(h100=devices), key="queue_main", version=version)


def job_fact(fact: OfJob, version: int = 1) -> Envelope:
    return an_envelope(fact, key=fact.job, version=version)


async def test_a_job_goes_from_submission_to_its_end_and_the_charge_to_nothing(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with admission(surroundings):
        await line.say(queue_of(8), job_fact(a_submission(devices=4)))
        (admitted,) = await line.wait(JobAdmitted)
        assert (admitted.attempt, admitted.gpu_class, await used(surroundings)) == (1, "h100", 4)
        grant = a_grant("train", a_part(devices=4))
        await line.say(job_fact(grant), job_fact(succeeded()))
        (finished,) = await line.wait(JobFinished)
        assert finished.outcome is Outcome.SUCCEEDED
        await line.say(job_fact(revoked(grant), 2), job_fact(released(grant), 3))
        await eventually(lambda: _is_free(surroundings))


async def _is_free(surroundings: Infrastructure) -> bool:
    return await used(surroundings) == 0


async def test_messages_said_three_times_have_one_effect(line: Wire, surroundings: Infrastructure) -> None:
    async with admission(surroundings):
        await line.say(queue_of(8))
        for again in ("", ".2", ".3"):
            await line.say(job_fact(a_submission(devices=4)), again=again)
        await line.say(job_fact(a_submission("marker", 1)))
        await line.wait(JobAdmitted, 2)
        assert [fact.name for fact in line.facts(JobQueued)] == ["train", "marker"]
        assert await used(surroundings) == 5


async def test_two_replicas_never_book_over_the_quota(line: Wire, surroundings: Infrastructure) -> None:
    async with admission(surroundings), admission(surroundings):
        await line.say(queue_of(10))
        await line.say(*(job_fact(a_submission(f"job-{number}", 1)) for number in range(60)))
        await line.wait(JobHeld, 50)
        assert len(line.facts(JobAdmitted)) == 10
        assert await used(surroundings) == 10


async def test_jobs_that_come_together_are_served_in_the_order_they_came(
    line: Wire, surroundings: Infrastructure
) -> None:
    names = [f"job-{number}" for number in range(20)]
    await line.say(queue_of(3), *(job_fact(a_submission(name)) for name in names))
    async with admission(surroundings):
        assert [fact.name for fact in await line.wait(JobAdmitted, 3)] == names[:3]


async def test_a_cancelled_job_and_a_retry_both_find_their_way(line: Wire, surroundings: Infrastructure) -> None:
    async with admission(surroundings, backoff_seconds=0):
        await line.say(queue_of(8), job_fact(a_submission("gone")), job_fact(a_submission("again", retries=1)))
        await line.wait(JobAdmitted, 2)
        grant = a_grant("again")
        await line.say(job_fact(a_withdrawal("gone"), 2), job_fact(grant), job_fact(failed("again")))
        assert [fact.attempt for fact in await line.wait(JobRequeued)] == [2]
        assert len(await line.wait(JobCancelled)) == 1
        (held,) = await line.wait(JobHeld)
        assert (held.reason.code, held.reason.numbers) == (Code.WAITING_FOR_RELEASE, {"devices": 1})
        await line.say(job_fact(revoked(grant), 2), job_fact(released(grant), 3))
        assert [fact.attempt for fact in await line.wait(JobAdmitted, 3)] == [1, 1, 2]


async def test_what_placement_did_not_answer_is_said_again_until_it_does(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with admission(surroundings, sweep_seconds=0.2):
        await line.say(queue_of(8), job_fact(a_submission()))
        await line.wait(JobAdmitted)
        await eventually(lambda: sum(isinstance(e.data, JobAdmitted) for e in line.heard) >= 2, 60)
        assert len(line.facts(JobAdmitted)) == 1


async def test_the_end_is_said_again_when_a_grant_is_told_again_whose_attempt_is_over(
    line: Wire, surroundings: Infrastructure
) -> None:
    grant = a_grant()
    async with admission(surroundings, sweep_seconds=0.2):
        await line.say(queue_of(8), job_fact(a_submission()))
        await line.wait(JobAdmitted)  # facts of different streams may come in any order
        await line.say(job_fact(grant), job_fact(revoked(grant), 2), job_fact(released(grant), 3))
        await eventually(lambda: _is_free(surroundings))
        await line.say(job_fact(succeeded()))
        await line.wait(JobFinished)

        async def told_again() -> bool:
            await line.say(job_fact(revoked(grant), 2), again=f".{len(line.heard)}")
            return sum(isinstance(envelope.data, JobFinished) for envelope in line.heard) > 1

        await eventually(told_again, every=0.2)
        assert len(line.facts(JobFinished)) == 1


@pytest.mark.parametrize(("gap", "waited", "left"), [(500, 1_100, 600), (-500, -400, 100)])
async def test_no_wait_for_devices_counts_what_nobody_could_hear_and_two_replicas_correct_it_once(
    line: Wire, surroundings: Infrastructure, gap: float, waited: float, left: float
) -> None:
    limit = {"placement_deadline_seconds": 1_000}
    async with admission(surroundings, **limit), admission(surroundings, **limit):
        await line.say(queue_of(8), job_fact(a_submission()))
        await line.wait(JobAdmitted)
        async with _asking(surroundings) as rows, rows.transaction():
            await rows.execute("UPDATE listened SET at = clock_timestamp() - make_interval(secs => $1)", gap)
            await rows.execute("UPDATE jobs SET admitted_at = now() - make_interval(secs => $1)", waited)
        for _ in range(10):
            await _another_look(surroundings)
        assert left - 5 <= await _waited(surroundings) <= left + 60
    assert line.facts(JobRequeued) == []


async def test_what_waits_beyond_the_deadline_is_let_go_once_somebody_can_hear(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with admission(surroundings, placement_deadline_seconds=100):
        await line.say(queue_of(8), job_fact(a_submission()))
        await line.wait(JobAdmitted)
        async with _asking(surroundings) as rows:
            await rows.execute("UPDATE jobs SET admitted_at = now() - interval '101 s'")
        (home,) = await line.wait(JobRequeued)
        assert (home.attempt, home.reason.code) == (2, Code.PLACEMENT_TIMEOUT)


async def _another_look(infrastructure: Infrastructure) -> None:
    async with _asking(infrastructure) as rows:
        before = await rows.fetchval("SELECT at FROM listened")
        assert await eventually(lambda: rows.fetchval("SELECT at <> $1 FROM listened", before))


async def _waited(infrastructure: Infrastructure) -> float:
    async with _asking(infrastructure) as rows:
        return float(await rows.fetchval("SELECT extract(epoch FROM now() - admitted_at)::float8 FROM jobs"))


async def test_a_restart_in_the_middle_changes_nothing(line: Wire, surroundings: Infrastructure) -> None:
    async with admission(surroundings):
        await line.say(queue_of(1), job_fact(a_submission("first")), job_fact(a_submission("second")))
        await line.wait(JobHeld)
    grant = a_grant("first")
    await line.say(job_fact(grant), job_fact(succeeded("first")), job_fact(released(grant), 2))
    async with admission(surroundings):
        assert [fact.name for fact in await line.wait(JobAdmitted, 2)] == ["first", "second"]
    assert [fact.reason.code for fact in line.facts(JobHeld)] == [Code.WAITING_FOR_QUOTA]
