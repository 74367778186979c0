"""What a gang had that lost a node is held for it: against whom, for how long, and what is said of that."""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Envelope
from schemas.calls import Claim, SealAnswer
from schemas.fleet import Mark, MarkEffect
from schemas.ids import ClusterId, DrainId, JobId, NodeId
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import JobEvicted
from services.placement.core.comeback import Comeback, Room, comes_back, given_up
from services.placement.core.decide import Decision, Pending, decide
from services.placement.core.grant import revoke
from services.placement.settings import Settings
from tests.support.builders import ACME, NOON, a_demand, an_envelope, at
from tests.support.builders_placement import H100, START, a_fleet, a_gang, a_grant, a_node
from tests.support.ledger_twins import MemoryTwin
from tests.support.placements import CLUSTER, a_cluster, a_job, a_node_of, a_report, admitted, cancelled

G, A = JobId("job_g"), ClusterId("cluster_a")
UNTIL = START + timedelta(seconds=600)
DRAIN = Mark(drain=DrainId("drain_1"), effect=MarkEffect.DRAIN, owner="ops", reason="fans", session="s1", since=at(0))


def held(*rooms: tuple[str, int], job: str = G, priority: int = 0, after: int = 0, cpu_milli: int = 0) -> Comeback:
    """What is held on nodes for a job that was queued ``after`` seconds past the start."""
    kept = tuple(Room(NodeId(node), devices, cpu_milli=cpu_milli) for node, devices in rooms)
    return Comeback(JobId(job), job, priority, START + timedelta(seconds=after), A, H100, UNTIL, kept)


def the_gang() -> Pending:
    """The next attempt of the job for which room is held."""
    return replace(a_gang(G, replicas=2), attempt=2)


def placed(decision: Decision) -> dict[str, dict[str, int]]:
    return {
        each.pending.job: {part.node.name: sum(len(slot.devices) for slot in part.replicas) for part in each.parts}
        for each in decision.placements
    }


def why(decision: Decision, job: str) -> Reason:
    return next(each.reason for each in decision.refusals if each.pending.job == job)


def test_who_is_behind_waits_and_is_told_for_whom_how_many_are_held_and_until_when() -> None:
    view = a_fleet(a_node("n1"), a_node("n2", free=0))
    decision = decide(view, [the_gang(), a_gang("job_f", after=60)], [held(("n1", 8), ("n2", 8))])
    assert decision.placements == ()
    told = why(decision, "job_f")
    assert told.code is Code.HELD_FOR_RECOVERY
    assert told.message == "needs 8, free 0, 8 held for job job_g until 2026-03-01T00:10:00+00:00"
    assert (told.numbers["needs"], told.numbers["free"], told.numbers["held_for_recovery"]) == (8, 0, 8)
    mine = why(decision, G)
    assert (mine.code, mine.numbers["needs"], mine.numbers["free"]) == (Code.WAITING_FOR_CAPACITY, 16, 8)


def test_it_is_held_also_while_the_job_is_not_even_admitted_again() -> None:
    decision = decide(a_fleet(a_node("n1")), [a_gang("job_f", after=60)], [held(("n1", 8))])
    assert why(decision, "job_f").code is Code.HELD_FOR_RECOVERY


def test_who_is_ahead_in_the_order_may_take_it_and_is_told_nothing_of_it() -> None:
    hold = held(("n1", 8), after=30)
    for ahead in (a_gang("job_f", after=60, priority=100), a_gang("job_f", after=10)):
        assert placed(decide(a_fleet(a_node("n1")), [ahead], [hold])) == {"job_f": {"n1": 8}}
        big = replace(ahead, demand=a_gang(replicas=2).demand)
        decision = decide(a_fleet(a_node("n1"), a_node("n2", free=0)), [big, a_gang("job_e", after=90)], [hold])
        assert (why(decision, "job_f").code, why(decision, "job_f").numbers["free"]) == (Code.WAITING_FOR_CAPACITY, 8)
        assert why(decision, "job_e").code is Code.HELD_FOR_RECOVERY


def test_the_job_itself_takes_it_and_nothing_is_held_for_it_any_more() -> None:
    view = a_fleet(a_node("n1"), a_node("n2"), a_node("n3"))
    decision = decide(view, [the_gang(), a_gang("job_f", after=60)], [held(("n3", 8))])
    assert placed(decision) == {G: {"n1": 8, "n2": 8}, "job_f": {"n3": 8}}


def test_what_is_left_beside_it_is_given_out_and_no_device_twice() -> None:
    view = a_fleet(a_node("n1"), a_node("n2", free=0))
    decision = decide(view, [a_gang(f"job_{n}", each=2, after=60 + n) for n in range(3)], [held(("n1", 4))])
    assert placed(decision) == {"job_0": {"n1": 2}, "job_1": {"n1": 2}}
    assert len({device.device for each in decision.placements for device in each.devices}) == 4
    assert why(decision, "job_2").numbers["held_for_recovery"] == 4


