"""What inventory remembers: clusters, classes, nodes, and the marks on nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from schemas.fleet import Mark, MoveInfo, NodeInfo
from schemas.ids import ClusterId, DrainId, NodeId
from schemas.runtime import ObservedDevice


class Standing(StrEnum):
    """How a node stands to the newest document of its cluster."""

    DECLARED = "declared"
    FOUND = "found"  # reported by its agent and never declared
    HELD = "held"  # left out together with too many others: in service until somebody confirms it
    LEFT_OUT = "left_out"  # declared once and not any more: no new work, and retired when nothing is granted there


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers inventory decides by."""

    stale_seconds: int
    retire_seconds: int
    escalate_seconds: int = 300


@dataclass(frozen=True, slots=True)
class Cluster:
    """A destination. ``generation`` is its document's, 0: something names it, nobody has declared it yet."""

    id: ClusterId
    name: str = ""
    backend: str = ""
    levels: tuple[str, ...] = ()
    generation: int = 0
    version: int = 0


@dataclass(frozen=True, slots=True)
class GpuClass:
    """Which model is of the class."""

    name: str
    model: str
    generation: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A drain as heard: its mark, or that it was lifted (``mark`` is None)."""

    version: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class Beat:
    """The newest report of a node: which agent's, its number, and when it was heard by the database's clock."""

    incarnation: str
    sequence: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Node:
    """A node as declared and as reported.

    ``place``, ``cpu_milli`` and ``memory_mib`` are the declaration's, ``machine_…`` the report's; devices are the
    report's as soon as there is one. ``said`` is what was last said of it; None: nothing, or that it was retired.
    ``owner`` gives out its devices, None: its own cluster; ``moves`` counts the moves that it ever had.
    """

    id: NodeId
    cluster: ClusterId
    name: str
    standing: Standing
    place: Mapping[str, str] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_mib: int = 0
    devices: tuple[ObservedDevice, ...] = ()
    reported: bool = False
    machine_cpu_milli: int = 0
    machine_memory_mib: int = 0
    beat: Beat | None = None
    stale: bool = False
    left_out_at: datetime | None = None
    retired: bool = False
    version: int = 0
    said: NodeInfo | None = None
    owner: ClusterId | None = None
    owner_name: str | None = None
    owner_epoch: int = 1
    moves: int = 0

    @property
    def owned_by(self) -> ClusterId:
        """The destination that gives out its devices."""
        return self.owner or self.cluster


@dataclass(frozen=True, slots=True)
class Move:
    """A node's number-th move. ``version`` counts its facts."""

    info: MoveInfo
    number: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """The part of inventory's memory that a turn touches. ``granted`` are nodes with a live grant.

    ``moves`` are those under way.
    """

    clusters: Mapping[ClusterId, Cluster] = field(default_factory=dict)
    classes: Mapping[str, GpuClass] = field(default_factory=dict)
    nodes: Mapping[NodeId, Node] = field(default_factory=dict)
    holds: Mapping[NodeId, Mapping[DrainId, Hold]] = field(default_factory=dict)
    granted: frozenset[NodeId] = frozenset()
    moves: Mapping[NodeId, Move] = field(default_factory=dict)

    def marks(self, node: NodeId) -> tuple[Mark, ...]:
        """Return the marks that stand on a node because of drains, the oldest first."""
        marks = [hold.mark for hold in self.holds.get(node, {}).values() if hold.mark is not None]
        return tuple(sorted(marks, key=lambda mark: (mark.since, mark.drain)))
