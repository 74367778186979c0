"""Room in a queue that is held for a gang that lost a node, on real servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import asyncpg

from libs.config import Infrastructure
from schemas.fleet import Mark, MarkEffect
from schemas.ids import DrainId, JobId
from schemas.reasons import Code, Reason
from schemas.workload import GrantIssued, GrantRefused, GrantRevoked, JobAdmitted, JobEvicted, JobHeld, JobRequeued
from tests.support.admissions import admission
from tests.support.builders import (
    NOON,
    a_demand,
    a_grant,
    a_job_id,
    a_part,
    a_queue,
    a_submission,
    an_envelope,
    released,
    revoked,
)
from tests.support.eventually import eventually
from tests.support.placements import a_node_of, agents, claim, placement, say_fleet
from tests.support.servers import Servers
from tests.support.wire import Wire

G, F = a_job_id("g"), a_job_id("f")
OVER = "UPDATE jobs SET recovery = jsonb_set(recovery, '{until}', to_jsonb(now())) WHERE recovery IS NOT NULL"
COUNT = "SELECT count(*) = 0 FROM jobs WHERE recovery IS NOT NULL"


def why(line: Wire, job: JobId) -> list[Reason]:
    return [fact.reason for fact in line.facts(JobHeld) if fact.job == job]


async def test_s09_the_room_of_a_gang_that_lost_a_node_is_held_through_a_restart_and_for_its_time_only(
    line: Wire, surroundings: Infrastructure
) -> None:
    grant = a_grant("g", a_part("n1", 8), a_part("n2", 8, rank=1))
    async with admission(surroundings, backoff_seconds=60):
        queue = a_queue(h100=16)
        await line.say(an_envelope(queue, key="queue_acme", scope="acme"))
        demand = a_demand(8, replicas=2, recovery_seconds=600)
        await line.say(an_envelope(a_submission("g", demand=demand), key=G, scope="acme"))
        await line.wait(JobAdmitted)
        facts = [grant, revoked(grant, Code.DRAINED), released(grant, remaining=1), released(grant, 1)]
        facts[1] = facts[1].model_copy(update={"revoked_at": line.facts(JobAdmitted)[0].queued_at})
        await line.say(*(an_envelope(fact, key=G, version=1 + number) for number, fact in enumerate(facts)))
        (requeued,) = await line.wait(JobRequeued)
        assert requeued.recovery is not None
        assert (requeued.recovery.gpu_class, requeued.recovery.devices) == ("h100", 16)
    async with admission(surroundings, backoff_seconds=60):
        await line.say(an_envelope(a_submission("f", 8), key=F, scope="acme"))
        held = (await eventually(lambda: why(line, F)))[-1]
        assert (held.code, held.numbers["held"]) == (Code.HELD_FOR_RECOVERY, 16)
        connection = await asyncpg.connect(surroundings.postgres_dsn.get_secret_value())
        assert len(line.facts(JobAdmitted)) == 1
        await connection.execute(OVER)
        assert [fact.job for fact in await line.wait(JobAdmitted, 2)] == [G, F]
        assert await eventually(lambda: connection.fetchval(COUNT))
        await connection.close()


@asynccontextmanager
async def both_services(
    line: Wire, servers: Servers, surroundings: Infrastructure, *, seconds: int
) -> AsyncIterator[None]:
    """Admission and placement: gang G ran on n1 and n2 and lost n2, which is drained, and filler F is submitted."""
    drain = Mark(
        drain=DrainId("drain_1"), effect=MarkEffect.DRAIN, owner="ops", reason="fans", session="s1", since=NOON
    )
    demand = a_demand(8, replicas=2, recovery_seconds=seconds)
    await say_fleet(line, "n1", "n2")
    async with (
        agents(line),
        admission(surroundings, backoff_seconds=0),
        placement(await servers.infrastructure("placement")),
    ):
        await line.say(an_envelope(a_queue(h100=24), key="queue_acme", scope="acme"))
        await line.say(an_envelope(a_submission("g", demand=demand), key=G, scope="acme"))
        (grant,) = await line.wait(GrantIssued)
        for part in range(2):
            assert (await claim(line, grant, part)).granted
        await line.say(a_node_of("n2", version=2, marks=(drain,)))
        await line.wait(JobRequeued)
        await line.say(an_envelope(a_submission("f", 8), key=F, scope="acme"))
        yield


def where(line: Wire, job: JobId) -> list[tuple[int, list[str]]]:
    """Return the attempts of a job that were given devices, and on which nodes."""
    grants = [each for each in line.facts(GrantIssued) if each.job == job]
    return [(each.attempt, sorted(part.node_name for part in each.parts)) for each in grants]


def refusals(line: Wire, job: JobId) -> list[Code]:
    return [each.reason.code for each in line.facts(GrantRefused) if each.job == job]


async def test_s09_through_both_services_the_gang_comes_back_and_the_filler_waits(
    line: Wire, servers: Servers, surroundings: Infrastructure
) -> None:
    async with both_services(line, servers, surroundings, seconds=600):
        await eventually(lambda: Code.HELD_FOR_RECOVERY in refusals(line, F))
        await line.say(a_node_of("n2", version=3))
        await eventually(lambda: where(line, G) == [(1, ["n1", "n2"]), (2, ["n1", "n2"])])
        await eventually(lambda: refusals(line, F)[-1] is Code.WAITING_FOR_CAPACITY)
    assert (where(line, F), len(line.facts(JobEvicted))) == ([], 1)


async def test_s09_through_both_services_the_room_is_given_up_in_time(
    line: Wire, servers: Servers, surroundings: Infrastructure
) -> None:
    async with both_services(line, servers, surroundings, seconds=3):
        await eventually(lambda: where(line, F) == [(1, ["n1"])])
        await line.say(a_node_of("n2", version=3))
        await eventually(lambda: refusals(line, G)[-1:] == [Code.WAITING_FOR_CAPACITY])
    (revoked_at,) = [fact.revoked_at for fact in line.facts(GrantRevoked)]
    issued_at = line.facts(GrantIssued)[-1].issued_at
    assert issued_at >= revoked_at + timedelta(seconds=3)
    assert where(line, G) == [(1, ["n1", "n2"])]
    assert {(fact.job, fact.attempt) for fact in line.facts(JobAdmitted)} == {(G, 1), (G, 2), (F, 1)}
