"""What else is on a node: processes that nobody granted anything, and an allocator with a mind of its own."""

import math
from collections.abc import Iterator
from random import Random
from typing import Final

from libs.orchestrators.pretend_node import PretendNode, PretendRun
from libs.orchestrators.script import Script
from schemas.calls import FoundState, LaunchOrder
from schemas.ids import ClusterId, DeviceId, GrantId, RunName, cluster_id, job_id, run_name
from schemas.runtime import ObservedDevice, UnmanagedUse
from schemas.workload import GrantedDevice, ReplicaSlot
from tests.simulation.timeline import START
from tests.support.builders import ACME, some_work

NATIVE: Final = GrantId("grant_of_nobody")
"""What a native process says that it holds: no ledger has ever heard of it."""
NATIVE_JOB: Final = job_id(ACME, "native", 1)


def start_native(node: PretendNode, dice: Random, number: int, cluster: ClusterId | None = None) -> bool:
    """Let a process that nobody granted anything take devices on which nothing is and nothing waits.

    ``cluster``: the destination whose scheduler has started it; None: somebody did by hand.
    """
    free = sorted({device.device for device in node.devices} - _taken(node, FoundState.RUNNING, FoundState.WAITING))
    if not free:
        return False
    taken = dice.sample(free, min(len(free), dice.choice((1, 2))))
    order = _native(node, run_name(NATIVE_JOB, number), taken).model_copy(update={"cluster": cluster})
    run = PretendRun(order, Script(seconds=math.inf), order.run, state=FoundState.RUNNING, due=math.inf)
    node.runs[order.run, order.epoch] = run
    return True


def start_stranger(node: PretendNode, grant: GrantId) -> None:
    """Let a process hold a node's first device that tells a grant which nobody has made."""
    order = _native(node, run_name(NATIVE_JOB, 1), [node.devices[0].device]).model_copy(update={"grant": grant})
    run = PretendRun(order, Script(seconds=math.inf), order.run, state=FoundState.RUNNING, due=math.inf)
    node.runs[order.run, order.epoch] = run


def natives(node: PretendNode) -> list[PretendRun]:
    """Return the native processes of a node."""
    return [run for run in node.runs.values() if run.order.grant == NATIVE]


def end_natives(node: PretendNode) -> None:
    """Let them end."""
    for run in natives(node):
        del node.runs[run.order.run, run.order.epoch]


def unmanaged(node: PretendNode) -> tuple[UnmanagedUse, ...]:
    """Return what an agent says of them."""
    return tuple(UnmanagedUse(device=each, pid=1, command="x") for run in natives(node) for each in run.devices)


def give_others(node: PretendNode, run: PretendRun, dice: Random) -> bool:
    """Let the node's own allocator choose the devices of a process that waits for leave; it takes no busy one."""
    busy = _taken(node, FoundState.RUNNING)
    free = [device for device in node.devices if device.device not in busy]
    if len(free) < len(run.devices):
        return False
    chosen = iter(dice.sample(free, len(run.devices)))
    replicas = tuple(
        ReplicaSlot(rank=replica.rank, devices=_slots(chosen, len(replica.devices))) for replica in run.order.replicas
    )
    run.order = run.order.model_copy(update={"replicas": replicas})
    return True


def lead_astray(node: PretendNode, run: PretendRun) -> None:
    """Let a process be started by the destination that keeps off the node, or by one that nobody has heard of."""
    off = sorted(cluster for cluster, mark in node.marks.items() if mark.off)
    run.order = run.order.model_copy(update={"cluster": off[0] if off else cluster_id("nowhere")})


def _slots(chosen: Iterator[ObservedDevice], count: int) -> tuple[GrantedDevice, ...]:
    devices = [next(chosen) for _ in range(count)]
    return tuple(GrantedDevice(device=each.device, index=each.index, ordinal=each.index + 1) for each in devices)


def _taken(node: PretendNode, *states: FoundState) -> set[DeviceId]:
    return {device for run in node.runs.values() if run.state in states for device in run.devices}


def _native(node: PretendNode, name: RunName, devices: list[DeviceId]) -> LaunchOrder:
    slots = tuple(GrantedDevice(device=device, index=0, ordinal=1) for device in devices)
    return LaunchOrder(
        run=name,
        grant=NATIVE,
        epoch=0,
        job=NATIVE_JOB,
        attempt=1,
        tenant=ACME,
        name="native",
        queue="",
        node=node.id,
        replicas=(ReplicaSlot(rank=0, devices=slots),),
        world_size=1,
        master_addr=node.name,
        master_port=1,
        work=some_work(),
        start_deadline=START,
    )
