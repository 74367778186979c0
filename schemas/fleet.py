"""Facts of the fleet plane: what there is, what ails it, what is taken out of service."""

from datetime import datetime
from enum import StrEnum

from pydantic import Field

from schemas.base import Event, Value
from schemas.ids import ClusterId, DeviceId, DrainId, IncidentId, MoveId, NodeId
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
    """A node whole: consumers replace what they know of it. ``place`` maps a topology level to a domain's name.

    ``cluster`` is the destination whose document declares it, and does not change; ``owner`` is the destination that
    gives out its devices, None: that one. ``owner_epoch`` rises with every move: owners are told apart by it alone.
    """

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
    owner: ClusterId | None = None
    owner_name: str | None = None
    owner_epoch: int = 1

    @property
    def owned_by(self) -> ClusterId:
        """The destination that gives out its devices."""
        return self.owner or self.cluster

    @property
    def owned_by_name(self) -> str:
        """The name of that destination."""
        return self.owner_name or self.cluster_name


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


class NodeOwnerChanged(Event):
    """Another destination gives out the node's devices from now on: ``info.owner``, by ``info.owner_epoch`` (M3)."""

    info: NodeInfo
    before: ClusterId
    move: MoveId


class MoveState(StrEnum):
    """How far a node is on its way to another destination."""

    REQUESTED = "Requested"
    HELD = "Held"
    MARKED = "Marked"
    MOVED = "Moved"
    COMPLETED = "Completed"
    CANCELLING = "Cancelling"
    UNMARKED = "Unmarked"
    CANCELLED = "Cancelled"


class MoveInfo(Value):
    """A move whole. ``owner_epoch``: the node's before it. ``owner``: who stands for it. ``stop``: it ends work.

    ``waits``: why it does not go on, with the evidence; ``since``: when it came to its state; ``escalated``: it has
    waited for too long, and a person must look.
    """

    move: MoveId
    node: NodeId
    node_name: str
    cluster: ClusterId
    source: ClusterId
    source_name: str
    target: ClusterId
    target_name: str
    owner_epoch: int
    state: MoveState
    owner: str
    reason: str
    session: str
    stop: bool
    requested_at: datetime
    since: datetime
    waits: Reason | None = None
    escalated: bool = False
    cancelled_by: str | None = None
    cancelled_for: str | None = None


class MoveRequested(Event):
    """A node is to move to another destination. Key of move facts: move. Scope: the node's cluster."""

    info: MoveInfo


class MoveAdvanced(Event):
    """It came to its next state."""

    info: MoveInfo


class MoveWaited(Event):
    """It does not go on, for another reason than before, or for too long."""

    info: MoveInfo


class MoveCompleted(Event):
    """The new owner gives out the node's devices."""

    info: MoveInfo


class MoveCancelled(Event):
    """It was given up before the owner changed, and all it had taken is given back."""

    info: MoveInfo


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
