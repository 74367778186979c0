"""What the agent is asked: launch, find, stop, seal, mark, look, logs. Everything blocking is done in threads."""

import asyncio
import os
from datetime import UTC, datetime
from typing import Final

from libs.log import get_logger
from libs.questions import question
from libs.telemetry.traces import Tracer
from schemas.calls import (
    Find,
    FindAnswer,
    FoundRun,
    HeldRun,
    Holders,
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
from schemas.ids import DeviceId, NodeId
from schemas.moves import MarkAnswer, MarkOrder, NodeLook, NodeLookAnswer
from schemas.reasons import Code, Layer, Reason, reason
from services.agent.core.identity import Identity
from services.agent.core.orders import Owner, Place, shim_order
from services.agent.core.proofs import not_sealed
from services.agent.core.runs import Evidence, RunState, found, instance_id, state_of
from services.agent.handlers.looks import Looks
from services.agent.handlers.notices import Notices
from services.agent.settings import Settings
from services.agent.store import groups, output, processes
from services.agent.store.devices import DevicesUnknownError
from services.agent.store.folder import RunFolder, folder_name
from services.agent.store.node import Node

LOGS_LIMIT: Final = 262_144  # of bytes in one answer: well under what the bus carries
log = get_logger(__name__)


class Calls:
    """The answers of one node. ``owner`` is whom runs belong to; a reason instead: runs are not taken."""

    def __init__(
        self,
        identity: Identity,
        node: Node,
        notices: Notices,
        settings: Settings,
        owner: Owner | Reason | None,
        *,
        looks: Looks,
        tracer: Tracer,
    ) -> None:
        self._identity, self._node, self._notices, self._settings = identity, node, notices, settings
        self._owner = owner
        self._tracer, self._looks = tracer, looks

    async def launch(self, body: bytes) -> LaunchAnswer:
        """Start a shim for each order that has none yet. Idempotent by run and epoch."""
        orders = question(Launch, body).orders
        started: list[tuple[RunFolder, int]] = []
        replies = await asyncio.to_thread(lambda: tuple(self._launch(order, started) for order in orders))
        for run, shim in started:
            self._notices.watch(run, shim)
        return LaunchAnswer(replies=replies)

    async def find(self, body: bytes) -> FindAnswer:
        """Say what became of the runs. What is on the disk is all there is to know, so the answer is always ready."""
        asked = question(Find, body)
        return FindAnswer(
            ready=not self._node.folder.blind,
            boot=self._identity.boot,
            runs=await asyncio.to_thread(lambda: tuple(self._found(asked))),
        )

    async def stop(self, body: bytes) -> StopAnswer:
        """End a run; the asker has the ledger's word that its grant is over (G7)."""
        stop = question(Stop, body)
        run = self._node.folder.of_grant(stop.run, stop.epoch)
        if run is None:
            return StopAnswer(known=False)
        await asyncio.to_thread(self._node.end, run, stop.grace_seconds)
        return StopAnswer(known=True)

    async def seal(self, body: bytes) -> SealAnswer:
        """Look, now, whether a part is proved over. An error is ``cannot seal``, never silence and never a yes (G5)."""
        seal = question(Seal, body)
        why = await asyncio.to_thread(self._unlooked, seal) or await self._look(seal)
        run = self._node.folder.of_grant(seal.run, seal.epoch)
        evidence = run.evidence(self._identity.boot) if run else None
        log.info("asked for a seal", grant=seal.grant, epoch=seal.epoch, why=why.message if why else "")
        return SealAnswer(
            grant=seal.grant,
            epoch=seal.epoch,
            node=seal.node,
            revocation=seal.revocation,
            sealed=why is None,
            boot=self._identity.boot,
            devices=seal.devices,
            exit=evidence.exit if evidence else None,
            reason=why,
            observed_at=datetime.now(UTC),
        )

    async def holders(self, body: bytes) -> HoldersAnswer:
        """Say which runs hold devices here and what they were ordered to be. Not ready while a start waits (R12)."""
        asked = question(Holders, body)
        held = await asyncio.to_thread(self._held)
        waits = any(state_of(evidence) is RunState.WAITING for evidence in held)
        return HoldersAnswer(
            node=asked.node,
            boot=self._identity.boot,
            ready=not waits and not self._node.folder.blind and asked.node == self._identity.node,
            runs=tuple(HeldRun(instance=instance_id(evidence), order=evidence.order) for evidence in held),
        )

    async def mark(self, body: bytes) -> MarkAnswer:
        """Keep launches of a destination off, or no longer. Acknowledged when it is on the disk."""
        order = question(MarkOrder, body)
        why = await asyncio.to_thread(self._mark, order)
        log.info("marked", cluster=order.cluster, off=order.off, number=order.number, why=why.message if why else "")
        return MarkAnswer(
            node=order.node, cluster=order.cluster, number=order.number, acknowledged=why is None, reason=why
        )

    async def look(self, body: bytes) -> NodeLookAnswer:
        """Look, now, whether all devices are clear, of whoever's processes. What cannot be seen is not clear (M2)."""
        asked = question(NodeLook, body)
        devices, why = await asyncio.to_thread(self._look_all, asked)
        return NodeLookAnswer(
            node=asked.node,
            session=asked.session,
            clear=why is None,
            boot=self._identity.boot,
            devices=devices,
            reason=why,
            observed_at=datetime.now(UTC),
        )

    async def logs(self, body: bytes) -> LogsAnswer:
        """Return a piece of a replica's output."""
        asked = question(Logs, body)
        folders = self._node.folder.of_run(asked.run)
        if not folders:
            return LogsAnswer(known=False, text="", next_offset=asked.offset, ended=False)
        run, limit = folders[-1], min(asked.limit, LOGS_LIMIT)
        ended = state_of(run.evidence(self._identity.boot)) in (RunState.ENDED, RunState.BROKEN)
        read = await asyncio.to_thread(output.piece, run.path, asked.rank, asked.offset, limit)
        data, offset = read or (b"", asked.offset)
        return LogsAnswer(
            known=True, text=data.decode(errors="replace"), next_offset=offset, ended=ended and len(data) < limit
        )

    def _held(self) -> list[Evidence]:
        held = [run for run in self._node.folder.all_runs() if self._node.holds(run)]
        return [run.evidence(self._identity.boot) for run in held]

    def _launch(self, order: LaunchOrder, started: list[tuple[RunFolder, int]]) -> LaunchReply:
        why = self._refusal(order)
        if why is None:
            try:
                started += self._ensure_shim(order)
            except OSError as error:
                why = reason(Layer.NODE, Code.LAUNCH_REFUSED, f"the node could not start the run: {error}")
        log.info("launch", run=order.run, epoch=order.epoch, refused=why.code.value if why else "")
        return LaunchReply(run=order.run, grant=order.grant, accepted=why is None, reason=why)

    def _refusal(self, order: LaunchOrder) -> Reason | None:
        if order.node != self._identity.node:
            return reason(Layer.NODE, Code.LAUNCH_REFUSED, f"this is {self._identity.node}, not {order.node}")
        if self._node.folder.blind:
            return self._notices.blindness()
        if isinstance(self._owner, Reason):
            return self._owner
        mark = self._node.marks.of(order.cluster or self._identity.cluster)
        if mark is not None:
            return reason(Layer.NODE, Code.NOT_OWNER, f"marked for {mark.owner} ({mark.session})")
        return self._devices_missing(order)

    def _devices_missing(self, order: LaunchOrder) -> Reason | None:
        try:
            here = {device.device for device in self._node.devices.all()}
        except DevicesUnknownError as error:
            return reason(Layer.NODE, Code.DEVICE_NOT_CLEAR, str(error))
        missing = [each.device for replica in order.replicas for each in replica.devices if each.device not in here]
        return reason(Layer.NODE, Code.DEVICE_MISMATCH, f"not on this node: {', '.join(missing)}") if missing else None

    def _ensure_shim(self, order: LaunchOrder) -> list[tuple[RunFolder, int]]:
        run = self._node.folder.of_grant(order.run, order.epoch) or self._create(order)
        if state_of(run.evidence(self._identity.boot)) is not RunState.UNSTARTED:
            return []
        return [(run, processes.start_shim(run.path))]

    def _create(self, order: LaunchOrder) -> RunFolder:
        name, folder, owner = folder_name(order.run, order.epoch), self._node.folder, self._owner
        assert not isinstance(owner, Reason)
        place = Place(
            boot=self._identity.boot,
            mark=folder.mark(order.grant),
            device_folder=str(folder.devices),
            agent_socket=str(folder.socket),
            scratch=str(folder.make_scratch(name, owner)),
            cgroup=groups.make(self._node.groups_parent, name),
            owner=owner,
            visible={device.device: self._node.devices.visible(device) for device in self._node.devices.all()},
            lock_wait_seconds=self._settings.lock_wait_seconds,
            log_bytes=self._settings.log_bytes,
            traceparent=self._tracer.of_run(order.job, order.run, order.epoch, order.node).traceparent,
            master_addr=self._settings.master_addr,
        )
        return folder.create(name, shim_order(order, place, now=datetime.now(UTC)))

    def _found(self, asked: Find) -> list[FoundRun]:
        folder = self._node.folder
        runs = folder.all_runs() if not asked.runs else (each for run in asked.runs for each in folder.of_run(run))
        answers = (found(run.evidence(self._identity.boot)) for run in runs)
        return [answer for answer in answers if answer]

    def _mark(self, order: MarkOrder) -> Reason | None:
        if (why := self._cannot(order.node)) is not None:
            return why
        try:
            stands = self._node.marks.take(order)
        except OSError as error:
            return reason(Layer.NODE, Code.MARK_REFUSED, f"the mark cannot be kept: {error}")
        return None if stands else reason(Layer.NODE, Code.MARK_REFUSED, "a newer order says otherwise")

    def _look_all(self, asked: NodeLook) -> tuple[tuple[DeviceId, ...], Reason | None]:
        if (why := self._cannot(asked.node)) is not None:
            return (), why
        try:
            devices = tuple(device.device for device in self._node.devices.all())
            return devices, not_sealed(self._node.looks_for_move(devices))
        except (DevicesUnknownError, OSError, ValueError) as error:
            return (), _unseen(error)

    def _cannot(self, node: NodeId) -> Reason | None:
        if node != self._identity.node:
            return reason(Layer.NODE, Code.UNKNOWN, f"this is {self._identity.node}, not {node}")
        return self._notices.blindness() if self._node.folder.blind else None

    def _unlooked(self, seal: Seal) -> Reason | None:
        """Return why there is no use in looking; end the run where that is asked for."""
        if (why := self._cannot(seal.node)) is not None:
            return why
        try:
            run = self._node.folder.of_grant(seal.run, seal.epoch)
            if run and seal.stop:
                self._node.end(run, seal.grace_seconds)
        except (OSError, ValueError) as error:
            return _unseen(error)
        return None

    async def _look(self, seal: Seal) -> Reason | None:
        glance, marked = await asyncio.gather(self._looks.holders(), self._looks.marked())
        try:
            return not_sealed(await asyncio.to_thread(self._node.looks_for_seal, seal, glance, marked))
        except (OSError, ValueError) as error:
            return _unseen(error)


def _unseen(error: Exception) -> Reason:
    return reason(Layer.NODE, Code.UNKNOWN, f"the node cannot be looked at: {error}")


def run_owner(settings: Settings) -> Owner | Reason | None:
    """Return whom runs belong to. None: the agent's own user, who is not root. A reason: nobody fit to be it."""
    if os.getuid() != 0:
        return None
    owner = processes.user(settings.run_as)
    if owner is None:
        return reason(Layer.NODE, Code.ROOT_REFUSED, f"there is no user {settings.run_as} to run as")
    if owner.uid == 0 and not settings.allow_root:
        return reason(Layer.NODE, Code.ROOT_REFUSED, "runs would be root, which this node does not allow")
    return owner
