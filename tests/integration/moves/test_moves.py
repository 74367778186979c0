"""Rules M1 to M3: a node is held, its old owner marked, its devices looked at, and only then is it another's."""

import pytest

from schemas.fleet import MarkEffect, MoveCompleted, MoveState, MoveWaited, NodeOwnerChanged
from schemas.ids import cluster_id, node_id
from schemas.moves import MoveAnswer, MoveStart
from schemas.reasons import Code, Layer, reason
from schemas.workload import GrantIssued
from tests.support.eventually import eventually
from tests.support.moving import DEMO, N1, OTHER, REFUSED, Moving, moving
from tests.support.placements import admitted, ask, cancelled, claim, hold
from tests.support.servers import Servers

S = MoveState
FORTH = [S.REQUESTED, S.HELD, S.MARKED, S.MOVED, S.COMPLETED]


async def test_m3_a_node_moves_step_by_step_and_the_new_owner_gives_its_devices_out(stage: Moving) -> None:
    asked = await stage.move()
    assert asked.move
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)
    assert stage.states(asked.move) == FORTH
    assert stage.owners() == [(OTHER, 2)]
    await eventually(lambda: stage.newest().marks == ())
    await stage.line.say(admitted("train"))
    (issued,) = await stage.line.wait(GrantIssued)
    assert (issued.cluster, issued.parts[0].node) == (OTHER, N1)
    assert (await claim(stage.line, issued)).granted


async def test_a_node_that_moves_shows_its_mark_until_the_new_owner_has_it(stage: Moving) -> None:
    stage.node.mark_refusal = REFUSED
    asked = await stage.move()
    assert asked.move
    await stage.at(asked.move, S.HELD, Code.MARK_REFUSED)
    (mark,) = stage.newest().marks
    assert (mark.effect, mark.owner, mark.reason) == (MarkEffect.NO_SCHEDULE, "ada", "moves to other: more batch work")


async def test_m3_the_new_owner_s_mark_is_lifted_after_the_owner_has_changed_and_not_before(stage: Moving) -> None:
    await stage.moved()
    assert {cluster: order.off for cluster, order in stage.node.marks.items()} == {DEMO: True, OTHER: False}
    numbers = [stage.node.marks[DEMO].number, stage.node.marks[OTHER].number]
    back = await stage.moved(DEMO)
    assert stage.owners() == [(OTHER, 2), (DEMO, 3)]
    assert {cluster: order.off for cluster, order in stage.node.marks.items()} == {DEMO: False, OTHER: True}
    assert sorted([*numbers, stage.node.marks[OTHER].number, stage.node.marks[DEMO].number]) == [2, 3, 4, 5]
    kinds = [type(fact) for e in stage.line.heard for fact in [e.data] if e.key in (N1, back.move)]
    assert kinds.index(NodeOwnerChanged) < kinds.index(MoveCompleted)


async def test_m2_a_mark_that_is_refused_or_not_acknowledged_moves_nothing(stage: Moving) -> None:
    stage.node.mark_refusal = REFUSED
    asked = await stage.move()
    assert asked.move
    await stage.at(asked.move, S.HELD, Code.MARK_REFUSED)
    stage.node.mark_refusal, stage.node.deaf = None, True
    await stage.at(asked.move, S.HELD, Code.AGENT_UNREACHABLE)
    assert stage.node.marks[DEMO].off
    assert stage.owners() == []
    stage.node.deaf = False
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)


async def test_m2_a_busy_or_unknown_node_is_told_with_its_evidence_and_escalated_and_never_moved(
    servers: Servers,
) -> None:
    async with moving(servers, move_escalate_seconds=1) as stage:
        device = stage.node.devices[0].device
        stage.node.strangers[device] = "process 4711 (python)"
        asked = await stage.move()
        assert asked.move
        busy = await stage.at(asked.move, S.MARKED, Code.STILL_RUNNING)
        assert busy.waits
        assert busy.waits.message == f"process 4711 (python) holds {device}"
        await stage.until(lambda info: info.escalated, asked.move)
        stage.node.strangers.clear()
        stage.node.blindness = reason(Layer.NODE, Code.NODE_BLIND, "the folder is gone")
        await stage.at(asked.move, S.MARKED, Code.NODE_BLIND)
        assert stage.owners() == []
        stage.node.blindness = None
        await stage.until(lambda info: info.state is S.COMPLETED and not info.escalated, asked.move)


async def test_m1_a_move_waits_for_what_is_granted_and_goes_on_when_it_ends(stage: Moving) -> None:
    await stage.line.say(admitted("train"))
    (issued,) = await stage.line.wait(GrantIssued)
    assert (await claim(stage.line, issued)).granted
    asked = await stage.move()
    assert asked.move
    waiting = await stage.at(asked.move, S.REQUESTED, Code.STILL_GRANTED)
    assert waiting.waits
    assert (issued.grant in waiting.waits.message, waiting.escalated) == (True, False)
    await stage.line.say(admitted("next"), cancelled("train"))
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)
    _, later = await stage.line.wait(GrantIssued, 2)
    assert later.cluster == OTHER


