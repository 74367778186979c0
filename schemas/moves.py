"""Calls by which a node moves from one destination to another; a lost answer is resolved by asking again."""

from datetime import datetime

from schemas.base import Value
from schemas.fleet import MoveInfo
from schemas.ids import ClusterId, DeviceId, MoveId, NodeId
from schemas.reasons import Reason


class TransferHold(Value):
    """call.grant.hold: take the slots of a node for its move, at the owner epoch that it is to end (M1).

    Nothing new is placed there from then on. ``stop``: what runs there is ended; else its end is waited for.
    """

    move: MoveId
    node: NodeId
    source: ClusterId
    owner_epoch: int
    stop: bool
    owner: str
    reason: str
    session: str


class TransferHoldAnswer(Value):
    """Held: no slot of the node has another line. ``over``: it never will be, for the hold was dropped or outlived."""

    move: MoveId
    held: bool
    over: bool = False
    reason: Reason | None = None


class TransferDrop(Value):
    """call.grant.drop: give the slots back, for the move was given up; it can never take them again."""

    move: MoveId
    node: NodeId
    owner_epoch: int
    owner: str
    reason: str
    session: str


class TransferDropAnswer(Value):
    """It is dropped, now or before."""

    move: MoveId


class MoveStart(Value):
    """call.move.start: let a node move to another destination."""

    node: NodeId
    target: ClusterId
    owner: str
    reason: str
    session: str
    stop: bool = False


class MoveCancel(Value):
    """call.move.cancel: give up a move whose owner has not changed yet."""

    move: MoveId
    owner: str
    reason: str


class MoveAnswer(Value):
    """The move as it is, or why there is none. ``already``: it was under way to the same destination before."""

    move: MoveInfo | None = None
    already: bool = False
    reason: Reason | None = None


class MarkOrder(Value):
    """call.node.<id>.mark: keep off new work of a destination (``off``), or no longer do.

    ``number`` rises with every order about a node: one that is older than the newest taken changes nothing.
    """

    node: NodeId
    cluster: ClusterId
    off: bool
    number: int
    owner: str
    session: str


class MarkAnswer(Value):
    """Acknowledged: the mark is now as the order says. Repeats the question."""

    node: NodeId
    cluster: ClusterId
    number: int
    acknowledged: bool
    reason: Reason | None = None


class NodeLook(Value):
    """call.node.<id>.look: look now whether all of the node's devices are clear, of whoever's processes."""

    node: NodeId
    session: str


class NodeLookAnswer(Value):
    """Clear, or who is there and what could not be seen (``reason``). Repeats the question."""

    node: NodeId
    session: str
    clear: bool
    boot: str
    devices: tuple[DeviceId, ...]
    reason: Reason | None = None
    observed_at: datetime
