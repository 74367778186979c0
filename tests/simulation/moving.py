"""Inventory's moves in memory: what people ask for, and one question after the other, with the real core."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from pydantic import BaseModel

from schemas.fleet import MoveState
from schemas.lifecycle import MOVE_ENDS
from schemas.moves import (
    MarkAnswer,
    MarkOrder,
    MoveAnswer,
    MoveCancel,
    MoveStart,
    NodeLook,
    NodeLookAnswer,
    TransferDrop,
    TransferDropAnswer,
    TransferHold,
    TransferHoldAnswer,
)
from schemas.reasons import Code, Layer, Reason, reason
from services.inventory.core.moves import advance, cancel, mark_order, orders_of, seen_clear, start, taken, told, wait
from services.inventory.core.view import Move, Node
from tests.simulation.dispatch import AskNode
from tests.simulation.inventory import POLICY, FleetTurn, Inventory, say
from tests.simulation.network import Reply

S = MoveState
CALL_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 4.0
MOVE_SECONDS: Final = 2.0
AskLedger = Callable[[str, BaseModel, Callable[[BaseModel | None], None]], None]
"""Ask placement to ``hold`` or to ``drop``."""
Settle = Callable[[Reason | None], None]


@dataclass(frozen=True, slots=True)
class Asks:
    """Whom inventory asks."""

    ledger: AskLedger
    node: AskNode


class Moves:
    """The moves under way, in inventory's process."""

    def __init__(self, inventory: Inventory, asks: Asks) -> None:
        self._inventory, self._asks = inventory, asks
        self._loop = inventory.loop(self.work, MOVE_SECONDS)
        inventory.loop(self.mark_again, AGAIN_SECONDS)
        self._questions: Mapping[MoveState, Callable[[Move, Settle], None]] = {
            S.REQUESTED: self._hold,
            S.HELD: self.mark,
            S.MARKED: self.look,
            S.MOVED: self.mark,
            S.CANCELLING: self.mark,
            S.UNMARKED: self._drop,
        }

    def start(self, asked: MoveStart, reply: Reply[MoveAnswer]) -> None:
        """Take a move in; asked again for the same destination the answer is the same move."""
        self._answer(partial(self._start, asked=asked), reply)

    def cancel(self, asked: MoveCancel, reply: Reply[MoveAnswer]) -> None:
        """Give up a move whose owner has not changed."""
        self._answer(partial(self._cancel, asked=asked), reply)

    def work(self) -> bool:
        """Ask what is due."""
        now, state = self._inventory.store.clock.now(), self._inventory.store.state
        if not any(state.next_at[move.info.move][0] <= now for move in state.view.moves.values()):
            return False
        due: list[Move] = []

        def take(turn: FleetTurn) -> None:
            next_at = dict(turn.state.next_at)
            for move in turn.state.view.moves.values():
                at, tries = next_at[move.info.move]
                if at <= turn.now:
                    due.append(move)
                    next_at[move.info.move] = (turn.now + timedelta(seconds=3 * CALL_SECONDS), tries)
            turn.state = replace(turn.state, next_at=next_at)

        self._inventory.turn(take)
        for move in due:
            self._questions[move.info.state](move, self._inventory.in_this_life(partial(self._came, move)))
        return bool(due)

    def mark_again(self) -> bool:
        """Tell nodes whose they are that may have been told otherwise, until they say that it is so."""
        now, state = self._inventory.store.clock.now(), self._inventory.store.state
        due = [node for node, at in state.marks_due.items() if at <= now and node not in state.view.moves]
        for node in due:
            self._tell(state.view.nodes[node], orders_of(state.view.nodes[node], state.view.clusters))
        return bool(due)

    def _tell(self, node: Node, orders: Sequence[MarkOrder]) -> None:
        """Ask one order after the other; with none left, the node bears its marks, if it did not move meanwhile."""

        def work(turn: FleetTurn) -> None:
            if turn.state.view.nodes[node.id].moves == node.moves:
                left = {key: at for key, at in turn.state.marks_due.items() if key != node.id}
                turn.state = replace(turn.state, marks_due=left)

        def settle(why: Reason | None) -> None:
            if why is None:
                self._tell(node, orders[1:])

        if orders:
            self._order(orders[0], self._inventory.in_this_life(settle))
        else:
            self._inventory.turn(work)

    def mark(self, move: Move, settle: Settle) -> None:
        """Ask the node to keep a destination off, or to do so no longer."""
        self._order(mark_order(move), settle)

    def _order(self, order: MarkOrder, settle: Settle) -> None:
        def read(answer: BaseModel | None) -> None:
            if not isinstance(answer, MarkAnswer) or answer.number != order.number:
                settle(reason(Layer.NODE, Code.AGENT_UNREACHABLE, "the node does not acknowledge its mark"))
            elif not answer.acknowledged:
                settle(answer.reason or reason(Layer.NODE, Code.MARK_REFUSED, "the node gives no reason"))
            else:
                settle(None)

        self._asks.node(order.node, "mark", order, read)

    def look(self, move: Move, settle: Settle) -> None:
        """Ask the node to look whether it is clear."""
        node = self._inventory.store.state.view.nodes[move.info.node]
        devices = tuple(each.device for each in node.devices)

        def read(answer: BaseModel | None) -> None:
            if isinstance(answer, NodeLookAnswer):
                settle(seen_clear(answer, devices))
            else:
                settle(reason(Layer.NODE, Code.AGENT_UNREACHABLE, "nobody looks whether the node is clear"))

        self._asks.node(move.info.node, "look", NodeLook(node=move.info.node, session=move.info.move), read)

    def _hold(self, move: Move, settle: Settle) -> None:
        info = move.info
        asked = TransferHold(
            move=info.move,
            node=info.node,
            source=info.source,
            owner_epoch=info.owner_epoch,
            stop=info.stop,
            owner=info.owner,
            reason=info.reason,
            session=info.session,
        )

        def read(answer: BaseModel | None) -> None:
            if not isinstance(answer, TransferHoldAnswer):
                settle(_unknown("the ledger does not answer"))
            else:
                settle(None if answer.held else answer.reason or _unknown("the ledger gives no reason"))

        self._asks.ledger("hold", asked, read)

    def _drop(self, move: Move, settle: Settle) -> None:
        info = move.info
        asked = TransferDrop(
            move=info.move,
            node=info.node,
            owner_epoch=info.owner_epoch,
            owner=info.cancelled_by or info.owner,
            reason=info.cancelled_for or info.reason,
            session=info.session,
        )

        def read(answer: BaseModel | None) -> None:
            settle(None if isinstance(answer, TransferDropAnswer) else _unknown("the ledger does not answer"))

        self._asks.ledger("drop", asked, read)

    def _came(self, asked: Move, why: Reason | None) -> None:
        """Write down what came of a question; what comes after the move has left its state is dropped."""

        def work(turn: FleetTurn) -> None:
            now = turn.state.view.moves.get(asked.info.node)
            if now is None or (now.info.move, now.info.state) != (asked.info.move, asked.info.state):
                return
            if why is None:
                self._take(turn, now, advance(now, now=turn.now))
            else:
                self._put_off(turn, now, wait(now, why, POLICY, now=turn.now))

        self._inventory.turn(work)

    def _start(self, turn: FleetTurn, asked: MoveStart) -> MoveAnswer:
        found = start(turn.state.view, asked, now=turn.now)
        if isinstance(found, Reason):
            return MoveAnswer(reason=found)
        if asked.node in turn.state.view.moves:
            return MoveAnswer(move=found.info, already=True)
        self._take(turn, None, found)
        return MoveAnswer(move=found.info)

    def _cancel(self, turn: FleetTurn, asked: MoveCancel) -> MoveAnswer:
        known = turn.state.moves.get(asked.move)
        if known is None:
            return MoveAnswer(reason=reason(Layer.FLEET, Code.MOVE_UNKNOWN, f"there is no move {asked.move}"))
        found = cancel(known, asked, now=turn.now)
        if isinstance(found, Reason):
            return MoveAnswer(move=known.info, reason=found)
        if found != known:
            self._take(turn, known, found)
        return MoveAnswer(move=found.info)

    def _take(self, turn: FleetTurn, before: Move | None, move: Move) -> None:
        say(turn, taken(turn.state.view, move), [move.info.node])
        self._keep(turn, _said(turn, before, move), tries=0, seconds=0.0)
        turn.after_commit(self._loop.wake)

    def _put_off(self, turn: FleetTurn, before: Move, move: Move) -> None:
        tries = turn.state.next_at[move.info.move][1]
        self._keep(turn, _said(turn, before, move), tries=tries + 1, seconds=min(AGAIN_SECONDS, 2.0**tries))

    def _keep(self, turn: FleetTurn, move: Move, *, tries: int, seconds: float) -> None:
        state, info = turn.state, move.info
        view = state.view
        if info.state not in MOVE_ENDS:
            view = replace(view, moves={**view.moves, info.node: move})
        next_at = {**state.next_at, info.move: (turn.now + timedelta(seconds=seconds), tries)}
        turn.state = replace(state, view=view, moves={**state.moves, info.move: move}, next_at=next_at)

    def _answer(self, work: Callable[[FleetTurn], MoveAnswer], reply: Reply[MoveAnswer]) -> None:
        """Answer a question by a turn of its own, after the commit; nobody does who is dead."""

        def answer() -> None:
            said: list[MoveAnswer] = []
            self._inventory.turn(lambda turn: said.append(work(turn)))
            reply(said[0])

        if self._inventory.dead_until <= self._inventory.timeline.now:
            self._inventory.later(0.001, answer)


def _said(turn: FleetTurn, before: Move | None, move: Move) -> Move:
    """Say what changed of a move, if anything did, and return it with its version."""
    fact = told(before, move)
    if fact is None:
        return move
    move = replace(move, version=move.version + 1)
    turn.emit(fact, scope=move.info.cluster, key=move.info.move, version=move.version)
    return move


def _unknown(text: str) -> Reason:
    return reason(Layer.PLACEMENT, Code.UNKNOWN, text)
