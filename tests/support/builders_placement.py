"""Builders for placement's tests: a fleet in a line, a gang in a line."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, TenantId
from schemas.workload import Demand, GrantedDevice, ReplicaSlot, Work
from services.placement.core.decide import Pending
from services.placement.core.grant import Grant, Part
from services.placement.core.view import FleetView, Hold, NodeRow, StockRow, build

START = datetime(2026, 3, 1, tzinfo=UTC)
H100 = "h100"
CLUSTER = ClusterId("cluster_a")


def a_node(
    name: str,
    *,
    free: int = 8,
    exist: int = 8,
    held: Hold | None = None,
    cluster: ClusterId = CLUSTER,
    cpu_milli: int = 64_000,
    memory_mib: int = 512_000,
    gpu_class: str = H100,
    releasing: int = 0,
    **place: str,
) -> tuple[NodeRow, StockRow]:
    """A node with ``exist`` devices, the last ``free`` of them free."""
    row = NodeRow(
        node=NodeId(name),
        name=name,
        cluster=cluster,
        place=place,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        held=held,
    )
    devices = tuple(a_device(name, index) for index in range(exist - free, exist))
    return row, StockRow(NodeId(name), gpu_class, devices, exist, releasing)


def a_device(node: str, index: int) -> GrantedDevice:
    """A device with an ordinal that its name makes unique."""
    return GrantedDevice(device=DeviceId(f"{node}-{index}"), index=index, ordinal=abs(hash((node, index))) % 10**9)


def a_fleet(*nodes: tuple[NodeRow, StockRow], levels: Mapping[ClusterId, Sequence[str]] | None = None) -> FleetView:
    """A view of these nodes; every cluster has the levels block and rack."""
    clusters = {row.cluster: ("block", "rack") for row, _ in nodes}
    known = {cluster: tuple(names) for cluster, names in (levels or clusters).items()}
    return build(known, [row for row, _ in nodes], [stock for _, stock in nodes])


def a_gang(
    job: str = "job_1",
    *,
    replicas: int = 1,
    each: int = 8,
    priority: int = 0,
    after: int = 0,
    gpu_class: str = H100,
    level: str | None = None,
    required: bool = False,
    cpu_milli: int = 0,
    memory_mib: int = 0,
) -> Pending:
    """An admitted gang, queued ``after`` seconds past the start."""
    demand = Demand(
        classes=(gpu_class,),
        replicas=replicas,
        min_replicas=replicas,
        devices_per_replica=each,
        cpu_milli_per_replica=cpu_milli,
        memory_mib_per_replica=memory_mib,
        topology_level=level,
        topology_required=required,
    )
    return Pending(
        job=JobId(job),
        attempt=1,
        tenant=TenantId("research"),
        name=job,
        queue="nlp",
        priority=priority,
        gpu_class=gpu_class,
        demand=demand,
        work=Work(command=("true",)),
        queued_at=START + timedelta(seconds=after),
    )


def a_grant(*parts: Part, epoch: int = 7) -> Grant:
    """A grant that was just made."""
    return Grant(
        id=GrantId("grant_1"),
        epoch=epoch,
        job=JobId("job_1"),
        attempt=1,
        tenant=TenantId("research"),
        name="job",
        queue="nlp",
        cluster=CLUSTER,
        gpu_class=H100,
        work=Work(command=("true",)),
        issued_at=START,
        start_deadline=START + timedelta(seconds=300),
        parts=parts or (a_part(),),
        version=1,
    )


def a_part(node: str = "n1", devices: int = 2) -> Part:
    """An Issued part: one replica on the first devices of a node."""
    slots = tuple(a_device(node, index) for index in range(devices))
    return Part(NodeId(node), node, (ReplicaSlot(rank=0, devices=slots),))
