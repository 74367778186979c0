"""Preemption on real servers: holds that live through restarts and end in time, and gangs of which a part is over."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from libs.config import Infrastructure
from schemas.base import Envelope
from schemas.ids import JobId, node_id
from schemas.reasons import Code, Layer, reason
from schemas.workload import (
    GrantConfirmed,
    GrantIssued,
    GrantReleased,
    GrantRevoked,
    JobAdmitted,
    JobEvicted,
    JobHeld,
    JobQueued,
    JobRequeued,
    RequestSubmitted,
    RunFailed,
)
from tests.support.admissions import admission
from tests.support.builders import (
    a_demand,
    a_grant,
    a_job_id,
    a_part,
    a_queue,
    a_submission,
    an_envelope,
    released,
)
from tests.support.eventually import eventually
from tests.support.placements import CLUSTER, Agents, a_node_of, agents, claim, placement, say_fleet
from tests.support.servers import Servers
from tests.support.wire import Wire

GANG, PREEMPTOR, OTHER = a_job_id("gang"), a_job_id("preemptor"), a_job_id("other", "zeta")
LONGER = "UPDATE jobs SET held_since = held_since - make_interval(secs => $1) WHERE held_since IS NOT NULL"
COUNTS = "SELECT held_since > now() - interval '290 s' FROM jobs WHERE held_since IS NOT NULL"


async def submit(line: Wire, *wishes: RequestSubmitted) -> None:
    await line.say(*(an_envelope(wish, key=wish.job, scope=wish.tenant) for wish in wishes))


async def declare(line: Wire, devices: int, tenant: str = "acme") -> None:
    queue = a_queue(tenant=tenant, preempts=True, h100=devices)
    await line.say(an_envelope(queue, key=f"queue_{tenant}", scope=tenant))


def told(line: Wire, job: JobId) -> list[tuple[str, int]]:
    """Return the admissions and ends of a job's attempts, in order."""
    facts = {each.id: each.data for each in line.heard}.values()
    kinds = JobAdmitted | JobEvicted | JobRequeued
    return [(type(fact).__name__, fact.attempt) for fact in facts if isinstance(fact, kinds) and fact.job == job]


async def test_s18_what_the_quick_victim_had_is_held_through_a_restart_until_the_slow_one_is_gone(
    line: Wire, surroundings: Infrastructure
) -> None:
    quick, slow = (a_grant(name, a_part(devices=8)) for name in ("quick", "slow"))
    async with admission(surroundings, backoff_seconds=0):
        await declare(line, 16)
        await submit(line, a_submission("quick", 8), a_submission("slow", 8))
        await line.wait(JobAdmitted, 2)
        await line.say(*(an_envelope(grant, key=grant.job) for grant in (quick, slow)))
        await submit(line, a_submission("preemptor", 16, priority=100))
        await line.wait(JobEvicted, 2)
        await line.say(an_envelope(released(quick), key=quick.job, version=2))
        await eventually(lambda: coming(line) == [16, 8])
    async with admission(surroundings, backoff_seconds=0):
        await submit(line, a_submission("small", 1))
        await eventually(lambda: a_job_id("small") in {fact.job for fact in line.facts(JobHeld)})
        assert len(line.facts(JobAdmitted)) == 2
        await line.say(an_envelope(released(slow), key=slow.job, version=2))
        assert (await line.wait(JobAdmitted, 3))[-1].job == PREEMPTOR
    assert {fact.reason.code for fact in line.facts(JobEvicted)} == {Code.PREEMPTED}
    assert (len(line.facts(JobEvicted)), len(line.facts(JobAdmitted))) == (2, 3)


def coming(line: Wire) -> list[int]:
    """Return how many devices were still to come free for the preemptor, as it was said."""
    held = [fact for fact in line.facts(JobHeld) if fact.job == PREEMPTOR]
    return [fact.reason.numbers["coming"] for fact in held if "coming" in fact.reason.numbers]


async def test_a_hold_ends_after_its_time_and_what_could_not_be_heard_does_not_count(
    line: Wire, surroundings: Infrastructure
) -> None:
    async with admission(surroundings, backoff_seconds=0, preemption_seconds=300):
        await declare(line, 8)
        await submit(line, a_submission("stuck", 8))
        await line.wait(JobAdmitted)
        await submit(line, a_submission("preemptor", 8, priority=100))
        await eventually(lambda: coming(line) == [8])
        connection = await asyncpg.connect(surroundings.postgres_dsn.get_secret_value())
        async with connection.transaction():
            await connection.execute("UPDATE listened SET at = clock_timestamp() - interval '1000 s'")
            await connection.execute(LONGER, 1_200)
        assert await eventually(lambda: connection.fetchval(COUNTS))
        assert [fact for fact in line.facts(JobHeld) if fact.preemption and fact.preemption.given_up] == []
        await connection.execute(LONGER, 200)
        await eventually(lambda: [f.reason.code for f in line.facts(JobHeld) if f.preemption and f.preemption.given_up])
        await connection.close()
    (given_up,) = [fact for fact in line.facts(JobHeld) if fact.preemption and fact.preemption.given_up]
    assert (given_up.job, given_up.reason.code) == (PREEMPTOR, Code.WAITING_FOR_QUOTA)


@pytest.fixture
async def standing(line: Wire) -> AsyncIterator[Agents]:
    async with agents(line) as opened:
        yield opened


