"""The cycle's working copy of the columns: where a gang fits best, and what is left after it was placed."""

from dataclasses import dataclass, field

import numpy as np

from libs.resources.columns import Column, replicas_that_fit, sum_by_group
from schemas.ids import ClusterId, NodeId
from schemas.workload import Demand
from services.placement.core.comeback import Comeback
from services.placement.core.view import Domains, FleetView, ladder


@dataclass(frozen=True, slots=True)
class Ask:
    """What one replica takes of its node."""

    gpu_class: str
    devices: int
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken off the columns, by the places of nodes in the view."""

    gpu_class: str
    at: Column
    devices: Column
    cpu_milli: Column
    memory_mib: Column

    @property
    def total(self) -> int:
        """Devices on all of them."""
        return int(self.devices.sum())


@dataclass(slots=True)
class _Fit:
    """How many replicas of one ask each node holds, and their sums over the domains looked at so far."""

    nodes: Column
    sums: dict[tuple[str | None, int], Column] = field(default_factory=dict)


class Board:
    """Columns that shrink while gangs are placed. ``empty`` True: as if nothing were used or held back.

    Placing costs one look at the domains of a level and at the nodes of one domain; a placed gang changes its own
    nodes' numbers only.
    """

    def __init__(self, view: FleetView, *, empty: bool = False) -> None:
        self.view = view
        self.free = {name: (stock.exist if empty else stock.free).copy() for name, stock in view.stock.items()}
        self.cpu = (view.cpu_exist if empty else view.cpu_free).copy()
        self.memory = (view.memory_exist if empty else view.memory_free).copy()
        self._places: dict[tuple[NodeId, ClusterId], int] = {}
        self._fits: dict[Ask, _Fit] = {}
        self._ladders: dict[str | None, tuple[Domains, ...]] = {}
        self._members: dict[tuple[str | None, int], list[Column]] = {}
        self._free_sums: dict[tuple[str, str | None, int], Column] = {}

    def find(self, gpu_class: str, demand: Demand) -> list[tuple[int, int]] | None:
        """Return (node, replicas) for the whole gang, or None. Narrow levels first, the fewest leftover devices wins.

        Names break ties, so that replays agree.
        """
        if gpu_class not in self.free:
            return None
        ask = ask_of(gpu_class, demand)
        steps = self._ladder(demand.topology_level)
        if demand.topology_level and demand.topology_required:
            steps = steps[:1] if len(steps) > 1 else ()
        for step in range(len(steps)):
            fits = self._sums(ask, demand.topology_level, step)
            able = fits >= demand.replicas
            if not able.any():
                continue
            left = np.where(able, self._free_sum(gpu_class, demand.topology_level, step), np.iinfo(np.int64).max)
            domain = int(left.argmin())  # the first of equals: the lowest name
            members = self._domain_members(demand.topology_level, step)[domain]
            return self._fill(ask, members, demand.replicas)
        return None

    def largest(self, gpu_class: str, demand: Demand) -> int:
        """Return the devices that the best domain of the required level, or the best cluster, could give the gang."""
        if gpu_class not in self.free:
            return 0
        steps = self._ladder(demand.topology_level)
        step = 0 if demand.topology_required and len(steps) > 1 else len(steps) - 1
        if demand.topology_level and demand.topology_required and len(steps) == 1:
            return 0
        fits = self._sums(ask_of(gpu_class, demand), demand.topology_level, step)
        return int(fits.max(initial=0)) * demand.devices_per_replica

    def take(self, ask: Ask, nodes: list[tuple[int, int]]) -> None:
        """Take the replicas off the columns. O(nodes of the gang x shapes seen)."""
        at = np.array([node for node, _ in nodes], dtype=np.int64)
        replicas = np.array([count for _, count in nodes], dtype=np.int64)
        each = (ask.devices, ask.cpu_milli, ask.memory_mib)
        self._take(Taken(ask.gpu_class, at, *(replicas * amount for amount in each)))

    def keep(self, comeback: Comeback) -> Taken:
        """Take what is free now of what is held for a job, and return it."""
        self._places = self._places or {(row.node, row.cluster): at for at, row in enumerate(self.view.nodes)}
        known = [room for room in comeback.rooms if (room.node, comeback.cluster) in self._places]
        at = np.array([self._places[room.node, comeback.cluster] for room in known], dtype=np.int64)
        free = self.free.get(comeback.gpu_class, np.zeros(len(self.view.nodes), dtype=np.int64))
        devices = np.minimum([room.devices for room in known], free[at]).astype(np.int64)
        cpu = np.where(devices > 0, np.minimum([room.cpu_milli for room in known], self.cpu[at]), 0)
        memory = np.where(devices > 0, np.minimum([room.memory_mib for room in known], self.memory[at]), 0)
        taken = Taken(comeback.gpu_class, at, devices, np.maximum(cpu, 0), np.maximum(memory, 0))
        if taken.total:
            self._take(taken)
        return taken

    def give_back(self, taken: Taken) -> None:
        """Undo a taking."""
        if taken.total:
            self._take(Taken(taken.gpu_class, taken.at, -taken.devices, -taken.cpu_milli, -taken.memory_mib))

    def _take(self, taken: Taken) -> None:
        at = taken.at
        self.free[taken.gpu_class][at] -= taken.devices
        self.cpu[at] -= taken.cpu_milli
        self.memory[at] -= taken.memory_mib
        for (gpu_class, level, step), sums in self._free_sums.items():
            if gpu_class == taken.gpu_class:
                _add(sums, self._ladder(level)[step].group[at], -taken.devices)
        for other, fit in self._fits.items():
            now = self._fit_of(other, at)
            change = now - fit.nodes[at]
            fit.nodes[at] = now
            for (level, step), sums in fit.sums.items():
                _add(sums, self._ladder(level)[step].group[at], change)

    def _fill(self, ask: Ask, members: Column, replicas: int) -> list[tuple[int, int]]:
        """One node that holds all and keeps least; else the largest nodes whole, and the tightest for the rest."""
        fits, free = self._fit(ask).nodes[members], self.free[ask.gpu_class][members]
        order = np.lexsort((members, -fits))  # most replicas first, then by name
        chosen: list[tuple[int, int]] = []
        for position in order:
            tight = _tightest(fits, free, replicas)
            if tight is not None:
                chosen.append((int(members[tight]), replicas))
                break
            chosen.append((int(members[position]), int(fits[position])))
            replicas -= int(fits[position])
            fits = np.where(np.arange(len(fits)) == position, 0, fits)
        return sorted(chosen)

    def _fit(self, ask: Ask) -> _Fit:
        if ask not in self._fits:
            self._fits[ask] = _Fit(self._fit_of(ask, np.arange(len(self.view.nodes))))
        return self._fits[ask]

    def _fit_of(self, ask: Ask, at: Column) -> Column:
        columns = (self.free[ask.gpu_class][at], self.cpu[at], self.memory[at])
        return replicas_that_fit(columns, (ask.devices, ask.cpu_milli, ask.memory_mib))

    def _sums(self, ask: Ask, level: str | None, step: int) -> Column:
        fit = self._fit(ask)
        if (level, step) not in fit.sums:
            domains = self._ladder(level)[step]
            fit.sums[level, step] = sum_by_group(fit.nodes, domains.group, len(domains.names))
        return fit.sums[level, step]

    def _free_sum(self, gpu_class: str, level: str | None, step: int) -> Column:
        key = (gpu_class, level, step)
        if key not in self._free_sums:
            domains = self._ladder(level)[step]
            self._free_sums[key] = sum_by_group(self.free[gpu_class], domains.group, len(domains.names))
        return self._free_sums[key]

    def _domain_members(self, level: str | None, step: int) -> list[Column]:
        if (level, step) not in self._members:
            domains = self._ladder(level)[step]
            order = np.argsort(domains.group, kind="stable")
            bounds = np.searchsorted(domains.group[order], np.arange(len(domains.names) + 1))
            self._members[level, step] = [order[bounds[i] : bounds[i + 1]] for i in range(len(domains.names))]
        return self._members[level, step]

    def _ladder(self, level: str | None) -> tuple[Domains, ...]:
        if level not in self._ladders:
            self._ladders[level] = ladder(self.view, level)
        return self._ladders[level]


def ask_of(gpu_class: str, demand: Demand) -> Ask:
    """Return what one replica of a demand takes."""
    return Ask(gpu_class, demand.devices_per_replica, demand.cpu_milli_per_replica, demand.memory_mib_per_replica)


def _tightest(fits: Column, free: Column, replicas: int) -> int | None:
    """The member that holds all these replicas and has the fewest devices; the first of equals."""
    able = fits >= replicas
    if not able.any():
        return None
    return int(np.where(able, free, np.iinfo(np.int64).max).argmin())


def _add(sums: Column, group: Column, change: Column) -> None:
    member = group >= 0
    np.add.at(sums, group[member], change[member])
