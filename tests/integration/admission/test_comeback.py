"""Room in a queue that is held for a gang that lost a node, on real servers."""

import asyncpg

from libs.config import Infrastructure
from schemas.ids import JobId
from schemas.reasons import Code, Reason
from schemas.workload import JobAdmitted, JobHeld, JobRequeued
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
    revoked,
)
from tests.support.eventually import eventually
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
