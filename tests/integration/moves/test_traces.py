"""The traces D3 to D7 of the models, step by step, against the real services: each ends right here."""

from schemas.fleet import MoveState
from schemas.moves import MarkOrder
from schemas.reasons import Code
from schemas.workload import GrantConfirmed, GrantIssued
from tests.support.eventually import eventually
from tests.support.moving import DEMO, N1, OTHER, Moving
from tests.support.placements import admitted, cancelled, claim, hold, refusal

S = MoveState


async def test_d3_a_grant_comes_between_the_wish_and_the_hold_and_nothing_moves_under_it(stage: Moving) -> None:
    await stage.stop("inventory")  # the device is clear and without a grant, and nobody holds it yet
    await stage.line.say(admitted("train"))
    (issued,) = await stage.line.wait(GrantIssued)  # its launch is on its way
    await stage.start("inventory")
    asked = await stage.move()
    assert asked.move
    await stage.at(asked.move, S.REQUESTED, Code.STILL_GRANTED)
    assert (stage.owners(), stage.node.marks) == ([], {})
    assert (await claim(stage.line, issued)).granted  # it starts, under the owner that it was granted by
    await stage.line.wait(GrantConfirmed)
    await stage.line.say(cancelled("train"))
    await stage.until(lambda info: info.state is S.COMPLETED, asked.move)
    assert not (await claim(stage.line, issued, instance="late")).granted


async def test_d3_a_hold_comes_first_and_no_grant_comes_after_it(stage: Moving) -> None:
    asked = await stage.stuck(S.HELD)
    await stage.line.say(admitted("train"))
    await refusal(stage.line, Code.WAITING_FOR_CAPACITY)
    assert (await stage.lines(), stage.line.facts(GrantIssued)) == ({"hold": 2}, [])
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, asked)
    (issued,) = await stage.line.wait(GrantIssued)
    assert issued.cluster == OTHER


async def test_d3c_a_native_job_that_slips_in_between_the_look_and_the_mark_is_seen(stage: Moving) -> None:
    asked = await stage.stuck(S.HELD)  # the device is clear now, whoever looks
    device = stage.node.devices[0].device
    stage.node.strangers[device] = "a native job of demo"  # it is not marked yet, and starts
    stage.node.mark_refusal = None  # now it acknowledges
    busy = await stage.at(asked, S.MARKED, Code.STILL_RUNNING)
    assert busy.waits
    assert busy.waits.message == f"a native job of demo holds {device}"
    assert stage.owners() == []
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, asked)


async def test_d4_a_mark_that_is_asked_for_and_not_acknowledged_moves_nothing(stage: Moving) -> None:
    stage.node.deaf = True  # it hears the order; that it keeps off does not come back
    answer = await stage.move()
    assert answer.move
    await stage.at(answer.move, S.HELD, Code.AGENT_UNREACHABLE)
    stage.node.strangers[stage.node.devices[0].device] = "a native job of demo"
    assert (stage.owners(), await stage.lines()) == ([], {"hold": 2})
    stage.node.deaf = False
    await stage.at(answer.move, S.MARKED, Code.STILL_RUNNING)
    assert stage.owners() == []
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, answer.move)


async def test_d5_a_native_job_that_was_there_before_is_looked_for_and_waited_for(stage: Moving) -> None:
    stage.node.strangers[stage.node.devices[1].device] = "a native job of demo"
    answer = await stage.move()
    assert answer.move
    await stage.at(answer.move, S.MARKED, Code.STILL_RUNNING)
    assert stage.owners() == []
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, answer.move)
    assert stage.owners() == [(OTHER, 2)]


async def test_d7_moved_there_and_back_no_hold_stays_whatever_comes_late(stage: Moving) -> None:
    await stage.moved()
    await stage.moved(DEMO)
    assert stage.owners() == [(OTHER, 2), (DEMO, 3)]
    await eventually(stage.no_line)
    late = [await hold(stage.line, "n1"), await hold(stage.line, "n1", move=2, owner_epoch=2, source=OTHER)]
    assert [(each.held, each.over) for each in late] == [(False, True)] * 2
    old = MarkOrder(node=N1, cluster=DEMO, off=True, number=2, owner="ada", session="late")
    await stage.line.connection.request(f"call.node.{N1}.mark", old.model_dump_json().encode(), timeout=30)
    assert not stage.node.marks[DEMO].off
    await stage.line.say(admitted("train"))
    (issued,) = await stage.line.wait(GrantIssued)
    assert issued.cluster == DEMO
    assert (await claim(stage.line, issued)).granted


async def test_d7_with_the_ledger_away_a_node_is_not_moved_back_before_it_has_heard(stage: Moving) -> None:
    asked = await stage.stuck(S.MARKED)
    await stage.stop("placement")
    await stage.free()
    await stage.until(lambda info: info.state is S.COMPLETED, asked)
    back = await stage.move(DEMO)
    assert back.move
    await stage.until(lambda info: info.waits is not None, back.move)
    assert stage.owners() == [(OTHER, 2)]
    await stage.start("placement")
    await stage.until(lambda info: info.state is S.COMPLETED, back.move)
    await eventually(stage.no_line)
