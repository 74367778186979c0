"""A node moves to another destination: held, marked, looked at, and only then another's (M1 to M3).

Each step is asked for, answered and written down before the next one is asked for. So a crash between two of them asks
the same again, and a look counts only that was asked for when slots and old owner were known to be out of the way.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from schemas.fleet import (
    Mark,
    MarkEffect,
    MoveAdvanced,
    MoveCancelled,
    MoveCompleted,
    MoveInfo,
    MoveRequested,
    MoveState,
    MoveWaited,
)
from schemas.ids import ClusterId, DeviceId, DrainId, derive, move_id
from schemas.lifecycle import MOVE_ENDS, MOVE_LIFE, may
from schemas.moves import MarkOrder, MoveCancel, MoveStart, NodeLookAnswer
from schemas.reasons import Code, Layer, Reason, reason
from services.inventory.core.view import Move, Node, Policy, View

Fact = MoveRequested | MoveAdvanced | MoveWaited | MoveCompleted | MoveCancelled
S = MoveState

NEXT = {
    S.REQUESTED: S.HELD,
    S.HELD: S.MARKED,
    S.MARKED: S.MOVED,
    S.MOVED: S.COMPLETED,
    S.CANCELLING: S.UNMARKED,
    S.UNMARKED: S.CANCELLED,
}
"""What follows when what a state asks for is answered with yes."""


def start(view: View, asked: MoveStart, *, now: datetime) -> Move | Reason:
    """Return the move that is asked for, or the one that is under way to the same destination, or why there is none."""
    node, target = view.nodes.get(asked.node), view.clusters.get(asked.target)
    if node is None or node.retired:
        return _why(Code.NODE_UNKNOWN, "inventory knows no such node")
    if target is None or not target.generation:
        return _why(Code.DESTINATION_UNKNOWN, "no cluster of this name is declared")
    known = view.moves.get(node.id)
    if known is not None:
        return known if _goes_to(known, asked) else _why(Code.MOVE_UNDER_WAY, _under_way(known))
    if node.owned_by == target.id:
        return _why(Code.ALREADY_OWNER, f"{node.name} is {target.name}'s already")
    number = node.moves + 1
    source = view.clusters[node.cluster].name if node.owner is None else node.owner_name
    info = MoveInfo(
        move=move_id(node.id, number),
        node=node.id,
        node_name=node.name,
        cluster=node.cluster,
        source=node.owned_by,
        source_name=source or "",
        target=target.id,
        target_name=target.name,
        owner_epoch=node.owner_epoch,
        state=S.REQUESTED,
        owner=asked.owner,
        reason=asked.reason,
        session=asked.session,
        stop=asked.stop,
        requested_at=now,
        since=now,
    )
    return Move(info, number)


def cancel(move: Move, asked: MoveCancel, *, now: datetime) -> Move | Reason:
    """Return the move on its way back; or why it is too late: after the owner has changed only a move back helps."""
    if move.info.state in {S.CANCELLING, S.UNMARKED, S.CANCELLED}:
        return move
    if move.info.state in {S.MOVED, S.COMPLETED}:
        return _why(Code.MOVE_OVER, f"{move.info.node_name} is {move.info.target_name}'s already: move it back")
    told = {"cancelled_by": asked.owner, "cancelled_for": asked.reason}
    state = S.UNMARKED if move.info.state is S.REQUESTED else S.CANCELLING
    return _come(replace(move, info=move.info.model_copy(update=told)), state, now)


def advance(move: Move, *, now: datetime) -> Move:
    """Return the move after what its state asks for was answered with yes."""
    return _come(move, NEXT[move.info.state], now)


def taken(view: View, move: Move) -> View:
    """Return the view with the move as it is: the node is the new owner's once it has moved, by a higher epoch (M3)."""
    others = {key: each for key, each in view.moves.items() if key != move.info.node}
    view = replace(view, moves=others if move.info.state in MOVE_ENDS else {**others, move.info.node: move})
    node, info = replace(view.nodes[move.info.node], moves=move.number), move.info
    if info.state is S.MOVED:
        node = replace(node, owner=info.target, owner_name=info.target_name, owner_epoch=info.owner_epoch + 1)
    return replace(view, nodes={**view.nodes, node.id: node})


