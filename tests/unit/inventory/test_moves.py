"""The core of a move: each state asks for one step, and nothing counts but what its state asked for."""

from dataclasses import replace
from itertools import pairwise

import pytest

from schemas.fleet import (
    MoveAdvanced,
    MoveCancelled,
    MoveCompleted,
    MoveRequested,
    MoveState,
    MoveWaited,
    NodeChanged,
    NodeOwnerChanged,
)
from schemas.ids import DeviceId, cluster_id
from schemas.moves import MoveCancel, MoveStart, NodeLookAnswer
from schemas.reasons import Code, Layer, Reason, reason
from services.inventory.core import Move, Policy, Standing, View, decide, elapse, evolve, said
from services.inventory.core.moves import (
    NEXT,
    advance,
    cancel,
    mark_order,
    orders_of,
    seen_clear,
    start,
    taken,
    told,
    wait,
)
from tests.support.builders import DEMO, NOON, a_node_id, at
from tests.support.builders_fleet import a_class, a_cluster, a_report

OTHER, N1 = cluster_id("other"), a_node_id("n1")
POLICY = Policy(stale_seconds=30, retire_seconds=30, escalate_seconds=300)
BUSY = reason(Layer.NODE, Code.STILL_RUNNING, "process 4711")
S = MoveState
FORTH = [S.REQUESTED, S.HELD, S.MARKED, S.MOVED, S.COMPLETED]


def a_view() -> View:
    """Demo with n1, and other without nodes, as they were said."""
    view = View()
    for version, fact in enumerate((a_class(), a_cluster("n1"), a_cluster(name="other"), a_report()), 1):
        view = evolve(view, fact, version=version, now=NOON)
    return said(view, decide(View(), view, view.nodes))


def a_move(view: View, target: str = "other") -> Move:
    asked = MoveStart(node=N1, target=cluster_id(target), owner="ada", reason="more batch work", session="order_1")
    found = start(view, asked, now=NOON)
    assert isinstance(found, Move), found
    return found


def refused(view: View, **fields: str) -> Reason:
    asked = {"node": N1, "target": OTHER, "owner": "ada", "reason": "r", "session": "s"} | fields
    found = start(view, MoveStart.model_validate(asked), now=NOON)
    assert isinstance(found, Reason), found
    return found


def walked(view: View, move: Move, until: MoveState) -> tuple[View, Move, list[type]]:
    """Go on to a state; return what was said of the node on the way, too."""
    facts: list[type] = []
    while True:
        after = taken(view, move)
        news = list(decide(view, after, [N1]))
        facts += [type(each.fact) for each in news]
        view = said(after, news)
        if move.info.state is until:
            return view, move, facts
        move = advance(move, now=at(1))


def test_a_move_goes_through_its_states_and_the_owner_changes_by_a_higher_epoch_before_its_mark_is_lifted() -> None:
    view, move, facts = walked(a_view(), a_move(a_view()), S.COMPLETED)
    assert facts == [NodeChanged, NodeOwnerChanged, NodeChanged]
    info = view.nodes[N1].said
    assert info
    assert (info.cluster, info.owner, info.owner_name, info.owner_epoch, info.marks) == (DEMO, OTHER, "other", 2, ())
    assert (view.moves, move.info.state) == ({}, S.COMPLETED)
    back, _, _ = walked(view, a_move(view, "demo"), S.COMPLETED)
    assert (back.nodes[N1].owned_by, back.nodes[N1].owner_epoch, back.nodes[N1].moves) == (DEMO, 3, 2)


def test_what_cannot_be_moved_has_a_reason() -> None:
    view = a_view()
    assert refused(view, node="node_x").code is Code.NODE_UNKNOWN
    assert refused(view, target="cluster_x").code is Code.DESTINATION_UNKNOWN
    assert refused(view, target=DEMO).code is Code.ALREADY_OWNER
    gone = replace(view, nodes={N1: replace(view.nodes[N1], retired=True)})
    assert refused(gone).code is Code.NODE_UNKNOWN
    under_way = taken(view, a_move(view))
    assert start(under_way, _asked(OTHER), now=at(9)) == a_move(view)
    assert refused(under_way, target=DEMO).code is Code.MOVE_UNDER_WAY


def _asked(target: str) -> MoveStart:
    return MoveStart.model_validate({"node": N1, "target": target, "owner": "bob", "reason": "r", "session": "another"})


@pytest.mark.parametrize("state", FORTH[:3])
def test_before_the_owner_has_changed_a_move_can_be_given_up(state: MoveState) -> None:
    view, move, _ = walked(a_view(), a_move(a_view()), state)
    over = cancel(move, MoveCancel(move=move.info.move, owner="bob", reason="no"), now=at(2))
    assert isinstance(over, Move)
    assert over.info.state is (S.UNMARKED if state is S.REQUESTED else S.CANCELLING)
    assert refused(taken(view, over)).code is Code.MOVE_UNDER_WAY
    end, _, _ = walked(view, over, S.CANCELLED)
    assert (end.nodes[N1].owned_by, end.nodes[N1].owner_epoch, end.moves) == (DEMO, 1, {})
    assert a_move(end).info.move != move.info.move


