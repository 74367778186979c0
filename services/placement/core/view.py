"""The fleet as columns: what every node offers, holds back and has in all. Frozen; built once a cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import numpy as np

from libs.resources.columns import Column
from schemas.ids import ClusterId, NodeId
from schemas.workload import GrantedDevice

NODE_LEVEL: Final = "node"  # every cluster has it, narrowest of all


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a node offers nothing: by whom, what for, since when."""

    owner: str
    reason: str
    since: datetime | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node without its devices. ``held`` None: what is free on it is offered. ``cluster`` is its owner now."""

    node: NodeId
    name: str
    cluster: ClusterId
    place: Mapping[str, str] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    cpu_milli_used: int = 0
    memory_mib_used: int = 0
    held: Hold | None = None
    owner_epoch: int = 1


@dataclass(frozen=True, slots=True)
class StockRow:
    """The devices of one class on one node: those without a line, how many exist, how many await proof of release."""

    node: NodeId
    gpu_class: str
    free: tuple[GrantedDevice, ...]
    exist: int
    releasing: int = 0


@dataclass(frozen=True, slots=True)
class Stock:
    """One class as columns over the nodes. ``free`` is what is offered; ``held`` is free but on nodes that are held."""

    free: Column
    held: Column
    exist: Column
    releasing: Column
    devices: Mapping[int, tuple[GrantedDevice, ...]]


@dataclass(frozen=True, slots=True)
class Domains:
    """A topology level: the domain of every node (-1: in none) and the domains' names; number order is name order."""

    group: Column
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the ledger says of the fleet at one moment. Nodes are in the order of cluster, place and name."""

    nodes: tuple[NodeRow, ...]
    levels: Mapping[ClusterId, tuple[str, ...]]
    stock: Mapping[str, Stock]
    cpu_free: Column
    memory_free: Column
    cpu_exist: Column
    memory_exist: Column


def build(
    levels: Mapping[ClusterId, tuple[str, ...]], nodes: Sequence[NodeRow], stock: Sequence[StockRow]
) -> FleetView:
    """Return the view of these rows. Levels are from the widest to the narrowest. O(nodes x classes)."""
    ordered = tuple(sorted(nodes, key=lambda row: (_path(levels, row), row.name, row.node)))
    index = {row.node: i for i, row in enumerate(ordered)}
    by_class: dict[str, list[StockRow]] = {}
    for row in stock:
        by_class.setdefault(row.gpu_class, []).append(row)
    cpu, memory = _column([row.cpu_milli for row in ordered]), _column([row.memory_mib for row in ordered])
    return FleetView(
        ordered,
        levels,
        {name: _stock(ordered, index, rows) for name, rows in by_class.items()},
        cpu - _column([row.cpu_milli_used for row in ordered]),
        memory - _column([row.memory_mib_used for row in ordered]),
        cpu,
        memory,
    )


def ladder(view: FleetView, level: str | None) -> tuple[Domains, ...]:
    """Return the levels from ``level`` to the whole cluster, each wider than the one before; None: the cluster alone.

    A step follows each cluster's own levels, so that one step may be a rack here and a row there. A cluster without
    the level has no domain on its first step.
    """
    depth = max((len(_wider(levels, level)) for levels in view.levels.values()), default=0)
    steps = [_domains(view, level, step) for step in range(depth)]
    return (*steps, _grouped([(row.cluster,) for row in view.nodes]))


def _domains(view: FleetView, level: str | None, step: int) -> Domains:
    keys: list[tuple[str, ...] | None] = []
    for row in view.nodes:
        wider = _wider(view.levels.get(row.cluster, ()), level)
        at = wider[step] if step < len(wider) else None
        keys.append(_domain_of(view.levels.get(row.cluster, ()), row, at))
    return _grouped(keys)


def _domain_of(levels: tuple[str, ...], row: NodeRow, level: str | None) -> tuple[str, ...] | None:
    """The domain's full name: racks r1 of two blocks are two domains."""
    if level == NODE_LEVEL:
        return (row.cluster, row.name)
    if level is None or level not in row.place:
        return None
    above = levels[: levels.index(level)]
    return (row.cluster, *(row.place.get(name, "") for name in above), row.place[level])


def _wider(levels: tuple[str, ...], level: str | None) -> tuple[str, ...]:
    """The level and those above it, from narrow to wide; a node is the narrowest level of every cluster."""
    known = (*levels, NODE_LEVEL)
    return known[known.index(level) :: -1] if level in known else ()


def _grouped(keys: Sequence[tuple[str, ...] | None]) -> Domains:
    names = sorted({key for key in keys if key is not None})
    number = {key: i for i, key in enumerate(names)}
    group = _column([-1 if key is None else number[key] for key in keys])
    return Domains(group, tuple(key[-1] for key in names))


def _stock(nodes: Sequence[NodeRow], index: Mapping[NodeId, int], rows: Sequence[StockRow]) -> Stock:
    free, held, exist, releasing = (np.zeros(len(nodes), dtype=np.int64) for _ in range(4))
    for row in rows:
        at = index[row.node]
        (free if nodes[at].held is None else held)[at] = len(row.free)
        exist[at], releasing[at] = row.exist, row.releasing
    devices = {index[row.node]: row.free for row in rows}
    return Stock(free, held, exist, releasing, devices)


def _path(levels: Mapping[ClusterId, tuple[str, ...]], row: NodeRow) -> tuple[str, ...]:
    return (row.cluster, *(row.place.get(level, "") for level in levels.get(row.cluster, ())))


def _column(values: Sequence[int]) -> Column:
    return np.array(values, dtype=np.int64)
