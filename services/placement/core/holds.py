"""The hold of a node that moves: it and a grant exclude each other, on the same slots (M1)."""

from dataclasses import dataclass

from schemas.ids import ClusterId, GrantId, MoveId
from schemas.moves import TransferHold, TransferHoldAnswer
from schemas.reasons import Code, Layer, Reason, reason

_NAMED = 5  # of the grants that a hold waits for


@dataclass(frozen=True, slots=True)
class Standing:
    """What the ledger has of a node and of a hold. ``owner_epoch`` 0: it has not heard of the node.

    ``dropped``: this hold was; ``other``: another one stands on the node; ``grants``: those with a live line there.
    """

    owner: ClusterId | None = None
    owner_epoch: int = 0
    dropped: bool = False
    other: MoveId | None = None
    grants: tuple[GrantId, ...] = ()


def obstacle(asked: TransferHold, found: Standing) -> TransferHoldAnswer | None:
    """Return why nothing is kept for this move: it never will be (``over``), or not yet; None: nothing is in its way.

    A hold is taken at the node's own owner epoch only: one of an epoch that has passed would stay for ever.
    """
    if found.dropped or found.owner_epoch > asked.owner_epoch:
        return _no(asked, Code.HOLD_OVER, "the move is over, as the ledger knows it", over=True)
    if (found.owner_epoch, found.owner) != (asked.owner_epoch, asked.source):
        return _no(asked, Code.NODE_UNKNOWN, "the ledger has not heard of the node's owner yet")
    if found.other is not None:
        return _no(asked, Code.MOVE_UNDER_WAY, f"{found.other} holds the node")
    return None


def answered(asked: TransferHold, found: Standing) -> TransferHoldAnswer:
    """Return what holds the slots of a node that is kept for this move: it alone, or grants beside it."""
    if not found.grants:
        return TransferHoldAnswer(move=asked.move, held=True)
    return TransferHoldAnswer(move=asked.move, held=False, reason=_granted(found.grants, stop=asked.stop))


def _granted(grants: tuple[GrantId, ...], *, stop: bool) -> Reason:
    follows = "they are being ended" if stop else "they go on to their end"
    more = ", …" if len(grants) > _NAMED else ""
    told = f"{follows}: {', '.join(grants[:_NAMED])}{more}"
    return reason(Layer.PLACEMENT, Code.STILL_GRANTED, told, grants=len(grants))


def _no(asked: TransferHold, code: Code, told: str, *, over: bool = False) -> TransferHoldAnswer:
    return TransferHoldAnswer(move=asked.move, held=False, over=over, reason=reason(Layer.PLACEMENT, code, told))
