"""Nodes that leave out one rule of the launch guard or of the seal; see ``mutants``."""

from pydantic import BaseModel

from libs.errors import TransientError
from libs.orchestrators.pretend import PretendCluster
from libs.orchestrators.pretend_node import PretendNode, PretendRun
from schemas.calls import ClaimAnswer, FoundState, SealAnswer
from schemas.ids import NodeId


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


class LeaveUnseen(PretendCluster):
    """No lock tells an agent that came up anew of a start that has leave and has not opened its devices yet [A8]."""

    _leave: dict[str, int] | None = None

    def answer(self, node: NodeId, verb: str, question: BaseModel) -> BaseModel:
        runs = self.nodes[node].runs
        unseen = {key: run for key, run in runs.items() if self._is_unseen(self.nodes[node], run)}
        self.nodes[node].runs = {key: run for key, run in runs.items() if key not in unseen}
        try:
            return super().answer(node, verb, question)
        finally:
            self.nodes[node].runs |= unseen

    async def _step(self, node: PretendNode, run: PretendRun) -> None:
        if run.state is FoundState.WAITING and run.instance in (self._leave or {}):
            self._start(node, run)
        else:
            await super()._step(node, run)

    def _let(self, node: PretendNode, run: PretendRun) -> None:
        self._leave = {**(self._leave or {}), run.instance: node.agents}
        self._at(node, run, run.script.open_seconds)

    def _is_unseen(self, node: PretendNode, run: PretendRun) -> bool:
        agents = (self._leave or {}).get(run.instance, node.agents)
        return run.state is FoundState.WAITING and agents != node.agents


class SealsUnseen(PretendCluster):
    """The agent seals without looking (G5) [A7]."""

    def _seal(self, node: PretendNode, question: BaseModel) -> SealAnswer:
        return super()._seal(node, question).model_copy(update={"sealed": True, "reason": None})
