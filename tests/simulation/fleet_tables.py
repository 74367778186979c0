"""What placement's ledger knows of clusters, nodes, boots and devices, in memory; see ``ledger``."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from schemas.calls import Hello
from schemas.fleet import Mark, MarkEffect, NodeInfo
from schemas.ids import ClusterId, DeviceId, GrantId, NodeId
from schemas.runtime import ObservationReported
from schemas.workload import GrantedDevice
from services.placement.core.decide import Placement
from services.placement.core.silence import Heard, Silence
from services.placement.store.nodes import Boots
from tests.simulation.hold_tables import HoldTables

Boot = tuple[NodeId, str]


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A row of ``nodes``."""

    info: NodeInfo
    stale: bool
    version: int
    flagged_at: datetime
    heard_at: datetime | None
    retired: bool = False
    flag_version: int = 0
    suspect_since: datetime | None = None
    blind: bool = False

    @property
    def marks(self) -> tuple[Mark, ...]:
        """The marks on the node."""
        return self.info.marks

    @property
    def drained(self) -> bool:
        """Whether a mark says that the old work is to end, too."""
        return any(mark.effect is MarkEffect.DRAIN for mark in self.info.marks)

    @property
    def offers(self) -> bool:
        """Whether the wall lets new grants onto the node."""
        silent = self.stale or self.retired or self.blind or self.suspect_since is not None
        return self.info.reported and not silent and not self.info.marks


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """A row of ``devices``."""

    slot: GrantedDevice
    node: NodeId
    gpu_class: str | None
    owner: ClusterId
    owner_epoch: int = 1
    last_epoch: int = 0
    unmanaged: bool = False
    retired: bool = False


@dataclass(frozen=True, slots=True)
class BootEntry:
    """A row of ``boots``."""

    incarnation: str
    ended: bool = False