@pytest.mark.parametrize("state", FORTH[3:])
def test_after_the_owner_has_changed_it_cannot(state: MoveState) -> None:
    _, move, _ = walked(a_view(), a_move(a_view()), state)
    late = cancel(move, MoveCancel(move=move.info.move, owner="bob", reason="no"), now=at(2))
    assert isinstance(late, Reason)
    assert late.code is Code.MOVE_OVER


def test_orders_about_a_node_have_rising_numbers_over_moves_and_their_ends() -> None:
    view = a_view()
    numbers = []
    for target in ("other", "demo", "other"):
        move = a_move(view, target)
        marked = mark_order(walked(view, move, S.HELD)[1])
        lifted = mark_order(walked(view, move, S.MOVED)[1])
        assert (marked.off, lifted.off) == (True, False)
        assert (marked.cluster, lifted.cluster) == (move.info.source, move.info.target)
        numbers += [marked.number, lifted.number]
        view = walked(view, move, S.COMPLETED)[0]
    assert all(earlier < later for earlier, later in pairwise(numbers))


def test_what_waits_is_escalated_after_its_time_and_granted_work_never_is() -> None:
    move = a_move(a_view())
    early, late = wait(move, BUSY, POLICY, now=at(299)), wait(move, BUSY, POLICY, now=at(300))
    assert (early.info.escalated, late.info.escalated) == (False, True)
    granted = reason(Layer.PLACEMENT, Code.STILL_GRANTED)
    assert not wait(move, granted, POLICY, now=at(9_000)).info.escalated
    again = advance(late, now=at(301))
    assert (again.info.waits, again.info.escalated, again.info.since) == (None, False, at(301))


def test_each_change_of_a_move_is_said_by_its_own_fact_and_no_change_by_none() -> None:
    move = a_move(a_view())
    held = advance(move, now=at(1))
    waiting = wait(held, BUSY, POLICY, now=at(2))
    assert told(None, move) == MoveRequested(info=move.info)
    assert told(move, held) == MoveAdvanced(info=held.info)
    assert told(held, waiting) == MoveWaited(info=waiting.info)
    assert told(waiting, wait(waiting, BUSY, POLICY, now=at(3))) is None
    for before, kind in ((S.MOVED, MoveCompleted), (S.UNMARKED, MoveCancelled)):
        last = replace(move, info=move.info.model_copy(update={"state": before}))
        assert isinstance(told(last, advance(last, now=at(1))), kind)


def test_a_look_that_says_clear_and_leaves_a_device_out_is_not_clear() -> None:
    devices = [DeviceId("dev_1"), DeviceId("dev_2")]
    answer = NodeLookAnswer(node=N1, session="m", clear=True, boot="b", devices=(devices[0],), observed_at=NOON)
    why = seen_clear(answer, devices)
    assert why
    assert (why.code, why.message) == (Code.UNKNOWN, "not looked at: dev_2")
    assert seen_clear(answer, devices[:1]) is None
    assert seen_clear(answer.model_copy(update={"clear": False, "reason": BUSY}), devices[:1]) == BUSY
    silent = seen_clear(answer.model_copy(update={"clear": False}), devices[:1])
    assert silent
    assert silent.code is Code.UNKNOWN


def test_a_node_that_moves_is_not_retired_before_its_move_is_over() -> None:
    view = a_view()
    leaving = replace(view.nodes[N1], standing=Standing.LEFT_OUT, left_out_at=NOON)
    view = replace(view, nodes={N1: leaving})
    under_way = taken(view, a_move(view))
    assert elapse(view, POLICY, now=at(60)).nodes[N1].retired
    assert not elapse(under_way, POLICY, now=at(60)).nodes[N1].retired


def test_every_state_that_is_no_end_asks_for_a_step() -> None:
    assert set(MoveState) - set(NEXT) == {S.COMPLETED, S.CANCELLED}


def test_a_node_at_rest_is_told_again_what_its_last_move_asked_for_and_that_nobody_else_starts_there() -> None:
    view = a_view()
    third = cluster_id("third")
    node = replace(view.nodes[N1], moves=3, owner=OTHER, owner_epoch=2)
    orders = [(order.cluster, order.off, order.number) for order in orders_of(node, [DEMO, OTHER, third])]
    assert orders == [*((cluster, True, 6) for cluster in sorted((DEMO, third))), (OTHER, False, 7)]
    went = taken(view, replace(a_move(view), number=3)).nodes[N1]
    assert mark_order(advance(replace(a_move(view), number=went.moves + 1), now=NOON)).number > max(
        number for _, _, number in orders
    )
