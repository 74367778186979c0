"""Facts of the fleet plane: what there is, what ails it, what is taken out of service."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from schemas.base import Event, Value
from schemas.ids import ClusterId, DeviceId, DrainId, IncidentId, NodeId
from schemas.reasons import Reason


class MarkEffect(StrEnum):
    """What a mark does: no new work, or no new work and an end to the old."""

    NO_SCHEDULE = "NoSchedule"
    DRAIN = "Drain"


class Mark(Value):
    """A hold on a node: it has an owner, a reason, a session and a way to end (I8)."""

    drain: DrainId
    effect: MarkEffect
    owner: str
    reason: str
    session: str
    since: datetime


class DeviceInfo(Value):
    """A device of the fleet. ``gpu_class`` is the class whose match names its model; None: no class does."""

    device: DeviceId
    index: int
    uuid: str
    model: str
    memory_mib: int = 0
    gpu_class: str | None = None


class NodeInfo(Value):
    """A node whole: consumers replace what they know of it. ``place`` maps a topology level to a domain's name."""

    node: NodeId
    cluster: ClusterId
    cluster_name: str
    name: str
    place: dict[str, str] = Field(default_factory=dict)
    devices: tuple[DeviceInfo, ...]
    cpu_milli: int = 0
    memory_mib: int = 0
    marks: tuple[Mark, ...] = ()
    reported: bool = False
    stale: bool = False


class ClusterDiscovered(Event):
    """A destination was declared. Key: cluster. ``levels`` from the widest to the narrowest."""

    cluster: ClusterId
    name: str
    backend: str
    levels: tuple[str, ...]


class ClusterChanged(Event):
    """The declaration of a destination changed."""

    cluster: ClusterId
    name: str
    backend: str
    levels: tuple[str, ...]


class NodeDiscovered(Event):
    """A node was declared or seen for the first time. Key of node facts: node. Scope: cluster."""

    info: NodeInfo


class NodeChanged(Event):
    """Something about the node changed: devices, place, classes or marks."""

    info: NodeInfo


class NodeWentStale(Event):
    """No report in time: what the node has is neither free nor idle, it is unknown."""

    node: NodeId
    cluster: ClusterId
    last_report_at: datetime | None


class NodeFreshened(Event):
    """The node reports again."""

    node: NodeId
    cluster: ClusterId
    reported_at: datetime


class NodeRetired(Event):
    """The node is not declared any more."""

    node: NodeId
    cluster: ClusterId


class Severity(StrEnum):
    """How bad an incident is."""

    STALE = "stale"
    LOST = "lost"


class IncidentOpened(Event):
    """Something ails a node. Key of incident facts: incident."""

    incident: IncidentId
    cluster: ClusterId
    node: NodeId
    severity: Severity
    reason: Reason
    since: datetime


class IncidentEscalated(Event):
    """It got worse, or lasts too long."""

    incident: IncidentId
    cluster: ClusterId
    node: NodeId
    severity: Severity
    reason: Reason
    since: datetime


class IncidentCleared(Event):
    """It is over."""

    incident: IncidentId
    cluster: ClusterId
    node: NodeId
    cleared_at: datetime


class DrainRequested(Event):
    """A node is to take no new work (and, with effect Drain, to end its old). Key of drain facts: drain."""

    drain: DrainId
    cluster: ClusterId
    node: NodeId
    effect: MarkEffect
    owner: str
    reason: str
    session: str
    requested_at: datetime


class DrainAcknowledged(Event):
    """The mark stands on the node: nothing new is offered there."""

    drain: DrainId
    cluster: ClusterId
    node: NodeId


class DrainCompleted(Event):
    """Nothing is granted on the node any more."""

    drain: DrainId
    cluster: ClusterId
    node: NodeId
    completed_at: datetime


class DrainLifted(Event):
    """The mark is gone, by whom and why."""

    drain: DrainId
    cluster: ClusterId
    node: NodeId
    lifted_by: str
    reason: str
