"""What placement answers inventory about the slots of a node that moves (M1)."""

from collections.abc import Callable, Sequence

from libs.questions import question
from libs.service import Service, Turn
from schemas.moves import TransferDrop, TransferDropAnswer, TransferHold, TransferHoldAnswer
from services.placement.core.holds import answered, obstacle
from services.placement.store import holds


class Holds:
    """Takes and drops the holds of moves. Asked again, the answer is the same or a later one."""

    def __init__(self, service: Service, *, wake_cycle: Callable[[], None], wake_deadlines: Callable[[], None]) -> None:
        self._log = service.log
        self._wake_cycle = wake_cycle
        self._wake_deadlines = wake_deadlines

    async def take(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[TransferHoldAnswer]:
        """Keep nodes from new work, and take their slots where no grant has one. Raises PoisonError."""
        return [await self._take(turn, question(TransferHold, body)) for body in bodies]

    async def drop(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[TransferDropAnswer]:
        """Give the slots back for good. Raises PoisonError."""
        return [await self._drop(turn, question(TransferDrop, body)) for body in bodies]

    async def _take(self, turn: Turn, asked: TransferHold) -> TransferHoldAnswer:
        found = await holds.look(turn.connection, asked.node, asked.move)
        if (why := obstacle(asked, found)) is not None:
            return why
        await holds.keep(turn.connection, asked)
        answer = answered(asked, found)
        if answer.held:
            await holds.take(turn.connection, asked.move)
        elif asked.stop:
            turn.after_commit(self._wake_deadlines)
        return answer

    async def _drop(self, turn: Turn, asked: TransferDrop) -> TransferDropAnswer:
        await holds.look(turn.connection, asked.node, asked.move)
        await holds.drop(turn.connection, asked)
        self._log.info("a hold is dropped", move=asked.move, node=asked.node, owner=asked.owner)
        turn.after_commit(self._wake_cycle)
        return TransferDropAnswer(move=asked.move)
