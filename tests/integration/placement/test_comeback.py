"""Room that is held for a gang that lost a node, on real servers: through a restart, until its time or its job ends."""

from libs.config import Infrastructure
from schemas.base import Envelope
from schemas.fleet import Mark, MarkEffect
from schemas.ids import DrainId, JobId
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import Demand, GrantIssued, GrantRefused, GrantReleased, JobEvicted
from tests.support.builders import ACME, NOON, a_demand, an_envelope
from tests.support.eventually import eventually
from tests.support.placements import (
    Agents,
    a_job,
    a_node_of,
    admitted,
    cancelled,
    claim,
    ledger,
    placement,
    say_fleet,
)
from tests.support.wire import Wire

DRAIN = Mark(drain=DrainId("drain_1"), effect=MarkEffect.DRAIN, owner="ops", reason="fans", session="s1", since=NOON)
OVER = "UPDATE comebacks SET until = now()"
COUNT = "SELECT count(*) FROM comebacks"


def the_demand(seconds: int = 600) -> Demand:
    return a_demand(8, replicas=2, recovery_seconds=seconds)


async def lose_n2(line: Wire) -> None:
    """Let gang G run on both nodes, drain n2, and let G come home as its next attempt."""
    await line.say(admitted("g", demand=the_demand()))
    (grant,) = await line.wait(GrantIssued)
    for part in range(2):
        assert (await claim(line, grant, part)).granted
    await line.say(a_node_of("n2", version=2, marks=(DRAIN,)))
    await line.wait(GrantReleased, 2)
    why = reason(Layer.PLACEMENT, Code.DRAINED)
    evicted = JobEvicted(job=grant.job, attempt=1, tenant=ACME, reason=why)
    await line.say(
        an_envelope(evicted, key=grant.job, version=5), admitted("g", attempt=2, version=7, demand=the_demand())
    )


async def refused(line: Wire, job: JobId, code: Code) -> Reason:
    """Wait until a job is told that it waits for that."""

    def told() -> list[Reason]:
        return [each.reason for each in line.facts(GrantRefused) if each.job == job and each.reason.code is code]

    return (await eventually(told))[-1]


def filler() -> Envelope:
    return admitted("f", 8, after=60)


def where(line: Wire, name: str) -> list[tuple[int, list[str]]]:
    """Return the attempts of a job that were given devices, and on which nodes."""
    grants = [each for each in line.facts(GrantIssued) if each.job == a_job(name)]
    return [(each.attempt, sorted(part.node_name for part in each.parts)) for each in grants]


async def test_s09_what_a_gang_had_is_held_for_it_through_a_restart_until_its_node_is_back(
    line: Wire, surroundings: Infrastructure, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings):
        await lose_n2(line)
        await line.say(filler())
        await refused(line, a_job("f"), Code.HELD_FOR_RECOVERY)
    async with placement(surroundings), ledger(surroundings) as connection:
        held = await refused(line, a_job("f"), Code.HELD_FOR_RECOVERY)
        assert f"8 held for job {a_job('g')} until " in held.message
        assert (held.numbers["needs"], held.numbers["free"], held.numbers["held_for_recovery"]) == (8, 0, 8)
        await line.say(a_node_of("n2", version=3))
        await eventually(lambda: where(line, "g") == [(1, ["n1", "n2"]), (2, ["n1", "n2"])])
        await refused(line, a_job("f"), Code.WAITING_FOR_CAPACITY)
        assert (where(line, "f"), await connection.fetchval(COUNT)) == ([], 0)
    assert standing.asked


async def test_s09_after_its_time_the_room_is_given_up_and_the_gang_waits_whole(
    line: Wire, surroundings: Infrastructure, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings), ledger(surroundings) as connection:
        await lose_n2(line)
        await line.say(filler())
        await refused(line, a_job("f"), Code.HELD_FOR_RECOVERY)
        await connection.execute(OVER)
        await eventually(lambda: where(line, "f") == [(1, ["n1"])])
        await line.say(a_node_of("n2", version=3))
        await refused(line, a_job("g"), Code.WAITING_FOR_CAPACITY)
        assert await eventually(lambda: connection.fetchval(f"SELECT ({COUNT}) = 0"))
    assert where(line, "g") == [(1, ["n1", "n2"])]
    assert standing.asked


async def test_s09_the_room_of_a_gang_that_is_cancelled_is_free_at_once(
    line: Wire, surroundings: Infrastructure, standing: Agents
) -> None:
    await say_fleet(line, "n1", "n2")
    async with placement(surroundings):
        await lose_n2(line)
        await line.say(filler())
        await refused(line, a_job("f"), Code.HELD_FOR_RECOVERY)
        await line.say(cancelled("g", attempt=2))
        await eventually(lambda: where(line, "f") == [(1, ["n1"])])
    assert standing.asked
