"""What a person reads of a node that moves: the line, and what goes on with it."""

from datetime import datetime

from schemas.fleet import MoveInfo, MoveState
from schemas.lifecycle import MOVE_ENDS

NEXT_STEP = {
    MoveState.REQUESTED: "waits for the node's slots in the ledger",
    MoveState.HELD: "waits until the old owner's backend keeps off",
    MoveState.MARKED: "waits until the node is seen to be clear",
    MoveState.MOVED: "waits until the new owner's mark is lifted",
    MoveState.COMPLETED: "is over: the new owner gives the devices out",
    MoveState.CANCELLING: "waits until the old owner's mark is lifted again",
    MoveState.UNMARKED: "waits until the ledger has given the slots back",
    MoveState.CANCELLED: "was given up",
}


def told(info: MoveInfo) -> str:
    """Return where a move is and what it waits for, in words."""
    where = NEXT_STEP[info.state]
    if info.state is MoveState.CANCELLED:
        return f"{where} by {info.cancelled_by}: {info.cancelled_for}"
    if info.waits is None or info.state in MOVE_ENDS:
        return where
    return f"{where}: {info.waits.message or info.waits.code}"


def commands(info: MoveInfo) -> tuple[str, ...]:
    """Return what settles a move that has waited for too long."""
    node = info.node_name
    first = f"# on {node}: end what runs there, or start the agent" if info.waits else f"triplane moves --node {node}"
    if info.state in {MoveState.REQUESTED, MoveState.HELD, MoveState.MARKED}:
        return first, f"triplane moves cancel {info.move} --reason 'why'"
    return (first,)


def age_seconds(info: MoveInfo, now: datetime) -> int:
    """Return for how long a move has been where it is."""
    return max(int((now - info.since).total_seconds()), 0)