@dataclass(slots=True)
class FleetTables:
    """The rows by their keys."""

    levels: dict[ClusterId, tuple[int, tuple[str, ...]]] = field(default_factory=dict)
    nodes: dict[NodeId, NodeEntry] = field(default_factory=dict)
    devices: dict[DeviceId, DeviceEntry] = field(default_factory=dict)
    boots: dict[Boot, BootEntry] = field(default_factory=dict)
    listened_at: datetime | None = None
    held: dict[NodeId, frozenset[tuple[GrantId, str]]] = field(default_factory=dict)
    holds: HoldTables = field(default_factory=HoldTables)
    boots_from: int = 0  # what is told of boots after the ledger went back is above all that was told before

    def copy(self) -> "FleetTables":
        """Return what a transaction may change without being seen."""
        return type(self)(
            *(dict(self.levels), dict(self.nodes), dict(self.devices), dict(self.boots)),
            *(self.listened_at, dict(self.held), self.holds.copy(), self.boots_from),
        )

    def declare_clusters(self, clusters: Sequence[tuple[ClusterId, str, str, tuple[str, ...], int]]) -> None:
        """Note destinations; older versions change nothing."""
        for cluster, _, _, levels, version in clusters:
            if version > self.levels.get(cluster, (-1, ()))[0]:
                self.levels[cluster] = (version, levels)

    def declare_nodes(self, infos: Sequence[tuple[NodeInfo, int]], now: datetime) -> None:
        """Note nodes whole; of one node the highest version stands."""
        newest = {info.node: (info, version) for info, version in sorted(infos, key=lambda item: item[1])}
        taken = [info for info, version in newest.values() if self._take(info, version, now)]
        self._declare_devices(taken)
        for info in taken:
            self.holds.outlive(info.node, info.owner_epoch)

    def flag_nodes(self, flags: Sequence[tuple[NodeId, int, bool, bool]], now: datetime) -> None:
        """Note that nodes went stale, freshened or were retired; of one node the highest version stands."""
        for node, version, stale, retired in sorted(flags, key=lambda flag: flag[1]):
            known = self.nodes.get(node)
            if known and known.flag_version < version and known.version < version:
                self.nodes[node] = replace(known, stale=stale, retired=retired, flag_version=version, flagged_at=now)

    def heard(self, reports: Sequence[ObservationReported], now: datetime) -> None:
        """Note that nodes reported; a report of a boot that has ended says nothing."""
        newest = {report.node: report for report in sorted(reports, key=lambda report: report.sequence)}
        for node, report in newest.items():
            boot = self.boots.get((node, report.boot))
            if node in self.nodes and not (boot and boot.ended):
                self.nodes[node] = replace(self.nodes[node], heard_at=now, blind=report.blind is not None)
                self.held[node] = frozenset((holder.grant, holder.instance) for holder in report.holders)
        foreign = {use.device for report in newest.values() for use in report.unmanaged}
        for device, entry in self.devices.items():
            if entry.node in newest and entry.unmanaged != (device in foreign):
                self.devices[device] = replace(entry, unmanaged=device in foreign)

    def register_boots(self, hellos: Sequence[Hello]) -> Boots:
        """Take the boots of agents that say hello and have heard how many boots are known (R6)."""
        known: set[Boot] = set()
        ended: dict[NodeId, frozenset[str]] = {}
        refused: dict[NodeId, int] = {}
        for node, hello in {hello.node: hello for hello in hellos}.items():
            entry = self.boots.get((node, hello.boot))
            if entry is not None and entry.incarnation != hello.incarnation:
                known.add((node, hello.boot))
            if entry is not None and (entry.incarnation or entry.ended):
                continue
            count = self.boots_from + sum(other == node for other, _ in self.boots)
            if self.may_take(hello, count):
                self.boots[node, hello.boot] = BootEntry(hello.incarnation)
                ended |= self._end_others(node, hello.boot)
            else:
                refused[node] = count
        return Boots(frozenset(known), ended, refused)

    def note_boots(self, boots: Iterable[Boot]) -> None:
        """Make boots known that claims name; they end no other."""
        for boot in boots:
            self.boots.setdefault(boot, BootEntry(""))

    def ended_boots(self, nodes: Collection[NodeId]) -> dict[NodeId, set[str]]:
        """Return the boots of these nodes that have ended."""
        return {
            node: {boot for (other, boot), entry in self.boots.items() if other == node and entry.ended}
            for node in nodes
        }

    def listen(self, now: datetime) -> float:
        """Note that somebody can hear now; return the seconds since it was last noted."""
        before, self.listened_at = self.listened_at or now, now
        return (now - before).total_seconds()

    def shift(self, seconds: float, now: datetime) -> None:
        """Let nobody's silence count so many seconds."""
        for node, entry in self.nodes.items():
            if entry.heard_at is not None:
                at = min(entry.heard_at + timedelta(seconds=seconds), now)
                self.nodes[node] = replace(entry, heard_at=at)

    def go_back(self, now: datetime) -> None:
        """Let the silence of each node count from now, and no number of boots be told again."""
        self.boots_from = int(now.timestamp() * 1_000_000)
        for node, entry in self.nodes.items():
            if entry.heard_at is not None:
                self.nodes[node] = replace(entry, heard_at=now)

    def listening(self) -> list[Heard]:
        """Return when each node was last heard."""
        return [
            Heard(node, entry.info.owned_by, entry.heard_at, entry.suspect_since is not None)
            for node, entry in self.nodes.items()
            if not entry.retired
        ]

    def mark_silence(self, silence: Silence, now: datetime) -> None:
        """Mark the nodes that fell silent, and unmark those that are heard again."""
        for node in silence.suspect:
            known = self.nodes[node]
            self.nodes[node] = replace(known, suspect_since=known.suspect_since or now)
        for node in silence.fresh:
            self.nodes[node] = replace(self.nodes[node], suspect_since=None)

    def is_as_decided(self, placement: Placement) -> bool:
        """Whether every node of a placement is whose it was, by its owner epoch (M4), and no move keeps it (M1)."""
        return all(
            (entry := self.devices.get(device.device)) is not None
            and (entry.owner, entry.owner_epoch) == (placement.cluster, part.node.owner_epoch)
            and not self.is_kept(entry.node)
            for part in placement.parts
            for slot in part.replicas
            for device in slot.devices
        )

    def is_kept(self, node: NodeId) -> bool:
        """Whether a move keeps a node from new work."""
        return self.holds.on(node) is not None

    def raise_epochs(self, epochs: Mapping[DeviceId, int]) -> None:
        """Note the epochs of the devices that were just granted."""
        for device, epoch in epochs.items():
            self.devices[device] = replace(self.devices[device], last_epoch=epoch)

    def may_take(self, hello: Hello, count: int) -> bool:
        """Whether who says hello has heard how many boots of its node are known, and so lives after them."""
        return hello.boots == count

    def _take(self, info: NodeInfo, version: int, now: datetime) -> bool:
        known, heard_at = self.nodes.get(info.node), now if info.reported else None
        if known is None:
            self.nodes[info.node] = NodeEntry(info, info.stale, version, now, heard_at)
        elif known.version < version:
            self.nodes[info.node] = replace(
                known,
                info=info,
                version=version,
                heard_at=known.heard_at or heard_at,
                stale=info.stale if known.flag_version < version else known.stale,
                retired=known.retired and known.flag_version > version,
            )
        return known is None or known.version < version

    def _declare_devices(self, infos: Sequence[NodeInfo]) -> None:
        nodes = {info.node for info in infos}
        named = {device.device for info in infos for device in info.devices}
        for key, entry in self.devices.items():
            if entry.node in nodes and key not in named and not entry.retired:
                self.devices[key] = replace(entry, retired=True)
        pairs = [(info, device) for info in infos for device in info.devices]
        for info, device in sorted(pairs, key=lambda pair: pair[1].device):
            known = self.devices.get(device.device)
            ordinal = known.slot.ordinal if known else len(self.devices) + 1
            slot = GrantedDevice(device=device.device, index=device.index, ordinal=ordinal)
            fresh = known or DeviceEntry(slot, info.node, device.gpu_class, info.owned_by, info.owner_epoch)
            if fresh.owner_epoch < info.owner_epoch:  # an owner is newer by its epoch alone (M4)
                fresh = replace(fresh, owner=info.owned_by, owner_epoch=info.owner_epoch)
            self.devices[device.device] = replace(
                fresh, slot=slot, node=info.node, gpu_class=device.gpu_class, retired=False
            )

    def _end_others(self, node: NodeId, boot: str) -> dict[NodeId, frozenset[str]]:
        others = [key for key, entry in self.boots.items() if key[0] == node and key[1] != boot and not entry.ended]
        for key in others:
            self.boots[key] = replace(self.boots[key], ended=True)
        return {node: frozenset(key[1] for key in others)} if others else {}
