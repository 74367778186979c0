"""A cluster in memory, of any size, on a clock of its own: it speaks as agents do, and fails and lies on command.

Runs are claimed, started, noticed and sealed by the grant protocol as real ones are; only the processes are missing.
Nothing moves but by ``tick``. A node's state lives as long as this object: where it is lost, the nodes were rebooted.
"""

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from pydantic import BaseModel

from libs.clock import Clock
from libs.errors import TransientError, UnavailableError
from libs.orchestrators.pretend_node import (
    PretendNode,
    PretendRun,
    found,
    held,
    kept_off,
    marked,
    missing,
    named,
    never_started,
)
from libs.orchestrators.script import Script, script_of
from schemas.calls import (
    Claim,
    ClaimAnswer,
    Find,
    FindAnswer,
    FoundState,
    HeldRun,
    HoldersAnswer,
    Launch,
    LaunchAnswer,
    LaunchOrder,
    LaunchReply,
    Logs,
    LogsAnswer,
    Seal,
    SealAnswer,
    Stop,
    StopAnswer,
)
from schemas.ids import ClusterId, NodeId
from schemas.moves import MarkAnswer, MarkOrder, NodeLook, NodeLookAnswer
from schemas.reasons import Code, Layer, Reason, reason
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.workload import ExitRecord, RankExit

Claimer = Callable[[Claim], Awaitable[ClaimAnswer]]
Notice = Callable[[ObservationNoticed], None]
Scripter = Callable[[LaunchOrder], Script]

ASK_AGAIN_SECONDS: Final = 0.5
LOCK_WAIT_SECONDS: Final = 10.0
KEPT: Final = 50  # runs that a node remembers
TERM, KILL = 15, 9
NO_ANSWER: Final = reason(Layer.NODE, Code.AGENT_UNREACHABLE, "no word of the ledger before the start deadline")