@asynccontextmanager
async def a_gang_that_lost_a_part(
    line: Wire, standing: Agents, servers: Servers, surroundings: Infrastructure
) -> AsyncIterator[GrantIssued]:
    """3 x 4 devices on n1, n2 and n3; the start on n2 failed, and n2 has gone to tenant zeta; n1 and n3 stop slowly."""
    await say_fleet(line, "n1", "n2", "n3", devices=4)
    async with admission(surroundings, backoff_seconds=0), placement(await servers.infrastructure("placement")):
        await declare(line, 12)
        await declare(line, 4, "zeta")
        await submit(line, a_submission("gang", demand=a_demand(4, replicas=3)))
        (grant,) = await line.wait(GrantIssued)
        assert [part.node_name for part in grant.parts] == ["n1", "n2", "n3"]
        standing.busy = {grant.parts[place].node for place in (0, 2)}
        for place in (0, 2):
            await claim(line, grant, place)
        await line.say(start_failed(grant))
        await line.wait(JobRequeued)
        await submit(line, a_submission("other", 4, tenant="zeta"))
        await eventually(lambda: len(grants(line, OTHER)) == 1)
        assert [part.node_name for part in grants(line, OTHER)[0].parts] == ["n2"]
        await claim(line, grants(line, OTHER)[0])
        await eventually(lambda: OTHER in {fact.job for fact in line.facts(GrantConfirmed)})
        yield grant


def start_failed(grant: GrantIssued, version: int = 1) -> Envelope:
    """Say that the run of a grant failed to start."""
    why = reason(Layer.DISPATCH, Code.LAUNCH_REFUSED, "no image")
    fields = {**grant.model_dump(), "run": f"{grant.job}-a{grant.attempt}", "exit_code": None, "reason": why}
    fact = RunFailed.model_validate({**fields, "ended_at": grant.issued_at})
    return an_envelope(fact, key=fact.run, version=version)


def grants(line: Wire, job: JobId) -> list[GrantIssued]:
    return [fact for fact in line.facts(GrantIssued) if fact.job == job]


def of_other(line: Wire) -> list[str]:
    """Return all that was said of the other tenant's job."""
    facts = {each.id: each for each in line.heard if getattr(each.data, "job", None) == OTHER}
    return [each.type for each in facts.values()]


async def test_s11_a_gang_that_is_home_already_is_preempted_by_waiting_and_nothing_of_others_is_touched(
    line: Wire, standing: Agents, servers: Servers, surroundings: Infrastructure
) -> None:
    async with a_gang_that_lost_a_part(line, standing, servers, surroundings) as grant:
        others = of_other(line)
        await submit(line, a_submission("preemptor", priority=100, demand=a_demand(4, replicas=2)))
        await eventually(lambda: PREEMPTOR in {fact.job for fact in line.facts(JobHeld)})
        standing.busy.clear()
        await eventually(lambda: len(grants(line, PREEMPTOR)) == 1)
        assert {part.node for part in grants(line, PREEMPTOR)[0].parts} == {grant.parts[0].node, grant.parts[2].node}
        await line.say(start_failed(grant, version=2))
        await still_serves(line)
    assert told(line, GANG) == [
        ("JobAdmitted", 1),
        ("JobEvicted", 1),
        ("JobRequeued", 2),
    ]
    assert Code.PREEMPTED not in {fact.reason.code for fact in line.facts(JobEvicted)}
    assert of_other(line) == others


async def test_s11_a_gang_that_runs_again_is_preempted_whole_and_nothing_of_others_is_touched(
    line: Wire, standing: Agents, servers: Servers, surroundings: Infrastructure
) -> None:
    async with a_gang_that_lost_a_part(line, standing, servers, surroundings) as grant:
        others = of_other(line)
        await line.say(a_node_of("n4", 4))
        standing.busy.clear()
        await eventually(lambda: len(grants(line, GANG)) == 2, 30)
        again = grants(line, GANG)[1]
        assert [part.node_name for part in again.parts] == ["n1", "n3", "n4"]
        for place in range(3):
            await claim(line, again, place)
        await submit(line, a_submission("preemptor", priority=100, demand=a_demand(4, replicas=2)))
        await eventually(lambda: len(grants(line, PREEMPTOR)) == 1)
        await line.say(start_failed(grant, version=2))
        await still_serves(line)
        await eventually(lambda: len(freed(line, again)) == 3)
    assert told(line, GANG) == [
        ("JobAdmitted", 1),
        ("JobEvicted", 1),
        ("JobRequeued", 2),
        ("JobAdmitted", 2),
        ("JobEvicted", 2),
        ("JobRequeued", 3),
    ]
    assert line.facts(JobEvicted)[-1].reason.code is Code.PREEMPTED
    assert {fact.node for fact in freed(line, again)} == {node_id(CLUSTER, name) for name in ("n1", "n3", "n4")}
    assert {fact.grant for fact in line.facts(GrantRevoked)} == {grant.grant, again.grant}
    waits = [fact for fact in line.facts(JobHeld) if fact.job == GANG][-1]
    assert (waits.attempt, waits.reason.code) == (3, Code.WAITING_FOR_QUOTA)
    assert of_other(line) == others


def freed(line: Wire, grant: GrantIssued) -> list[GrantReleased]:
    return [fact for fact in line.facts(GrantReleased) if fact.grant == grant.grant]


async def still_serves(line: Wire) -> None:
    """Wait until admission has taken in all that was said before."""
    await submit(line, a_submission("marker", 12, priority=-100))
    await eventually(lambda: a_job_id("marker") in {fact.job for fact in line.facts(JobQueued)})