def wait(move: Move, why: Reason, policy: Policy, *, now: datetime) -> Move:
    """Return the move that does not go on. What waits for granted work to end is not escalated: a person chose that."""
    late = now - move.info.since >= timedelta(seconds=policy.escalate_seconds)
    told = {"waits": why, "escalated": late and why.code is not Code.STILL_GRANTED}
    return replace(move, info=move.info.model_copy(update=told))


def told(before: Move | None, after: Move) -> Fact | None:
    """Return what is to be said of a move; None: nothing changed that anybody would act on."""
    info = after.info
    if before is None:
        return MoveRequested(info=info)
    if before.info.state is not info.state:
        ends: dict[MoveState, type[Fact]] = {S.COMPLETED: MoveCompleted, S.CANCELLED: MoveCancelled}
        return ends.get(info.state, MoveAdvanced)(info=info)
    return MoveWaited(info=info) if before.info != info else None


def mark_order(move: Move) -> MarkOrder:
    """Return the order that the move's state asks for: the old owner keeps off, or the new one no longer does (M3).

    Numbers rise from order to order about a node, so that an old one that comes late changes nothing.
    """
    info = move.info
    off = info.state is S.HELD
    return MarkOrder(
        node=info.node,
        cluster=info.target if info.state is S.MOVED else info.source,
        off=off,
        number=2 * move.number + (not off),
        owner=info.owner,
        session=info.move,
    )


def orders_of(node: Node, clusters: Iterable[ClusterId]) -> tuple[MarkOrder, ...]:
    """Return what a node that does not move is to be told: all but its owner keep off, and then, its owner does not.

    The numbers are those of its last move: what that one asked for is asked again, and an older word changes nothing.
    """
    others = sorted(set(clusters) - {node.owned_by})
    return tuple(
        MarkOrder(
            node=node.id,
            cluster=cluster,
            off=off,
            number=2 * node.moves + (not off),
            owner="inventory",
            session=f"owner epoch {node.owner_epoch}",
        )
        for cluster, off in [*((other, True) for other in others), (node.owned_by, False)]
    )


def seen_clear(answer: NodeLookAnswer, devices: Sequence[DeviceId]) -> Reason | None:
    """Return why a node is not clear: somebody is there, or not all that it has was looked at. None: it is."""
    if not answer.clear:
        return answer.reason or _why(Code.UNKNOWN, "the node gives no reason")
    unseen = sorted(set(devices) - set(answer.devices))
    return _why(Code.UNKNOWN, f"not looked at: {', '.join(unseen)}") if unseen else None


def marks_of(view: View, node: Node) -> Iterator[Mark]:
    """Yield the mark of a node that moves: it takes nothing new, and people see why."""
    move = view.moves.get(node.id)
    if move is not None:
        yield Mark(
            drain=DrainId(derive("drain", node.id, move.info.move)),
            effect=MarkEffect.NO_SCHEDULE,
            owner=move.info.owner,
            reason=f"moves to {move.info.target_name}: {move.info.reason}",
            session=move.info.move,
            since=move.info.requested_at,
        )


def _come(move: Move, state: MoveState, now: datetime) -> Move:
    assert may(MOVE_LIFE, move.info.state, state), (move.info.state, state)
    told = {"state": state, "since": now, "waits": None, "escalated": False}
    return replace(move, info=move.info.model_copy(update=told))


def _goes_to(move: Move, asked: MoveStart) -> bool:
    forth = {S.REQUESTED, S.HELD, S.MARKED, S.MOVED}
    return move.info.target == asked.target and move.info.state in forth


def _under_way(move: Move) -> str:
    info = move.info
    back = " and is being given up" if info.state in {S.CANCELLING, S.UNMARKED} else ""
    return f"{info.node_name} is on its way to {info.target_name} ({info.move}, {info.owner}){back}"


def _why(code: Code, text: str) -> Reason:
    return reason(Layer.FLEET, code, text)
