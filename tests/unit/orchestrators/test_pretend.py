"""How a pretended cluster fails and lies: what a real one has done to somebody, on command."""

import pytest

from libs.clock import ManualClock
from libs.orchestrators.local import LocalRuns
from libs.orchestrators.pretend import KEPT, PretendCluster
from libs.orchestrators.pretend_node import PretendNode
from libs.orchestrators.script import Script, script_of
from schemas.calls import FoundState, Holders, HoldersAnswer, LaunchOrder, Stop
from schemas.ids import RunName, cluster_id
from schemas.reasons import Code, Layer, reason
from schemas.runtime import ObservationNoticed, ObservedDevice, RunEvent
from schemas.workload import RankExit
from tests.support.backends import some_nodes
from tests.support.builders_agent import an_order
from tests.support.ledgers import Book, a_seal

STARTED, ENDED = RunEvent.STARTED, RunEvent.ENDED


class Stage:
    """A pretended cluster of two nodes, its driver, its clock and its ledger."""

    def __init__(self) -> None:
        self.clock, self.book = ManualClock(), Book()
        self.notices: list[ObservationNoticed] = []
        self.script: Script | None = None
        self.cluster = PretendCluster(
            cluster_id("demo"),
            some_nodes("demo"),
            self.clock,
            claim=self.book.claim,
            notice=self.notices.append,
            script=lambda order: self.script or script_of(order),
        )
        self.runs = LocalRuns(self.cluster.ask, timeout_seconds=1)
        self.node: PretendNode = self.cluster.nodes[an_order().node]

    async def pass_time(self, seconds: float) -> None:
        """Let so many seconds go by, in tenths."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)
            await self.cluster.tick()

    async def found(self, order: LaunchOrder) -> list[tuple[RunName, FoundState]] | None:
        """What the node says of a run; None: no answer, or one that says that it cannot tell."""
        answer = (await self.runs.find({order.node: [order.run]}))[order.node]
        return [(run.run, run.state) for run in answer.runs] if answer and answer.ready else None


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_nothing_moves_before_its_time(stage: Stage) -> None:
    order = an_order("sleep", "5")
    await stage.runs.launch([order])
    assert await stage.found(order) == [(order.run, FoundState.WAITING)]
    await stage.pass_time(0.1)
    assert await stage.found(order) == [(order.run, FoundState.RUNNING)]
    await stage.pass_time(4.9)
    assert [fact.event for fact in stage.notices] == [STARTED]
    await stage.pass_time(0.2)
    assert [fact.event for fact in stage.notices] == [STARTED, ENDED]
    assert stage.cluster.next_due() is None


async def test_a_launch_whose_answer_is_lost_is_found_and_not_started_twice(stage: Stage) -> None:
    order = an_order("sleep", "5")
    stage.node.deaf = True
    assert await stage.runs.launch([order]) == [None]
    stage.node.deaf = False
    assert await stage.found(order) == [(order.run, FoundState.WAITING)]
    await stage.runs.launch([order])
    await stage.pass_time(6)
    assert (len(stage.book.claims), [fact.event for fact in stage.notices]) == (1, [STARTED, ENDED])


async def test_a_silent_node_answers_nothing_while_its_runs_go_on(stage: Stage) -> None:
    order = an_order("sleep", "5")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    stage.node.silent = True
    await stage.pass_time(10)
    assert (await stage.found(order), [fact.event for fact in stage.notices]) == (None, [STARTED])
    stage.node.silent = False
    assert await stage.found(order) == [(order.run, FoundState.ENDED)]


async def test_a_node_that_is_not_ready_cannot_tell_and_a_forgetful_one_lies(stage: Stage) -> None:
    order = an_order("sleep", "60")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    stage.node.ready = False
    assert await stage.found(order) is None
    stage.node.ready, stage.node.forgetful = True, True
    assert await stage.found(order) == []
    stage.node.forgetful = False
    assert await stage.found(order) == [(order.run, FoundState.RUNNING)]


async def test_a_mute_node_says_nothing_by_itself(stage: Stage) -> None:
    order = an_order("true")
    stage.node.mute = True
    await stage.runs.launch([order])
    await stage.pass_time(1)
    assert (await stage.found(order), stage.notices) == ([(order.run, FoundState.ENDED)], [])


async def test_r12_a_node_tells_what_runs_on_it_once_no_start_waits_for_leave(stage: Stage) -> None:
    order = an_order("sleep", "5")
    told: list[HoldersAnswer] = []
    await stage.runs.launch([order])
    for seconds in (0.0, 0.5, 5.0):
        await stage.pass_time(seconds)
        body = await stage.cluster.ask(f"call.node.{order.node}.holders", Holders(node=order.node), 1)
        told.append(HoldersAnswer.model_validate_json(body))
    assert [answer.ready for answer in told] == [False, True, True]
    assert [[run.order for run in answer.runs] for answer in told] == [[order], [order], []]


async def test_a_node_refuses_on_command(stage: Stage) -> None:
    why = reason(Layer.NODE, Code.LAUNCH_REFUSED, "no room for the image")
    stage.node.refusal = why
    (reply,) = await stage.runs.launch([an_order("true")])
    assert reply
    assert (reply.accepted, reply.reason) == (False, why)


async def test_a_blind_node_claims_and_seals_nothing(stage: Stage) -> None:
    order = an_order("sleep", "60")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    stage.node.blindness = reason(Layer.NODE, Code.NODE_BLIND)
    (reply,) = await stage.runs.launch([an_order("true", job="job_b", epoch=2)])
    assert reply
    assert not reply.accepted
    answer = stage.cluster.answer(order.node, "seal", a_seal(order, stop=True))
    assert answer.model_dump()["reason"]["code"] is Code.NODE_BLIND
    assert await stage.found(order) == [(order.run, FoundState.RUNNING)]


async def test_what_somebody_kills_on_its_node_ends_by_a_signal_and_not_as_stopped(stage: Stage) -> None:
    order = an_order("sleep", "60")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    stage.cluster.kill(stage.node.id)
    started, ended = stage.notices
    assert (started.event, ended.event) == (STARTED, ENDED)
    assert ended.exit
    assert (ended.exit.ranks, ended.exit.stopped) == ((RankExit(rank=0, exit_code=None, signal=9),), False)


async def test_what_somebody_cancels_on_its_node_says_who_and_before_the_start_starts_nothing(stage: Stage) -> None:
    order = an_order("sleep", "60")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    stage.cluster.cancel(stage.node.id, "root")
    await stage.pass_time(1)
    ended = stage.notices[-1].exit
    assert ended
    assert (ended.cancelled_by, ended.stopped) == ("root", True)
    stage.script = Script(start_seconds=10)
    late = an_order("true", job="job_late", epoch=2)
    await stage.runs.launch([late])
    stage.cluster.cancel(stage.node.id, "root")
    await stage.pass_time(20)
    record = stage.notices[-1].exit
    assert record
    assert (record.cancelled_by, record.refused) == (
        None,
        reason(Layer.NODE, Code.BACKEND_CANCELLED, "cancelled by root before it was started"),
    )
    assert len(stage.book.claims) == 1


async def test_a_reboot_takes_the_runs_along_without_a_word(stage: Stage) -> None:
    order = an_order("sleep", "60")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    before = stage.node.boot
    stage.cluster.reboot(stage.node.id)
    await stage.pass_time(70)
    assert (await stage.found(order), [fact.event for fact in stage.notices]) == ([], [STARTED])
    assert stage.node.boot != before


async def test_a_run_that_does_not_hear_a_stop_is_killed_after_the_grace(stage: Stage) -> None:
    stage.script = Script(seconds=60, deaf=True)
    order = an_order("train")
    await stage.runs.launch([order])
    await stage.pass_time(1)
    await stage.runs.stop([(order.node, Stop(run=order.run, grant=order.grant, epoch=1, grace_seconds=5))])
    await stage.pass_time(4.5)
    assert [fact.event for fact in stage.notices] == [STARTED]
    await stage.pass_time(1)
    record = stage.notices[-1].exit
    assert record
    assert (record.stopped, record.ranks) == (True, (RankExit(rank=0, exit_code=None, signal=9),))


async def test_a_stop_before_the_start_leaves_nothing_to_start(stage: Stage) -> None:
    stage.script = Script(start_seconds=10)
    order = an_order("true")
    await stage.runs.launch([order])
    await stage.runs.stop([(order.node, Stop(run=order.run, grant=order.grant, epoch=1, grace_seconds=5))])
    await stage.pass_time(20)
    record = stage.notices[-1].exit
    assert record
    assert record.refused
    assert (record.refused.code, stage.book.claims) == (Code.STOPPED, [])


async def test_who_never_hears_from_the_ledger_gives_up_at_the_start_deadline(stage: Stage) -> None:
    stage.book.silent = True
    order = an_order("true").model_copy(update={"start_deadline": stage.clock.now()})
    await stage.runs.launch([order])
    await stage.pass_time(2)
    record = stage.notices[-1].exit
    assert record
    assert record.refused
    assert record.refused.code is Code.AGENT_UNREACHABLE


@pytest.mark.parametrize(
    ("command", "env", "script"),
    [
        (("sleep", "2.5"), {}, Script(seconds=2.5, exit_codes=(0,))),
        (("sleep", "infinity"), {}, Script(seconds=float("inf"), exit_codes=(0,))),
        (("sleep", "nan"), {}, Script(exit_codes=(0,))),
        (("false",), {}, Script(exit_codes=(1,))),
        (("exit", "3"), {}, Script(exit_codes=(3,))),
        (("python", "train.py"), {}, Script(exit_codes=(0,))),
        (("x",), {"PRETEND_SECONDS": "9", "PRETEND_EXIT_CODE": "4"}, Script(seconds=9.0, exit_codes=(4,))),
        (("x",), {"PRETEND_EXIT_CODE": "infinity"}, Script(exit_codes=(255,))),
    ],
)
def test_a_command_says_what_a_pretended_run_does(
    command: tuple[str, ...], env: dict[str, str], script: Script
) -> None:
    assert script_of(an_order(*command, env=env)) == script


async def test_a_thousand_nodes_run_a_thousand_runs(stage: Stage) -> None:
    orders = [an_order("sleep", "5", job=f"job_{n}", node=f"n{n}") for n in range(1_000)]
    nodes = [PretendNode(order.node, "", "boot-1", _first_device(order)) for order in orders]
    stage.cluster = PretendCluster(
        cluster_id("demo"), nodes, stage.clock, claim=stage.book.claim, notice=stage.notices.append
    )
    replies = await LocalRuns(stage.cluster.ask, timeout_seconds=1).launch(orders)
    await stage.pass_time(6)
    assert all(reply and reply.accepted for reply in replies)
    assert [fact.event for fact in stage.notices] == [STARTED] * 1_000 + [ENDED] * 1_000


async def test_a_node_forgets_what_ended_long_ago(stage: Stage) -> None:
    for number in range(KEPT + 10):
        await stage.runs.launch([an_order("true", job=f"job_{number}", epoch=number + 1)])
        await stage.pass_time(0.2)
    assert len(stage.node.runs) == KEPT


def _first_device(order: LaunchOrder) -> tuple[ObservedDevice, ...]:
    device = order.replicas[0].devices[0].device
    return (ObservedDevice(device=device, index=0, uuid=device, model="Virtual GPU"),)
