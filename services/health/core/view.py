"""What health remembers of each node: when it was heard, what ails it, and what takes it out of service."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, NamedTuple
from uuid import UUID

from schemas.fleet import MarkEffect, Severity
from schemas.ids import ClusterId, DrainId, IncidentId, NodeId

Verb = Literal["cordon", "drain", "uncordon"]


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers health decides by."""

    stale_seconds: int
    lost_seconds: int
    fleet_silent_percent: int
    fleet_silent_nodes: int
    settle_seconds: int


class Rank(NamedTuple):
    """Which of two orders is the newer: by version, and inside one by the clock of their one writer's database."""

    version: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Order:
    """The newest order of its verb for a node."""

    rank: Rank
    owner: str
    reason: str
    session: str


class DrainState(StrEnum):
    """How far a drain is."""

    REQUESTED = "requested"
    ACKNOWLEDGED = "acknowledged"
    COMPLETED = "completed"
    LIFTED = "lifted"


@dataclass(frozen=True, slots=True)
class Drain:
    """A node taken out of service.

    ``version`` counts its facts, ``since`` is when the newest was said, ``fact`` is the request or the lift of it.
    """

    id: DrainId
    effect: MarkEffect
    state: DrainState
    version: int
    fact: UUID
    since: datetime


@dataclass(frozen=True, slots=True)
class Incident:
    """A silence that was said. ``since`` is when the node was last heard; ``version`` counts the incident's facts."""

    id: IncidentId
    severity: Severity
    since: datetime
    version: int


@dataclass(frozen=True, slots=True)
class Beat:
    """The newest report of a node: which agent's, its number, and when it was heard by the database's clock."""

    incarnation: str
    sequence: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Node:
    """A node with all that health knows of it; ``drains`` and ``incidents`` count those it ever had.

    ``known_version`` is that of inventory's newest fact, 0: only an order or a report named it so far. ``marks`` are
    those that stand on it. ``granted``: something is granted there. ``lifted`` and ``cleared``: what ended this turn.
    """

    id: NodeId
    cluster: ClusterId
    known_version: int = 0
    retired: bool = False
    marks: Mapping[DrainId, MarkEffect] = field(default_factory=dict)
    granted: bool = False
    beat: Beat | None = None
    orders: Mapping[Verb, Order] = field(default_factory=dict)
    drain: Drain | None = None
    drains: int = 0
    lifted: tuple[Drain, ...] = ()
    incident: Incident | None = None
    incidents: int = 0
    cleared: tuple[Incident, ...] = ()
