"""Moves of nodes: what people ask for, and one question after the other until the node is another destination's."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from libs.errors import RefusedError, TransientError
from libs.orchestrators.base import Looks, Marks
from libs.questions import question
from libs.service import Service, Turn
from schemas.fleet import MoveState
from schemas.ids import ClusterId
from schemas.moves import (
    MoveAnswer,
    MoveCancel,
    MoveStart,
    NodeLook,
    TransferDrop,
    TransferDropAnswer,
    TransferHold,
    TransferHoldAnswer,
)
from schemas.reasons import Code, Layer, Reason, reason
from services.inventory.core.decide import decide
from services.inventory.core.moves import advance, cancel, mark_order, orders_of, seen_clear, start, taken, told, wait
from services.inventory.core.view import Move, Node, View
from services.inventory.handlers.facts import say
from services.inventory.settings import Settings
from services.inventory.store import fleet
from services.inventory.store import moves as store

A = TypeVar("A", bound=BaseModel)
AT_ONCE: Final = 32  # moves that are asked about at the same time


class Nodes(Marks, Looks, Protocol):
    """What a destination's driver does for a move."""


class Moves:
    """The moves under way. Every replica works at them; a step counts once, by the state that it was asked in."""

    def __init__(self, service: Service, nodes: Nodes, settings: Settings) -> None:
        self.wake: Callable[[], None] = _nothing
        self._service, self._nodes, self._settings = service, nodes, settings
        self._policy = settings.policy()
        self._asks: dict[MoveState, Callable[[Move], Awaitable[Reason | None]]] = {
            MoveState.REQUESTED: self._hold,
            MoveState.HELD: self._mark,
            MoveState.MARKED: self._look,
            MoveState.MOVED: self._mark,
            MoveState.CANCELLING: self._mark,
            MoveState.UNMARKED: self._drop,
        }

    async def start(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[MoveAnswer]:
        """Take moves in; asked again for the same destination the answer is the same move. Raises PoisonError."""
        return [await self._start(turn, question(MoveStart, body)) for body in bodies]

    async def cancel(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[MoveAnswer]:
        """Give moves up whose owner has not changed. Raises PoisonError."""
        return [await self._cancel(turn, question(MoveCancel, body)) for body in bodies]

    async def run(self) -> None:
        """Ask what is due, and go on with what was answered. Raises TransientError."""
        async with self._service.turn() as turn:
            due = await store.due(turn.connection, AT_ONCE, 3 * self._settings.move_call_seconds)
        outcomes = await asyncio.gather(*(self.step(move) for move in due), return_exceptions=True)
        for failure in (each for each in outcomes if each is not None):
            raise failure

    async def mark_again(self) -> None:
        """Tell nodes whose they are that may have been told otherwise, until they say that it is so."""
        async with self._service.turn() as turn:
            due = await store.unmarked(turn.connection, AT_ONCE, self._settings.move_again_seconds)
            nodes, clusters = await fleet.owned(turn.connection, due) if due else ((), ())
        bear = await asyncio.gather(*(self._bears(node, clusters) for node in nodes))
        if any(bear):
            async with self._service.turn() as turn:
                await store.marked(turn.connection, [node for node, so in zip(nodes, bear, strict=True) if so])

    async def _bears(self, node: Node, clusters: Sequence[ClusterId]) -> bool:
        for order in orders_of(node, clusters):
            answer = await self._nodes.mark(order)
            if answer is None or not answer.acknowledged:
                return False
        return True

    async def step(self, move: Move) -> None:
        """Ask for the one step that the move's state stands before; write down what came of it. Raises TransientError.

        An answer that comes after the move has left that state is dropped: somebody else took it, or it was given up.
        """
        why = await self._asks[move.info.state](move)
        async with self._service.turn() as turn:
            before = await fleet.load(turn.connection, _clusters(move), [move.info.node])
            now = before.moves.get(move.info.node)
            if now is None or (now.info.move, now.info.state) != (move.info.move, move.info.state):
                return
            if why is None:
                await self._take(turn, before, now, advance(now, now=turn.now))
            else:
                waiting = _said(turn, now, wait(now, why, self._policy, now=turn.now))
                await store.put_off(turn.connection, waiting, self._settings.move_again_seconds)

    async def _start(self, turn: Turn, asked: MoveStart) -> MoveAnswer:
        home = await store.cluster_of(turn.connection, asked.node)
        clusters = {asked.target} | ({home} if home else set())
        before = await fleet.load(turn.connection, clusters, [asked.node])
        found = start(before, asked, now=turn.now)
        if isinstance(found, Reason):
            return MoveAnswer(reason=found)
        if asked.node in before.moves:
            return MoveAnswer(move=found.info, already=True)
        await self._take(turn, before, None, found)
        return MoveAnswer(move=found.info)

    async def _cancel(self, turn: Turn, asked: MoveCancel) -> MoveAnswer:
        known = await store.one(turn.connection, asked.move)
        if known is None:
            return MoveAnswer(reason=reason(Layer.FLEET, Code.MOVE_UNKNOWN, f"there is no move {asked.move}"))
        before = await fleet.load(turn.connection, _clusters(known), [known.info.node])
        now = before.moves.get(known.info.node)
        now = now if now is not None and now.info.move == asked.move else await store.one(turn.connection, asked.move)
        assert now is not None, known
        found = cancel(now, asked, now=turn.now)
        if isinstance(found, Reason):
            return MoveAnswer(move=now.info, reason=found)
        if found != now:
            await self._take(turn, before, now, found)
        return MoveAnswer(move=found.info)

    async def _take(self, turn: Turn, view: View, before: Move | None, move: Move) -> None:
        """Say and keep what a step made of the move and of its node."""
        after = taken(view, move)
        said = say(turn, after, decide(view, after, [move.info.node]), None)
        await fleet.save(turn.connection, view, said)
        await store.save(turn.connection, _said(turn, before, move))
        turn.after_commit(self.wake)

    async def _hold(self, move: Move) -> Reason | None:
        info = move.info
        asked = TransferHold(
            move=info.move,
            node=info.node,
            source=info.source,
            owner_epoch=info.owner_epoch,
            stop=info.stop,
            owner=info.owner,
            reason=f"moves to {info.target_name}: {info.reason}",
            session=info.session,
        )
        answer = await self._ledger("call.grant.hold", asked, TransferHoldAnswer)
        if answer is None:
            return _unknown("the ledger does not answer")
        return None if answer.held else answer.reason or _unknown("the ledger gives no reason")

    async def _drop(self, move: Move) -> Reason | None:
        info = move.info
        asked = TransferDrop(
            move=info.move,
            node=info.node,
            owner_epoch=info.owner_epoch,
            owner=info.cancelled_by or info.owner,
            reason=info.cancelled_for or info.reason,
            session=info.session,
        )
        answer = await self._ledger("call.grant.drop", asked, TransferDropAnswer)
        return None if answer is not None else _unknown("the ledger does not answer")

    async def _mark(self, move: Move) -> Reason | None:
        order = mark_order(move)
        answer = await self._nodes.mark(order)
        if answer is None:
            return reason(Layer.NODE, Code.AGENT_UNREACHABLE, "the node does not acknowledge its mark")
        if answer.acknowledged:
            return None
        return answer.reason or reason(Layer.NODE, Code.MARK_REFUSED, "the node gives no reason")

    async def _look(self, move: Move) -> Reason | None:
        async with self._service.turn() as turn:
            devices = await store.devices_of(turn.connection, move.info.node)
        answer = await self._nodes.look(NodeLook(node=move.info.node, session=move.info.move))
        if answer is None:
            return reason(Layer.NODE, Code.AGENT_UNREACHABLE, "nobody looks whether the node is clear")
        return seen_clear(answer, devices)

    async def _ledger(self, subject: str, asked: BaseModel, kind: type[A]) -> A | None:
        try:
            body = await self._service.call(subject, asked, timeout=self._settings.move_call_seconds)
            return kind.model_validate_json(body)
        except (TransientError, RefusedError, ValidationError) as error:
            self._service.log.info("no answer of the ledger", subject=subject, why=str(error))
            return None


def _said(turn: Turn, before: Move | None, move: Move) -> Move:
    """Say what changed of a move, if anything did, and return it with its version."""
    fact = told(before, move)
    if fact is None:
        return move
    move = replace(move, version=move.version + 1)
    turn.emit(fact, scope=move.info.cluster, key=move.info.move, version=move.version)
    return move


def _clusters(move: Move) -> set[ClusterId]:
    return {move.info.cluster, move.info.target}


def _unknown(text: str) -> Reason:
    return reason(Layer.PLACEMENT, Code.UNKNOWN, text)


def _nothing() -> None:
    """Wake nobody: no loop is there yet."""
