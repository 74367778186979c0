"""One pretended node: its runs, its marks, and how it behaves."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from libs.orchestrators.script import Script
from schemas.calls import FoundRun, FoundState, LaunchOrder
from schemas.ids import ClusterId, DeviceId, NodeId, RunName
from schemas.moves import MarkAnswer, MarkOrder
from schemas.reasons import Code, Layer, Reason, reason
from schemas.runtime import Holder, ObservedDevice
from schemas.workload import ExitRecord


@dataclass(slots=True)
class PretendRun:
    """A run instance. ``due``: when its next step comes, by the cluster's monotonic clock."""

    order: LaunchOrder
    script: Script
    instance: str
    state: FoundState = FoundState.WAITING
    due: float = 0.0
    launched: float = 0.0
    allowed: bool = False  # it has leave to start, and its devices are not open yet; its locks tell of it
    kill_signal: int | None = None
    cancelled_by: str | None = None
    timed_out: bool = False
    started_at: datetime | None = None
    exit: ExitRecord | None = None

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """The devices of the part, sorted."""
        return tuple(sorted(each.device for replica in self.order.replicas for each in replica.devices))


@dataclass(slots=True)
class PretendNode:
    """A node, and how it behaves. The switches may be thrown at any time."""

    id: NodeId
    name: str
    boot: str
    devices: tuple[ObservedDevice, ...]
    runs: dict[tuple[RunName, int], PretendRun] = field(default_factory=dict)
    silent: bool = False  # answers nothing and says nothing; runs go on
    deaf: bool = False  # takes orders, but the answers are lost
    mute: bool = False  # forgets to say that runs started or ended
    ready: bool = True  # False: says that it cannot tell what it has
    forgetful: bool = False  # a lie: says that it has no runs
    refusal: Reason | None = None  # of every launch
    blindness: Reason | None = None  # of every claim and seal
    mark_refusal: Reason | None = None  # of every mark
    strangers: dict[DeviceId, str] = field(default_factory=dict)  # processes of no grant
    marks: dict[ClusterId, MarkOrder] = field(default_factory=dict)
    boots: int = 1
    agents: int = 1  # how many have come up on it

    def holders(self) -> tuple[Holder, ...]:
        """Return who holds devices here."""
        return tuple(
            Holder(
                grant=run.order.grant,
                epoch=run.order.epoch,
                run=run.order.run,
                instance=run.instance,
                devices=run.devices,
            )
            for run in self.runs.values()
            if run.state is not FoundState.ENDED
        )


def found(node: PretendNode, run: PretendRun) -> FoundRun:
    """Return a run as its node knows it."""
    return FoundRun(node=node.id, instance=run.instance, state=run.state, exit=run.exit, **named(run.order))


def named(order: LaunchOrder) -> dict[str, Any]:
    """Return the names by which a run is told."""
    return {name: getattr(order, name) for name in ("run", "grant", "epoch", "job", "attempt")}


def held(node: PretendNode, devices: Iterable[DeviceId], *, but: PretendRun | None = None) -> Reason | None:
    """Return who holds one of the devices; one that waits for leave holds nothing against one that has it."""
    wanted = set(devices)
    if strangers := sorted(wanted & node.strangers.keys()):
        return reason(Layer.NODE, Code.STILL_RUNNING, f"{node.strangers[strangers[0]]} holds {strangers[0]}")
    for run in node.runs.values():
        waits = run.state is FoundState.WAITING
        holds = run.state is FoundState.RUNNING or (waits and (run.allowed or but is None))
        if run is not but and holds and wanted.intersection(run.devices):
            return reason(Layer.NODE, Code.STILL_RUNNING, f"{run.order.run} holds {min(wanted & set(run.devices))}")
    return None


def never_started(run: PretendRun) -> Reason:
    """Return why a run that was ended before it had leave never started."""
    if run.cancelled_by is not None:
        return reason(Layer.NODE, Code.BACKEND_CANCELLED, f"cancelled by {run.cancelled_by} before it was started")
    return reason(Layer.NODE, Code.STOPPED, "stopped before it was started")


def missing(node: PretendNode, order: LaunchOrder) -> Reason | None:
    """Return that a run is to have devices that are not here."""
    here = {device.device for device in node.devices}
    gone = [each.device for replica in order.replicas for each in replica.devices if each.device not in here]
    return reason(Layer.NODE, Code.DEVICE_MISMATCH, f"not on this node: {', '.join(gone)}") if gone else None


def kept_off(node: PretendNode, cluster: ClusterId) -> Reason | None:
    """Return why nothing of this destination starts here."""
    mark = node.marks.get(cluster)
    if mark is None or not mark.off:
        return None
    return reason(Layer.NODE, Code.NOT_OWNER, f"marked for {mark.owner} ({mark.session})")


def marked(node: PretendNode, order: MarkOrder) -> MarkAnswer:
    """Take a mark, unless a newer one is there."""
    known, why = node.marks.get(order.cluster), node.mark_refusal
    if why is None and (known is None or known.number < order.number):
        node.marks[order.cluster] = order
    elif why is None and known is not None and known.off is not order.off:
        why = reason(Layer.NODE, Code.MARK_REFUSED, "a newer order says otherwise")
    return MarkAnswer(node=order.node, cluster=order.cluster, number=order.number, acknowledged=why is None, reason=why)
