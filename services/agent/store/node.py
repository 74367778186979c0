"""Looking at one node: is a device clear for a start, is a part proved over (G3, G5)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.calls import Seal
from schemas.ids import DeviceId, GrantId
from services.agent.core.proofs import Look
from services.agent.core.runs import Instance, RunState, devices_of, state_of
from services.agent.store import groups, processes
from services.agent.store.devices import Devices
from services.agent.store.folder import RunFolder, RuntimeFolder, folder_name
from services.agent.store.holders import Scan
from services.agent.store.locks import DeviceLocks
from services.agent.store.marks import Marks

ALIVE = (RunState.WAITING, RunState.RUNNING)


class Node:
    """The proofs of one node. Every call looks again; nothing is remembered."""

    def __init__(self, folder: RuntimeFolder, devices: Devices, groups_parent: Path | None) -> None:
        self.folder, self.devices, self.groups_parent = folder, devices, groups_parent
        self.locks = DeviceLocks(folder.devices)
        self.marks = Marks(folder.path)

    def marked(self) -> Mapping[str, Sequence[int]] | None:
        """Look once for the processes of every grant, by mark; None when they cannot be listed."""
        try:
            return processes.all_marked()
        except OSError:
            return None

    def looks_for_start(self, asker: RunFolder, instance: Instance, glance: Scan | None = None) -> list[Look]:
        """Look whether the devices are clear for the shim that asks with their locks in its hands.

        ``glance``: who holds any device, looked at after the shim asked.
        """
        devices = devices_of(asker.order)
        return [
            self.locks.open_elsewhere(devices, owner=instance.pid, glance=glance),
            self.devices.look(devices),
            *(self._remains(other) for other in self._others(asker, devices)),
        ]

    def looks_for_seal(
        self, seal: Seal, glance: Scan | None = None, marked: Mapping[str, Sequence[int]] | None = None
    ) -> list[Look]:
        """Look whether anything of this grant, or anyone on its devices, is left.

        ``glance``, ``marked``: who holds any device and who is of any grant, looked at after the seal was asked for.
        """
        run = self.folder.of_grant(seal.run, seal.epoch)
        return [
            self._life(run),
            self._remains(run) if run else self._group(self.group_of(seal)),
            self._marked(seal.grant, marked),
            self.locks.taken(seal.devices),
            self.locks.open_elsewhere(seal.devices, glance=glance),
            self.devices.look(seal.devices),
        ]

    def looks_for_move(self, devices: Sequence[DeviceId]) -> list[Look]:
        """Look whether anyone at all is on these devices, or may come by a start that is on its way."""
        runs = list(self.folder.unrecorded())
        marked = self.marked()
        return [
            *(look for run in runs for look in (self._life(run), self._remains(run))),
            *(self._marked(run.order.grant, marked) for run in runs),
            self.locks.taken(devices),
            self.locks.open_elsewhere(devices),
            self.devices.look(devices),
        ]

    def holds(self, run: RunFolder) -> bool:
        """Say whether a run lives, or may: one that lost its shim holds its devices until nothing is left of it."""
        try:
            state = state_of(run.evidence(self.folder.boot))
        except FileNotFoundError:  # dropped meanwhile, as only what is over is
            return False
        if state is not RunState.BROKEN:
            return state in ALIVE
        return any(look != Look() for look in (self._remains(run), self._marked(run.order.grant)))

    def group_of(self, seal: Seal) -> Path | None:
        """Return where a run's control group would be."""
        return self.groups_parent / folder_name(seal.run, seal.epoch) if self.groups_parent else None

    def end(self, run: RunFolder, grace_seconds: int) -> None:
        """End a run: ask its shim, or kill what is left of it without one. Raises OSError."""
        evidence = run.evidence(self.folder.boot)
        state = state_of(evidence)
        if state is RunState.BROKEN:
            self.kill_remains(run)
        elif state in ALIVE and evidence.instance:
            run.ask_stop(grace_seconds)
            processes.terminate(evidence.instance)

    def cancel(self, run: RunFolder, who: str) -> bool:
        """End a run past Triplane, by a person on this node; False when no shim of it lives. Raises OSError."""
        evidence = run.evidence(self.folder.boot)
        if state_of(evidence) not in ALIVE or evidence.instance is None:
            return False
        run.ask_stop(evidence.order.work.grace_seconds, cancelled_by=who)
        processes.terminate(evidence.instance)
        return True

    def drop(self, run: RunFolder) -> None:
        """Remove what is kept of a run that is over. Raises OSError."""
        group = run.shim_order["cgroup"]
        groups.leave(Path(group) if group else None)
        self.folder.drop(run)

    def kill_remains(self, run: RunFolder) -> None:
        """Kill what a run left behind when its shim died. Raises OSError."""
        group = run.shim_order["cgroup"]
        if group:
            groups.kill(Path(group))
        processes.kill_marked(self.folder.mark(run.order.grant))

    def _others(self, asker: RunFolder, devices: Sequence[DeviceId]) -> list[RunFolder]:
        """Return earlier runs on these devices of which something may be left; a shim records an end only after it."""
        wanted = set(devices)
        runs = (run for run in self.folder.unrecorded() if run.path != asker.path)
        return [run for run in runs if wanted.intersection(devices_of(run.order))]

    def _life(self, run: RunFolder | None) -> Look:
        if run and state_of(run.evidence(self.folder.boot)) in ALIVE:
            return Look(busy=(f"the shim of {run.path.name} lives",))
        return Look()

    def _remains(self, run: RunFolder) -> Look:
        """Look for what is left of a run without its shim; of an earlier boot nothing is."""
        instance = run.instance
        if instance and instance.boot != self.folder.boot:
            return Look()
        group = run.shim_order["cgroup"]
        if group:
            return self._group(Path(group))
        if state_of(run.evidence(self.folder.boot)) is not RunState.BROKEN:
            return Look()
        return Look(unknown=(f"{run.path.name} lost its shim and had no control group: its processes cannot be told",))

    def _group(self, group: Path | None) -> Look:
        try:
            return Look(busy=(f"{group} is not empty",)) if group and groups.populated(group) else Look()
        except OSError as error:
            return Look(unknown=(f"{group}: {error}",))

    def _marked(self, grant: GrantId, marked: Mapping[str, Sequence[int]] | None = None) -> Look:
        try:
            found = (processes.all_marked() if marked is None else marked).get(self.folder.mark(grant), ())
            return Look(busy=tuple(f"process {pid} belongs to the grant" for pid in found))
        except OSError as error:
            return Look(unknown=(f"the processes cannot be listed: {error}",))
