"""What the agent says: the hello, the report every ten seconds, and at once when a run starts or ends."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from libs.log import get_logger
from libs.service import Service
from schemas.base import Envelope, Event, fact_type
from schemas.calls import Hello, Verdict
from schemas.ids import DeviceId, fact_id
from schemas.reasons import Code, Layer, Reason, reason
from schemas.runtime import Holder, ObservationNoticed, ObservationReported, ObservedDevice, RunEvent, UnmanagedUse
from services.agent.core.identity import Identity
from services.agent.core.runs import Evidence, RunState, holder, instance_id, state_of
from services.agent.handlers.asking import greet
from services.agent.settings import MIB, Settings
from services.agent.store import processes
from services.agent.store.devices import DevicesUnknownError
from services.agent.store.folder import RunFolder
from services.agent.store.node import Node

STOP_GRACE_SECONDS: Final = 30  # of a run that the ledger does not hold any more
UNMANAGED_LIMIT: Final = 100  # of processes named in one report
log = get_logger(__name__)


class Notices:
    """Watches the runs of one node and says what it sees."""

    def __init__(self, service: Service, identity: Identity, node: Node, settings: Settings) -> None:
        self._service, self._identity, self._node, self._settings = service, identity, node, settings
        self._sequence = 0
        self._greeted = self._reported = False
        self._devices: tuple[ObservedDevice, ...] = ()
        self._watched: dict[str, asyncio.Task[None]] = {}
        self._settled: set[str] = set()
        self.wake: Callable[[], None] = _nothing

    @property
    def watched(self) -> int:
        """How many runs have a shim that lives."""
        return len(self._watched)

    def watch_all(self) -> None:
        """Watch every run that has a shim: also those that an earlier agent started."""
        for run in self._unsettled():
            if run.path.name not in self._watched:
                evidence = run.evidence(self._identity.boot)
                shim = processes.adopt(evidence.instance) if evidence.instance and evidence.alive else None
                if shim is not None:
                    self.watch(run, shim)

    def watch(self, run: RunFolder, shim: int) -> None:
        """Wait for the end of a shim by its pidfd; the run's folder says the rest."""
        name = run.path.name if run.path.name not in self._watched else f"{run.path.name} {shim}"
        self._watched[name] = asyncio.get_running_loop().create_task(self._watch(name, shim))

    async def close(self) -> None:
        """Stop watching; the shims go on."""
        for task in list(self._watched.values()):
            task.cancel()
        await asyncio.gather(*self._watched.values(), return_exceptions=True)

    async def notice(self) -> None:
        """Say of each run, once, that it started and that it ended. Raises UnavailableError; nothing is lost then."""
        self.watch_all()
        said = [(run, what, fact) for run in self._unsettled() for what, fact in self._news(run)]
        if said:
            await self._service.publish([fact for _, _, fact in said])
        for run, what, _ in said:
            run.note_told(what)

    async def report(self) -> None:
        """Say the heartbeat; the first of this agent's life is the hello. Raises UnavailableError."""
        report = await asyncio.to_thread(self._report)
        identity = fact_id(fact_type(ObservationReported), f"{self._identity.incarnation}", report.sequence)
        await self._service.publish([self._envelope(report, identity, report.sequence)])
        self._reported = True

    async def greet(self) -> None:
        """Tell the ledger which grants hold devices here, once, and do what it says of each (G6, G7)."""
        if self._greeted:
            return
        folder = self._node.folder
        hello = Hello(
            node=self._identity.node,
            cluster=self._identity.cluster,
            boot=self._identity.boot,
            # until the answer is kept every agent of a new folder is one: or a lost answer would make the node blind
            incarnation=folder.id if folder.fresh else self._identity.incarnation,
            holders=await asyncio.to_thread(self._holders),
        )
        said = await greet(self._service, hello)
        if folder.fresh:
            folder.confirm(blind=said.boot_known)
        stopped = {verdict.grant for verdict in said.verdicts if verdict.verdict is Verdict.STOP}
        await asyncio.to_thread(self._stop, [each for each in hello.holders if each.grant in stopped])
        self._greeted = True
        log.info("greeted", holders=len(hello.holders), stopped=len(stopped), boot_known=said.boot_known)

    async def tidy(self) -> None:
        """Remove the folders of runs that ended long ago, and of too many."""
        self._settled -= await asyncio.to_thread(self._drop_old)

    def blindness(self) -> Reason:
        """Return why this node takes nothing."""
        message = "the runtime folder is gone, or newer than this boot: starts could be hidden from the agent"
        return reason(Layer.NODE, Code.NODE_BLIND, message)

    async def _watch(self, name: str, shim: int) -> None:
        await processes.ended(shim)
        del self._watched[name]
        self.wake()

    def _unsettled(self) -> Iterator[RunFolder]:
        for run in self._node.folder.all_runs(besides=self._settled):
            if run.told("ended") and not self._node.holds(run):
                self._settled.add(run.path.name)
            else:
                yield run

    def _news(self, run: RunFolder) -> Iterator[tuple[str, Envelope]]:
        evidence = run.evidence(self._identity.boot)
        if evidence.started and not run.told("started"):
            yield "started", self._noticed(evidence, RunEvent.STARTED)
        if state_of(evidence) in (RunState.ENDED, RunState.BROKEN) and not run.told("ended"):
            yield "ended", self._noticed(evidence, RunEvent.ENDED)

    def _drop_old(self) -> set[str]:
        runs = [run for run in self._node.folder.all_runs() if run.told("ended") and not self._node.holds(run)]
        ages = sorted((run.age_seconds(), run.path.name, run.path) for run in runs)
        old = [
            path
            for place, (age, _, path) in enumerate(ages)
            if age > self._settings.retain_seconds or place >= self._settings.retain_runs
        ]
        for path in old:
            self._node.drop(RunFolder(path))
        return {path.name for path in old}

    def _noticed(self, evidence: Evidence, event: RunEvent) -> Envelope:
        order, instance = evidence.order, instance_id(evidence)
        fact = ObservationNoticed(
            node=order.node,
            cluster=self._identity.cluster,
            boot=evidence.instance.boot if evidence.instance else self._identity.boot,
            grant=order.grant,
            epoch=order.epoch,
            job=order.job,
            attempt=order.attempt,
            run=order.run,
            instance=instance,
            event=event,
            exit=evidence.exit if event is RunEvent.ENDED else None,
            observed_at=datetime.now(UTC),
        )
        identity = fact_id(fact_type(ObservationNoticed), f"{order.node}/{instance}/{event.value}", order.epoch)
        return self._envelope(fact, identity, self._next())

    def _report(self) -> ObservationReported:
        blind = self.blindness() if self._node.folder.blind else None
        try:
            self._devices = self._node.devices.all()
        except DevicesUnknownError as error:
            blind = blind or reason(Layer.NODE, Code.NODE_BLIND, str(error))
        held = self._holders()
        return ObservationReported(
            node=self._identity.node,
            cluster=self._identity.cluster,
            cluster_name=self._identity.cluster_name,
            node_name=self._identity.node_name,
            machine=self._identity.machine,
            boot=self._identity.boot,
            incarnation=self._identity.incarnation,
            sequence=self._next(),
            hello=not self._reported,
            devices=self._devices,
            holders=held,
            unmanaged=tuple(self._unmanaged({device for each in held for device in each.devices}))[:UNMANAGED_LIMIT],
            blind=blind,
            cpu_milli=self._settings.cpu_milli or (os.cpu_count() or 1) * 1_000,
            memory_mib=self._settings.memory_mib or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
            observed_at=datetime.now(UTC),
        )

    def _holders(self) -> tuple[Holder, ...]:
        held = (run for run in self._unsettled() if self._node.holds(run))
        return tuple(holder(run.evidence(self._identity.boot)) for run in held)

    def _unmanaged(self, held: set[DeviceId]) -> Iterator[UnmanagedUse]:
        """Yield who uses a device that no run holds."""
        idle = [device.device for device in self._devices if device.device not in held]
        for users in (self._node.locks.users(idle), self._node.devices.users(idle)) if idle else ():
            for device, pids in users.items():
                for pid in sorted(pids):
                    yield UnmanagedUse(device=device, pid=pid, command=processes.command(pid))

    def _stop(self, held: list[Holder]) -> None:
        for each in held:
            run = self._node.folder.of_grant(each.run, each.epoch)
            if run:
                self._node.end(run, STOP_GRACE_SECONDS)

    def _envelope(self, fact: Event, identity: UUID, version: int) -> Envelope:
        return Envelope(
            id=identity,
            type=fact_type(type(fact)),
            source="agent",
            time=datetime.now(UTC),
            scope=self._identity.cluster,
            key=self._identity.node,
            version=version,
            data=fact,
        )

    def _next(self) -> int:
        """Return the next number: rising, also over a restart, without a memory of the last."""
        self._sequence = max(self._sequence + 1, time.time_ns() // 1_000)
        return self._sequence


def _nothing() -> None:
    """Wake nobody: no loop is there yet."""