class PretendCluster:
    """All the nodes. ``claim`` asks the ledger; ``notice`` takes what agents would say at once."""

    def __init__(
        self,
        cluster: ClusterId,
        nodes: Iterable[PretendNode],
        clock: Clock,
        *,
        claim: Claimer,
        notice: Notice,
        script: Scripter = script_of,
    ) -> None:
        self.nodes = {node.id: node for node in nodes}
        self._cluster, self._clock, self._script = cluster, clock, script
        self._claim, self._notice = claim, notice
        self._queue: list[tuple[float, int, PretendNode, PretendRun]] = []
        self._numbers = count(1)

    async def ask(self, subject: str, question: BaseModel, timeout: float) -> bytes:
        """Answer ``call.node.<id>.<verb>`` as NATS would carry it. Raises UnavailableError when no answer comes."""
        del timeout
        _, _, node, verb = subject.split(".")
        return self.answer(NodeId(node), verb, question).model_dump_json().encode()

    def answer(self, node: NodeId, verb: str, question: BaseModel) -> BaseModel:
        """Answer one question of a node. Raises UnavailableError when no answer would come."""
        asked = self.nodes.get(node)
        if asked is None or asked.silent:
            raise UnavailableError(f"nobody answers for {node}")
        answers: dict[str, Callable[[PretendNode, BaseModel], BaseModel]] = {
            "launch": self._launch,
            "find": self._find,
            "stop": self._stop,
            "seal": self._seal,
            "holders": self._holders,
            "mark": self._mark,
            "look": self._look,
            "logs": self._logs,
        }
        said = answers[verb](asked, question)
        if asked.deaf:
            raise UnavailableError(f"the answer of {node} got lost")
        return said

    async def tick(self) -> None:
        """Let everything happen that is due by now."""
        now = self._clock.monotonic()
        due = []
        while self._queue and self._queue[0][0] <= now:
            at, _, node, run = heapq.heappop(self._queue)
            if run.due == at and run.state is not FoundState.ENDED:
                due.append((node, run))
        await asyncio.gather(*(self._step(node, run) for node, run in due))

    def next_due(self) -> float | None:
        """Return when the next step may come, by the clock's monotonic seconds; None: nothing is on its way."""
        return self._queue[0][0] if self._queue else None

    def reboot(self, node: NodeId) -> None:
        """Let a node lose its power: its runs are gone without a word, and it is in another boot."""
        broken = self.nodes[node]
        broken.boots += 1
        broken.boot = f"{broken.boot.partition('+')[0]}+{broken.boots}"
        for run in broken.runs.values():
            run.due = math.inf
        broken.runs.clear()

    def kill(self, node: NodeId) -> None:
        """Let somebody on a node end what runs there by SIGKILL, with no order of ours."""
        for run in self.nodes[node].runs.values():
            if run.state is FoundState.RUNNING:
                ranks = (RankExit(rank=replica.rank, exit_code=None, signal=KILL) for replica in run.order.replicas)
                self._record(self.nodes[node], run, tuple(ranks))

    def finish(self, node: NodeId) -> None:
        """Let what runs on a node end by itself now, with the codes of its script."""
        for run in self.nodes[node].runs.values():
            if run.state is FoundState.RUNNING:
                self._end(self.nodes[node], run)

    def cancel(self, node: NodeId, who: str) -> None:
        """Let somebody on a node cancel what is there, past Triplane: each run ends as by a stop that names them."""
        for run in self.nodes[node].runs.values():
            if run.kill_signal is None and run.state is not FoundState.ENDED:
                run.cancelled_by = who
                self._end_soon(self.nodes[node], run, run.order.work.grace_seconds)

    # what a node answers

    def _launch(self, node: PretendNode, question: BaseModel) -> LaunchAnswer:
        assert isinstance(question, Launch), question
        return LaunchAnswer(replies=tuple(self._accept(node, order) for order in question.orders))

    def _accept(self, node: PretendNode, order: LaunchOrder) -> LaunchReply:
        why = node.refusal or node.blindness or kept_off(node, order.cluster or self._cluster) or missing(node, order)
        key = (order.run, order.epoch)
        if why is None and key not in node.runs:
            script = self._script(order)
            run = PretendRun(order, script, f"{node.boot}-{next(self._numbers)}", launched=self._clock.monotonic())
            node.runs[key] = run
            self._at(node, run, script.start_seconds)
        return LaunchReply(run=order.run, grant=order.grant, accepted=why is None, reason=why)

    def _find(self, node: PretendNode, question: BaseModel) -> FindAnswer:
        assert isinstance(question, Find), question
        shown = () if node.forgetful or not node.ready else node.runs.values()
        return FindAnswer(
            ready=node.ready,
            boot=node.boot,
            runs=tuple(found(node, run) for run in shown if not question.runs or run.order.run in question.runs),
        )

    def _stop(self, node: PretendNode, question: BaseModel) -> StopAnswer:
        assert isinstance(question, Stop), question
        run = node.runs.get((question.run, question.epoch))
        if run is not None:
            self._end_soon(node, run, question.grace_seconds)
        return StopAnswer(known=run is not None)

    def _seal(self, node: PretendNode, question: BaseModel) -> SealAnswer:
        assert isinstance(question, Seal), question
        run = node.runs.get((question.run, question.epoch))
        if run is not None and question.stop and node.blindness is None:
            self._end_soon(node, run, question.grace_seconds)
        why = node.blindness or held(node, question.devices)
        return SealAnswer(
            grant=question.grant,
            epoch=question.epoch,
            node=node.id,
            revocation=question.revocation,
            sealed=why is None,
            boot=node.boot,
            devices=question.devices,
            exit=run.exit if run else None,
            reason=why,
            observed_at=self._clock.now(),
        )

    def _holders(self, node: PretendNode, _: BaseModel) -> HoldersAnswer:
        held = [run for run in node.runs.values() if run.state is not FoundState.ENDED]
        ready = node.blindness is None and all(run.state is FoundState.RUNNING for run in held)
        runs = tuple(HeldRun(instance=run.instance, order=run.order) for run in held)
        return HoldersAnswer(node=node.id, boot=node.boot, ready=ready, runs=runs)

    def _mark(self, node: PretendNode, question: BaseModel) -> MarkAnswer:
        assert isinstance(question, MarkOrder), question
        return marked(node, question)

    def _look(self, node: PretendNode, question: BaseModel) -> NodeLookAnswer:
        assert isinstance(question, NodeLook), question
        devices = tuple(each.device for each in node.devices)
        why = node.blindness or held(node, devices)
        return NodeLookAnswer(
            node=node.id,
            session=question.session,
            clear=why is None,
            boot=node.boot,
            devices=devices,
            reason=why,
            observed_at=self._clock.now(),
        )

    def _logs(self, node: PretendNode, question: BaseModel) -> LogsAnswer:
        assert isinstance(question, Logs), question
        runs = [run for run in node.runs.values() if run.order.run == question.run]
        if not runs:
            return LogsAnswer(known=False, text="", next_offset=question.offset, ended=False)
        text = f"pretended: {' '.join(runs[-1].order.work.command)}\n"
        piece = text[question.offset : question.offset + question.limit]
        ended = runs[-1].state is FoundState.ENDED
        return LogsAnswer(known=True, text=piece, next_offset=question.offset + len(piece), ended=ended)

    # what happens by itself

    async def _step(self, node: PretendNode, run: PretendRun) -> None:
        if run.state is FoundState.RUNNING:
            self._end(node, run)
        elif run.kill_signal is not None:
            self._refuse(node, run, never_started(run))
        elif run.allowed:
            self._start(node, run)
        else:
            await self._ask_leave(node, run)

    async def _ask_leave(self, node: PretendNode, run: PretendRun) -> None:
        """The launch guard: the locks, the node's own look, then the ledger."""
        why = node.blindness or held(node, run.devices, but=run)
        waited = self._clock.monotonic() - run.launched
        if why is not None:
            if node.blindness or waited >= LOCK_WAIT_SECONDS:
                self._refuse(node, run, node.blindness or reason(Layer.NODE, Code.DEVICE_NOT_CLEAR, why.message))
            else:
                self._at(node, run, ASK_AGAIN_SECONDS)
            return
        said: ClaimAnswer | None = None
        with suppress(TransientError):
            said = await self._claim(self._claim_of(node, run))
        if run.state is not FoundState.WAITING or node.runs.get((run.order.run, run.order.epoch)) is not run:
            return  # it was stopped meanwhile, or the node was rebooted
        if said is None:
            self._ask_again(node, run)
        elif said.granted:
            self._let(node, run)
        else:
            self._refuse(node, run, said.reason or NO_ANSWER)

    def _let(self, node: PretendNode, run: PretendRun) -> None:
        run.allowed = run.script.open_seconds > 0  # it has leave, and opens its devices in a while
        if run.allowed:
            self._at(node, run, run.script.open_seconds)
        else:
            self._start(node, run)

    def _ask_again(self, node: PretendNode, run: PretendRun) -> None:
        if self._clock.now() > run.order.start_deadline:
            self._refuse(node, run, NO_ANSWER)
        else:
            self._at(node, run, ASK_AGAIN_SECONDS)

    def _start(self, node: PretendNode, run: PretendRun) -> None:
        run.state, run.started_at = FoundState.RUNNING, self._clock.now()
        limit = run.order.work.time_limit_seconds
        run.timed_out = limit is not None and limit < run.script.seconds
        if run.kill_signal is None:
            self._at(node, run, float(limit) if run.timed_out and limit else run.script.seconds)
        else:
            self._at(node, run, 0.0)
        self._say(node, run, RunEvent.STARTED)

    def _end_soon(self, node: PretendNode, run: PretendRun, grace_seconds: int) -> None:
        if run.state is FoundState.ENDED or run.kill_signal is not None:
            return
        run.timed_out = False
        run.kill_signal = KILL if run.script.deaf else TERM
        self._at(node, run, float(grace_seconds) if run.script.deaf else 0.0)

    def _end(self, node: PretendNode, run: PretendRun) -> None:
        killed = run.kill_signal or (TERM if run.timed_out else None)
        ranks = enumerate(replica.rank for replica in run.order.replicas)
        self._record(
            node,
            run,
            tuple(
                RankExit(rank=rank, exit_code=None if killed else run.script.code(place), signal=killed)
                for place, rank in ranks
            ),
        )

    def _refuse(self, node: PretendNode, run: PretendRun, why: Reason) -> None:
        self._record(node, run, (), why)

    def _record(
        self, node: PretendNode, run: PretendRun, ranks: tuple[RankExit, ...], refused: Reason | None = None
    ) -> None:
        run.state, run.due = FoundState.ENDED, math.inf
        run.exit = ExitRecord(
            instance=run.instance,
            ranks=ranks,
            timed_out=run.timed_out,
            stopped=run.kill_signal is not None and refused is None,
            cancelled_by=None if refused else run.cancelled_by,
            refused=refused,
            started_at=run.started_at,
            ended_at=self._clock.now(),
        )
        self._say(node, run, RunEvent.ENDED)
        if len(node.runs) > KEPT:
            del node.runs[next(key for key, each in node.runs.items() if each.state is FoundState.ENDED)]

    def _say(self, node: PretendNode, run: PretendRun, event: RunEvent) -> None:
        if node.mute or node.silent:
            return
        self._notice(
            ObservationNoticed(
                node=node.id,
                cluster=self._cluster,
                boot=node.boot,
                instance=run.instance,
                event=event,
                exit=run.exit,
                observed_at=self._clock.now(),
                **named(run.order),
            )
        )

    def _claim_of(self, node: PretendNode, run: PretendRun) -> Claim:
        return Claim(
            grant=run.order.grant,
            epoch=run.order.epoch,
            node=node.id,
            cluster=run.order.cluster or self._cluster,
            boot=node.boot,
            instance=run.instance,
            nonce=f"{run.instance}-{next(self._numbers)}",
            devices=run.devices,
        )

    def _at(self, node: PretendNode, run: PretendRun, seconds: float) -> None:
        run.due = self._clock.monotonic() + seconds
        if run.due < math.inf:
            heapq.heappush(self._queue, (run.due, next(self._numbers), node, run))