def test_cpus_are_held_with_the_devices() -> None:
    view = a_fleet(a_node("n1", cpu_milli=8_000))
    hold = held(("n1", 4), cpu_milli=6_000)
    assert placed(decide(view, [a_gang("job_f", each=1, after=60, cpu_milli=2_000)], [hold])) == {"job_f": {"n1": 1}}
    assert decide(view, [a_gang("job_f", each=1, after=60, cpu_milli=3_000)], [hold]).placements == ()


def test_what_would_not_fit_even_so_waits_for_capacity_and_what_never_fits_never_does() -> None:
    view = a_fleet(a_node("n1"), a_node("n2", free=0))
    decision = decide(
        view, [a_gang("job_f", replicas=2, after=60), a_gang("job_e", each=9, after=60)], [held(("n1", 4))]
    )
    assert [why(decision, job).code for job in ("job_f", "job_e")] == [Code.WAITING_FOR_CAPACITY, Code.CAN_NEVER_FIT]


def test_a_node_or_class_that_is_no_more_holds_nothing() -> None:
    strange = replace(held(("n1", 8)), gpu_class="a100")
    assert placed(decide(a_fleet(a_node("n1")), [a_gang("job_f", after=60)], [strange, held(("n9", 8))])) == {
        "job_f": {"n1": 8}
    }


def test_a_node_that_has_another_owner_by_now_holds_nothing() -> None:
    view = a_fleet(a_node("n1", cluster=ClusterId("cluster_b")))
    assert placed(decide(view, [a_gang("job_f", after=60)], [held(("n1", 8))])) == {"job_f": {"n1": 8}}


def test_of_many_jobs_for_which_something_is_held_three_are_named() -> None:
    view = a_fleet(a_node("n1"))
    holds = [held(("n1", 1), job=f"job_{n}") for n in range(5)]
    told = why(decide(view, [a_gang("job_f", after=60)], holds), "job_f")
    assert told.message.startswith("needs 8, free 3, 1 held for job job_0 until ")
    assert told.message.endswith(" and 2 more jobs")
    assert told.numbers["held_for_recovery"] == 5


@settings(max_examples=200, deadline=None)
@given(
    free=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    rooms=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(0, 9)), max_size=3),
    gangs=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 9)), max_size=6),
)
def test_whatever_comes_nobody_behind_a_hold_is_given_any_of_it(
    free: list[int], rooms: list[tuple[int, int, int]], gangs: list[tuple[int, int, int]]
) -> None:
    view = a_fleet(*(a_node(f"n{place}", free=count) for place, count in enumerate(free)))
    holds = [held((f"n{at_}", count), job=f"hold_{n}", after=after) for n, (at_, count, after) in enumerate(rooms)]
    waiting = [a_gang(f"job_{n}", replicas=r, each=d, after=after) for n, (r, d, after) in enumerate(gangs)]
    decision = decide(view, waiting, holds)
    assert len(decision.placements) + len(decision.refusals) == len(waiting)
    for hold in holds:
        (room,) = hold.rooms
        offered = dict(zip([f"n{place}" for place in range(len(free))], free, strict=True)).get(room.node, 0)
        taken = {True: 0, False: 0}
        for each in decision.placements:
            ahead = (each.pending.queued_at, each.pending.job) < (hold.queued_at, hold.job)
            taken[ahead] += placed(Decision((each,), ())).get(each.pending.job, {}).get(room.node, 0)
        assert taken[False] <= max(0, offered - taken[True] - room.devices)


def test_only_the_end_of_a_grant_by_the_loss_of_a_node_lets_it_come_back() -> None:
    grant = a_grant()
    for code in Code:
        after = revoke(grant, reason(Layer.PLACEMENT, code), now=START).grant
        assert comes_back(grant, after) is (code in {Code.DRAINED, Code.NODE_LOST, Code.BOOT_ENDED})
        assert not comes_back(after, after)
    assert not comes_back(grant, grant)


def evicted(name: str, code: Code = Code.DRAINED, *, attempt: int = 1, version: int = 5) -> Envelope:
    why = reason(Layer.PLACEMENT, code)
    fact = JobEvicted(job=a_job(name), attempt=attempt, tenant=ACME, reason=why)
    return an_envelope(fact, key=fact.job, version=version)


def test_a_job_that_ends_or_whose_attempt_ends_otherwise_does_not_come_back() -> None:
    facts = [evicted("a").data, evicted("b", Code.PREEMPTED).data, cancelled("c").data, admitted("d").data]
    assert given_up(facts) == {a_job("b"), a_job("c")}


