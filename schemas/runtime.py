"""Facts of the runtime plane: what the agent of a node sees. Key: node; newest by (boot, sequence)."""

from datetime import datetime
from enum import StrEnum

from schemas.base import Event, Value
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, RunName
from schemas.reasons import Reason
from schemas.workload import ExitRecord


class ObservedDevice(Value):
    """A device as its node sees it. ``uuid`` is the vendor's name for it."""

    device: DeviceId
    index: int
    uuid: str
    model: str
    memory_mib: int = 0


class Holder(Value):
    """A run instance that holds device locks, or whose processes still live, on this node."""

    grant: GrantId
    epoch: int
    run: RunName
    instance: str
    devices: tuple[DeviceId, ...]


class UnmanagedUse(Value):
    """A process that uses a device outside every grant."""

    device: DeviceId
    pid: int
    command: str


class ObservationReported(Event):
    """The heartbeat, every 10 s; the first of an agent's life is the hello."""

    node: NodeId
    cluster: ClusterId
    cluster_name: str
    node_name: str
    machine: str
    boot: str
    incarnation: str
    sequence: int
    hello: bool
    devices: tuple[ObservedDevice, ...]
    holders: tuple[Holder, ...]
    unmanaged: tuple[UnmanagedUse, ...] = ()
    blind: Reason | None = None
    cpu_milli: int = 0
    memory_mib: int = 0
    observed_at: datetime


class RunEvent(StrEnum):
    """What happened to a run instance on this node."""

    STARTED = "started"
    ENDED = "ended"


class ObservationNoticed(Event):
    """A run instance started or ended on this node: said at once. An end has the exit record where there is one."""

    node: NodeId
    cluster: ClusterId
    boot: str
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    run: RunName
    instance: str
    event: RunEvent
    exit: ExitRecord | None = None
    observed_at: datetime
