"""Builders for the tests of nodes: an order in a line."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from schemas.calls import LaunchOrder
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, TenantId, cluster_id, device_id, node_id, run_name
from schemas.workload import GrantedDevice, ReplicaSlot, Work

CLUSTER_NAME = "demo"
DRAWN = uuid4().hex[:8]  # processes are known by their grant, and tests of two sessions may run on one machine
NODE_NAME = "n1"
CLUSTER: ClusterId = cluster_id(CLUSTER_NAME)
NODE: NodeId = node_id(CLUSTER, NODE_NAME)


def declared(count: int, cluster: str = CLUSTER_NAME, node: str = NODE_NAME) -> tuple[DeviceId, ...]:
    """The first devices of a node, as declared."""
    name = node_id(cluster_id(cluster), node)
    return tuple(device_id(name, f"GPU-{cluster}-{node}-{index}") for index in range(count))


def an_order(
    *command: str,
    job: str = "job_a",
    attempt: int = 1,
    epoch: int = 1,
    cluster: str = CLUSTER_NAME,
    node: str = NODE_NAME,
    devices: int = 1,
    first: int = 0,
    replicas: int = 1,
    first_rank: int = 0,
    world_size: int | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    time_limit_seconds: int | None = None,
    grace_seconds: int = 1,
) -> LaunchOrder:
    """An order for so many replicas with so many devices each, from the node's ``first`` device on."""
    name = JobId(job)
    return LaunchOrder(
        run=run_name(name, attempt),
        grant=GrantId(f"grant_{job}_{epoch}_{DRAWN}"),
        epoch=epoch,
        job=name,
        attempt=attempt,
        tenant=TenantId("research"),
        name=job,
        queue="nlp",
        node=node_id(cluster_id(cluster), node),
        replicas=tuple(
            ReplicaSlot(rank=first_rank + number, devices=_granted(cluster, node, first + number * devices, devices))
            for number in range(replicas)
        ),
        world_size=world_size or replicas,
        master_addr="127.0.0.1",
        master_port=29_400,
        work=Work(
            command=command,
            env=dict(env or {}),
            workdir=workdir,
            time_limit_seconds=time_limit_seconds,
            grace_seconds=grace_seconds,
        ),
        start_deadline=datetime.now(UTC) + timedelta(seconds=60),
    )


def _granted(cluster: str, node: str, first: int, count: int) -> tuple[GrantedDevice, ...]:
    known = declared(first + count, cluster, node)
    return tuple(
        GrantedDevice(device=known[index], index=index, ordinal=100 + index) for index in range(first, first + count)
    )
