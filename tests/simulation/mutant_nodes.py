"""Nodes that leave out one rule of the launch guard or of the seal; see ``mutants``."""

from pydantic import BaseModel

from libs.errors import TransientError
from libs.orchestrators.pretend import PretendCluster, PretendNode, PretendRun
from schemas.calls import ClaimAnswer, FoundState, SealAnswer


class StartsUnasked(PretendCluster):
    """What is launched starts, without a question to the ledger [A1]."""

    async def _ask_leave(self, node: PretendNode, run: PretendRun) -> None:
        self._start(node, run)


class SilenceIsYes(PretendCluster):
    """No answer is taken for leave to start (G1)."""

    async def _ask_leave(self, node: PretendNode, run: PretendRun) -> None:
        try:
            await self._claim(self._claim_of(node, run))
        except TransientError:
            self._start(node, run)
        else:
            await super()._ask_leave(node, run)


class BusyIsFine(PretendCluster):
    """The guard does not look whether its devices are clear (G3) [A12, D6]."""

    async def _ask_leave(self, node: PretendNode, run: PretendRun) -> None:
        said: ClaimAnswer | None
        try:
            said = await self._claim(self._claim_of(node, run))
        except TransientError:
            said = None
        here = node.runs.get((run.order.run, run.order.epoch)) is run and run.state is FoundState.WAITING
        if here and said is not None and said.granted:
            self._start(node, run)
        elif here:
            self._ask_again(node, run)


class SealsUnseen(PretendCluster):
    """The agent seals without looking (G5) [A7]."""

    def _seal(self, node: PretendNode, question: BaseModel) -> SealAnswer:
        return super()._seal(node, question).model_copy(update={"sealed": True, "reason": None})
