"""What facts of the workload plane are made of."""

from datetime import datetime

from pydantic import Field

from schemas.base import Value
from schemas.ids import DeviceId, NodeId
from schemas.reasons import Reason


class Demand(Value):
    """What one attempt needs. The gang is ``replicas``; each replica has all its devices on one node.

    ``recovery_seconds``: for how long what it had is held for the next attempt, once a node of it is lost; None: not.
    """

    classes: tuple[str, ...]
    replicas: int
    min_replicas: int
    devices_per_replica: int
    cpu_milli_per_replica: int = 0
    memory_mib_per_replica: int = 0
    topology_level: str | None = None
    topology_required: bool = False
    recovery_seconds: int | None = None

    @property
    def devices(self) -> int:
        """Devices of the whole gang."""
        return self.replicas * self.devices_per_replica


class Work(Value):
    """What every replica of the gang runs."""

    command: tuple[str, ...]
    env: dict[str, str] = Field(default_factory=dict)
    workdir: str | None = None
    time_limit_seconds: int | None = None
    grace_seconds: int = 30


class Preemption(Value):
    """A plan that makes room in a queue: jobs of lower priority were ended, and what they leave is held for one job.

    ``devices`` of ``gpu_class`` are held ``since`` then; ``given_up``: no more, since it took too long.
    """

    gpu_class: str
    devices: int
    victims: int
    since: datetime
    given_up: bool = False


class Recovery(Value):
    """Room in a queue for the next attempt of a job that lost a node: ``devices`` of ``gpu_class``, ``until`` then."""

    gpu_class: str
    devices: int
    until: datetime


class GrantedDevice(Value):
    """One device of a grant; ``index`` is its place on the node, ``ordinal`` its number in the ledger."""

    device: DeviceId
    index: int
    ordinal: int


class ReplicaSlot(Value):
    """One replica (rank) of the gang and its devices, all on the part's node."""

    rank: int
    devices: tuple[GrantedDevice, ...]


class GrantPart(Value):
    """Grant x node: the unit that is claimed and released. Holds one or more replicas."""

    node: NodeId
    node_name: str
    replicas: tuple[ReplicaSlot, ...]

    @property
    def devices(self) -> tuple[GrantedDevice, ...]:
        """All devices of the part, by rank."""
        return tuple(device for replica in self.replicas for device in replica.devices)


class RankExit(Value):
    """How one replica's process ended: an exit code, or the signal that killed it."""

    rank: int
    exit_code: int | None
    signal: int | None = None


class ExitRecord(Value):
    """The node's record of one run instance's end. ``cancelled_by``: who ended it at its backend, past Triplane."""

    instance: str
    ranks: tuple[RankExit, ...]
    timed_out: bool = False
    stopped: bool = False
    cancelled_by: str | None = None
    refused: Reason | None = None
    started_at: datetime | None = None
    ended_at: datetime

    @property
    def succeeded(self) -> bool:
        """Every replica ended by itself with code 0."""
        return (
            bool(self.ranks)
            and not (self.timed_out or self.stopped or self.refused)
            and all(rank.exit_code == 0 for rank in self.ranks)
        )