async def test_m1_a_move_that_stops_what_runs_does_not_wait_for_its_end(stage: Moving) -> None:
    await stage.line.say(admitted("train"))
    (issued,) = await stage.line.wait(GrantIssued)
    assert (await claim(stage.line, issued)).granted
    asked = await stage.move(stop=True)
    assert asked.move
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)


async def test_asked_again_it_is_the_same_move_and_to_elsewhere_it_is_refused(stage: Moving) -> None:
    stage.node.mark_refusal = REFUSED
    first, again = await stage.move(), await stage.move()
    assert first.move
    assert again.move
    assert (again.already, again.move.move) == (True, first.move.move)
    back = await stage.move(DEMO)
    assert back.reason
    assert (back.move, back.reason.code) == (None, Code.MOVE_UNDER_WAY)
    assert "is on its way to other" in back.reason.message


@pytest.mark.parametrize(
    ("node", "target", "code"),
    [
        (node_id(DEMO, "n9"), OTHER, Code.NODE_UNKNOWN),
        (N1, cluster_id("nowhere"), Code.DESTINATION_UNKNOWN),
        (N1, DEMO, Code.ALREADY_OWNER),
    ],
)
async def test_what_cannot_be_moved_is_refused_with_a_reason(stage: Moving, node: str, target: str, code: Code) -> None:
    fields = {"node": node, "target": target, "owner": "ada", "reason": "r", "session": "s"}
    answer = await ask(stage.line, "call.move.start", MoveStart.model_validate(fields), MoveAnswer)
    assert answer.reason
    assert (answer.move, answer.reason.code) == (None, code)


@pytest.mark.parametrize("state", [S.REQUESTED, S.HELD, S.MARKED])
async def test_a_move_that_is_given_up_gives_everything_back_wherever_it_was(stage: Moving, state: MoveState) -> None:
    asked = await stage.stuck(state)
    assert (await stage.cancel(asked)).move
    await stage.free()
    over = await stage.until(lambda info: info.state is S.CANCELLED, asked)
    assert (over.cancelled_by, over.cancelled_for) == ("bob", "not now")
    again = await stage.cancel(asked)
    assert (again.reason, again.move and again.move.state) == (None, S.CANCELLED)
    assert stage.owners() == []
    assert not any(order.off for order in stage.node.marks.values())
    await eventually(lambda: stage.newest().marks == ())
    await stage.line.say(admitted("train"))
    await eventually(lambda: [fact.cluster for fact in stage.line.facts(GrantIssued) if fact.name == "train"] == [DEMO])


@pytest.mark.parametrize("state", [S.REQUESTED, S.HELD, S.MARKED, S.MOVED])
async def test_m3_inventory_may_end_before_any_step_and_the_next_one_goes_on(stage: Moving, state: MoveState) -> None:
    asked = await stage.stuck(state)
    await stage.stop("inventory")
    await stage.free()
    await stage.start("inventory")
    await stage.until(lambda info: info.state is S.COMPLETED, asked)
    assert (stage.states(asked), stage.owners()) == (FORTH, [(OTHER, 2)])
    await eventually(stage.no_line)


async def test_m1_a_hold_that_was_taken_without_inventory_s_knowing_is_the_same_hold(stage: Moving) -> None:
    asked = await stage.stuck(S.REQUESTED)
    await stage.stop("inventory")
    await stage.free()
    await eventually(lambda: _held(stage))
    await stage.start("inventory")
    await stage.until(lambda info: info.state is S.COMPLETED, asked)
    await eventually(stage.no_line)


async def _held(stage: Moving) -> bool:
    return (await hold(stage.line, "n1")).held


async def test_m2_an_acknowledgement_that_got_lost_is_asked_for_again_by_the_next_inventory(stage: Moving) -> None:
    stage.node.deaf = True
    answer = await stage.move()
    assert answer.move
    await stage.at(answer.move, S.HELD, Code.AGENT_UNREACHABLE)
    assert stage.node.marks[DEMO].off
    await stage.stop("inventory")
    stage.node.deaf = False
    await stage.start("inventory")
    await stage.until(lambda info: info.state is S.COMPLETED, answer.move)


async def test_two_inventories_make_every_step_once(stage: Moving) -> None:
    first = stage.running.pop("inventory")
    await stage.start("inventory")
    over = await stage.moved()
    await stage.moved(DEMO)
    assert stage.states(over) == FORTH
    assert stage.owners() == [(OTHER, 2), (DEMO, 3)]
    await first.stop()


async def test_after_the_owner_has_changed_only_a_move_back_helps(stage: Moving) -> None:
    over = await stage.moved()
    late = await stage.cancel(over)
    assert late.reason
    assert late.reason.code is Code.MOVE_OVER
    unknown = await stage.cancel(over.model_copy(update={"move": "move_unknown"}))
    assert unknown.reason
    assert unknown.reason.code is Code.MOVE_UNKNOWN


async def test_what_waits_is_said_when_it_changes_and_not_at_every_question(stage: Moving) -> None:
    asked = await stage.stuck(S.HELD)
    await eventually(lambda: _asked(stage, 4))
    told = [fact.info.waits for fact in stage.line.facts(MoveWaited) if fact.info.state is S.HELD]
    assert told == [asked.waits]


async def _asked(stage: Moving, times: int) -> bool:
    return await stage.rows("inventory", "SELECT tries FROM moves") >= [(times,)]
