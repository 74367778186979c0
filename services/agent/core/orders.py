"""The order that the agent gives to a run's shim."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from schemas.calls import LaunchOrder
from schemas.ids import DeviceId
from schemas.workload import ReplicaSlot
from services.agent.core.runs import devices_of

MARK: Final = "TRIPLANE_MARK"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_SECONDS: Final = (10.0, 3_600.0)  # the ledger's deadline decides; a skewed clock must not end or keep a shim


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a run's processes belong to."""

    uid: int
    gid: int
    name: str


@dataclass(frozen=True, slots=True)
class Place:
    """What one run gets on this node. ``owner`` None: the agent's own user. ``visible``: what CUDA calls a device.

    ``mark``: what every process of the run has in its environment, unless it takes it out; no other agent has it.
    ``master_addr``: where rank 0 is reached, if not by its node's name. ``traceparent``: of the run in its job's trace.
    """

    boot: str
    mark: str
    device_folder: str
    agent_socket: str
    scratch: str
    cgroup: str | None
    owner: Owner | None
    visible: Mapping[DeviceId, str]
    lock_wait_seconds: float
    log_bytes: int
    traceparent: str
    master_addr: str | None = None


def shim_order(order: LaunchOrder, place: Place, *, now: datetime) -> dict[str, Any]:
    """Return ``order.json``. What the platform sets in the environment cannot be changed by the user's."""
    least, most = START_SECONDS
    return {
        "order": order.model_dump(mode="json"),
        "run": order.run,
        "epoch": order.epoch,
        "boot": place.boot,
        "devices": list(devices_of(order)),
        "device_folder": place.device_folder,
        "agent_socket": place.agent_socket,
        "lock_wait_seconds": place.lock_wait_seconds,
        "start_seconds": min(most, max(least, (order.start_deadline - now).total_seconds())),
        "command": list(order.work.command),
        "workdir": order.work.workdir,
        "scratch": place.scratch,
        "owner": [place.owner.uid, place.owner.gid] if place.owner else None,
        "cgroup": place.cgroup,
        "log_bytes": place.log_bytes,
        "grace_seconds": order.work.grace_seconds,
        "time_limit_seconds": order.work.time_limit_seconds,
        "env": _home(place) | order.work.env | _gang(order, place.master_addr) | {MARK: place.mark},
        "replicas": [
            {"rank": replica.rank, "env": _rank(replica, local, len(order.replicas), place.visible)}
            for local, replica in enumerate(order.replicas)
        ],
    }


def _home(place: Place) -> dict[str, str]:
    name = {"USER": place.owner.name, "LOGNAME": place.owner.name} if place.owner else {}
    folders = {"PATH": PATH, "HOME": place.scratch, "TMPDIR": place.scratch}
    return {"LANG": "C.UTF-8", "TRACEPARENT": place.traceparent} | folders | name


def _gang(order: LaunchOrder, master_addr: str | None) -> dict[str, str]:
    """Job, attempt and epoch are the fencing token for what a run writes outside."""
    return {
        "WORLD_SIZE": str(order.world_size),
        "MASTER_ADDR": master_addr or order.master_addr,
        "MASTER_PORT": str(order.master_port),
        "TRIPLANE_JOB": order.job,
        "TRIPLANE_JOB_NAME": order.name,
        "TRIPLANE_TENANT": order.tenant,
        "TRIPLANE_QUEUE": order.queue,
        "TRIPLANE_ATTEMPT": str(order.attempt),
        "TRIPLANE_RUN": order.run,
        "TRIPLANE_GRANT": order.grant,
        "TRIPLANE_EPOCH": str(order.epoch),
        "TRIPLANE_NODE": order.node,
    }


def _rank(replica: ReplicaSlot, local: int, replicas: int, visible: Mapping[DeviceId, str]) -> dict[str, str]:
    devices = [device.device for device in replica.devices]
    return {
        "RANK": str(replica.rank),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(replicas),
        "CUDA_VISIBLE_DEVICES": ",".join(visible[device] for device in devices),
        "TRIPLANE_DEVICES": ",".join(devices),
    }