class Scene:
    """Placement's real core over a ledger in memory: two nodes, and gang G on both, at a time in seconds."""

    def __init__(self) -> None:
        self.now, self.reports = 0.0, 0
        self.twin = MemoryTwin(Settings(), lambda: at(self.now))

    async def begin(self, seconds: int | None = 600) -> None:
        """Let G run, and drain n2 at T+0."""
        await self.twin.hear("fleet", [a_cluster(), a_node_of("n1"), a_node_of("n2")])
        demand = a_demand(8, replicas=2, recovery_seconds=seconds)
        await self.twin.hear("workload", [admitted("g", demand=demand)])
        await self.cycle()
        (grant,) = self.twin.ledger.grants.values()
        fields = {"grant": grant.id, "epoch": grant.epoch, "cluster": CLUSTER, "instance": "i-1", "nonce": "n"}
        for part in grant.parts:
            claim = {**fields, "node": part.node, "boot": "boot-1", "devices": part.device_ids}
            await self.twin.claim([Claim.model_validate(claim)])
        await self.node(2, 2, DRAIN)
        await self.twin.watch(1_000.0)
        again = admitted("g", attempt=2, version=7, demand=demand)
        await self.twin.hear("workload", [evicted("g"), again])
        await self.seal()

    async def node(self, number: int, version: int, *marks: Mark) -> None:
        """Say a node anew."""
        await self.twin.hear("fleet", [a_node_of(f"n{number}", version=version, marks=marks)])

    async def seal(self) -> None:
        """Prove what was revoked to be over."""
        for seal in await self.twin.seals(100):
            fields = seal.model_dump(exclude={"run", "job", "attempt", "stop", "grace_seconds"})
            answer = SealAnswer.model_validate({**fields, "sealed": True, "boot": "boot-1", "observed_at": NOON})
            await self.twin.seal([answer])

    async def at(self, seconds: float) -> dict[str, Code]:
        """Let the clock be there, nodes be heard, and a cycle pass; return why each that waits does."""
        self.now, self.reports = seconds, self.reports + 1
        await self.twin.hear("runtime", [a_report(name, sequence=self.reports) for name in ("n1", "n2")])
        await self.twin.watch(1_000.0)
        return await self.cycle()

    async def cycle(self) -> dict[str, Code]:
        decision = await self.twin.decide()
        if decision is None:
            return {}
        await self.twin.grant(decision)
        return {each.pending.name: each.reason.code for each in decision.refusals}

    def running(self) -> dict[tuple[str, int], list[str]]:
        """The nodes of each attempt that holds devices."""
        live = [self.twin.ledger.grants[grant] for grant in self.twin.ledger.live]
        return {(each.name, each.attempt): sorted(part.node_name for part in each.parts) for each in live}


async def test_s09_a_repaired_node_goes_back_to_the_gang_that_lost_it() -> None:
    scene = Scene()
    await scene.begin()
    assert scene.running() == {}
    scene.now = 60
    await scene.twin.hear("workload", [admitted("f", 8, after=60)])
    for seconds in (60, 180, 299):
        assert await scene.at(seconds) == {"g": Code.WAITING_FOR_CAPACITY, "f": Code.HELD_FOR_RECOVERY}
    await scene.node(2, 3)
    assert await scene.at(300) == {"f": Code.WAITING_FOR_CAPACITY}
    assert scene.running() == {("g", 2): ["n1", "n2"]}
    assert scene.twin.ledger.comebacks.rows == {}


async def test_s09_after_the_deadline_the_room_is_given_up_and_the_gang_waits_whole() -> None:
    scene = Scene()
    await scene.begin()
    await scene.twin.hear("workload", [admitted("f", 8, after=60)])
    assert await scene.at(599) == {"g": Code.WAITING_FOR_CAPACITY, "f": Code.HELD_FOR_RECOVERY}
    assert await scene.at(600) == {"g": Code.WAITING_FOR_CAPACITY}
    assert scene.running() == {("f", 1): ["n1"]}
    await scene.node(2, 3)
    assert await scene.at(900) == {"g": Code.WAITING_FOR_CAPACITY}
    assert scene.running() == {("f", 1): ["n1"]}


async def test_s09_without_a_recovery_timeout_nothing_is_held() -> None:
    scene = Scene()
    await scene.begin(None)
    await scene.twin.hear("workload", [admitted("f", 8, after=60)])
    assert await scene.at(60) == {"g": Code.WAITING_FOR_CAPACITY}
    assert scene.running() == {("f", 1): ["n1"]}


async def test_s09_nothing_is_held_any_more_for_a_job_that_was_cancelled_or_ended_otherwise() -> None:
    for fact in (cancelled("g", attempt=2), evicted("g", Code.PREEMPTED, attempt=2, version=8)):
        scene = Scene()
        await scene.begin()
        await scene.twin.hear("workload", [admitted("f", 8, after=60)])
        assert (await scene.at(60))["f"] is Code.HELD_FOR_RECOVERY
        await scene.twin.hear("workload", [fact])
        assert await scene.at(61) == {}
        assert scene.running() == {("f", 1): ["n1"]}


async def test_a_clock_that_was_put_back_lengthens_nothing() -> None:
    scene = Scene()
    await scene.begin()
    moments: list[datetime] = []
    for seconds in (100, -7_200):
        await scene.at(seconds)
        moments += [row.until for row in scene.twin.ledger.comebacks.rows.values()]
    assert moments == [at(600), at(-6_600)]
