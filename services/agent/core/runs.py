"""What a run's folder and processes say about it."""

from dataclasses import dataclass
from enum import StrEnum

from schemas.calls import FoundRun, FoundState, LaunchOrder
from schemas.ids import DeviceId
from schemas.runtime import Holder
from schemas.workload import ExitRecord


@dataclass(frozen=True, slots=True)
class Instance:
    """One shim. A pid alone may be another's tomorrow: start time (clock ticks) and boot make it one process."""

    pid: int
    start: int
    boot: str
    id: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run's folder, and whether its shim lives now. ``started``: a process of the user's may exist since."""

    order: LaunchOrder
    instance: Instance | None
    alive: bool
    started: bool
    exit: ExitRecord | None


class RunState(StrEnum):
    """Where a run instance is on its node."""

    UNSTARTED = "unstarted"  # no shim lives and nothing of the user's was started: as if the launch had not come
    WAITING = "waiting"  # the shim waits for locks or leave
    RUNNING = "running"
    ENDED = "ended"
    BROKEN = "broken"  # the shim died under the run: how it ended, and whether it did, is not recorded


def state_of(evidence: Evidence) -> RunState:
    """Return the state; the exit record is the shim's last word and beats everything."""
    if evidence.exit:
        return RunState.ENDED
    if evidence.alive:
        return RunState.RUNNING if evidence.started else RunState.WAITING
    return RunState.BROKEN if evidence.started else RunState.UNSTARTED


def devices_of(order: LaunchOrder) -> tuple[DeviceId, ...]:
    """Return the devices of a part, in the order of the locks."""
    return tuple(sorted(device.device for replica in order.replicas for device in replica.devices))


def found(evidence: Evidence) -> FoundRun | None:
    """Return the answer to ``find``; None for a run of which nothing was started and nothing lives."""
    state = state_of(evidence)
    if state is RunState.UNSTARTED:
        return None
    order = evidence.order
    return FoundRun(
        run=order.run,
        grant=order.grant,
        epoch=order.epoch,
        job=order.job,
        attempt=order.attempt,
        node=order.node,
        instance=instance_id(evidence),
        state=FoundState.ENDED if state is RunState.BROKEN else FoundState(state.value),
        exit=evidence.exit,
    )


def holder(evidence: Evidence) -> Holder:
    """Return the run as a holder of its devices."""
    order = evidence.order
    return Holder(
        grant=order.grant,
        epoch=order.epoch,
        run=order.run,
        instance=instance_id(evidence),
        devices=devices_of(order),
    )


def instance_id(evidence: Evidence) -> str:
    """Return the start id; empty when no shim has drawn one yet."""
    return evidence.instance.id if evidence.instance else ""
