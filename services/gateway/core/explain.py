"""Why a job is where it is: the code that was said, with numbers counted now, so that no old text is left behind."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from schemas.lifecycle import JobState
from schemas.reasons import Code, Reason
from schemas.workload import Demand
from services.gateway.core.job import JobView

OF_QUOTA: Final = frozenset({Code.WAITING_FOR_QUOTA, Code.EXCEEDS_QUOTA})
OF_CAPACITY: Final = frozenset({Code.WAITING_FOR_CAPACITY, Code.CAN_NEVER_FIT, Code.NO_DESTINATION})
_SHOWN_HOLDS: Final = 5
_WAITS_FOR: Final = {
    JobState.GRANTED: "the launch",
    JobState.DISPATCHED: "the destination's acknowledgement",
    JobState.PLACED: "the processes to start",
    JobState.RUNNING: "the processes to end",
}


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A queue's quota of one class and what is charged on it, in devices."""

    gpu_class: str
    nominal: int
    used: int

    @property
    def free(self) -> int:
        """What may still be charged."""
        return max(self.nominal - self.used, 0)


@dataclass(frozen=True, slots=True)
class Hold:
    """A node that is marked: what is idle there is not offered."""

    node: str
    owner: str
    reason: str
    since: datetime
    idle: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """The fleet's devices of one class now; ``node``: of its largest node.

    ``domain``: of the largest at the asked topology level; None: no level.
    """

    gpu_class: str
    total: int = 0
    node: int = 0
    free: int = 0
    unknown: int = 0
    replicas: int = 0
    domain: int | None = None
    domain_free: int | None = None
    holds: tuple[Hold, ...] = ()

    @property
    def held(self) -> int:
        """Idle devices on marked nodes."""
        return sum(hold.idle for hold in self.holds)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A stable code, words, and the numbers behind them as they are now."""

    code: str
    message: str
    numbers: dict[str, int] = field(default_factory=dict)
    since: datetime | None = None
    retry_after_seconds: int | None = None


def explain(view: JobView, demand: Demand, quotas: Sequence[QuotaLine], fleet: Sequence[Capacity]) -> Explanation:
    """Return why the job is where it is. ``quotas`` and ``fleet``: of the classes the job may use, best first."""
    if view.life.ended or view.state in _WAITS_FOR:
        return _of_state(view)
    said = view.said
    reason = said.reason if said is not None else None
    found = _of_reason(reason, view, demand, quotas, fleet)
    since = (reason.since if reason else None) or (said.at if said else None)
    retry = reason.retry_after_seconds if reason else None
    return Explanation(found.code, found.message, found.numbers, since, retry)


def _of_reason(
    reason: Reason | None, view: JobView, demand: Demand, quotas: Sequence[QuotaLine], fleet: Sequence[Capacity]
) -> Explanation:
    code = reason.code if reason else _first_guess(view, demand, quotas)
    if code in OF_QUOTA and quotas:
        return _of_quota(code, demand, quotas, held=reason.numbers.get("held", 0) if reason else 0)
    if code is Code.TOPOLOGY_PLACEMENT_FAILED and fleet and fleet[0].domain is not None:
        return _of_topology(code, demand, fleet)
    if code in OF_CAPACITY and fleet:
        return _of_capacity(code, demand, fleet, reason.message if reason else "")
    if reason is None:
        return Explanation(code, "admission has not looked at it yet", {"asked": demand.devices})
    return Explanation(code, reason.message or code, dict(reason.numbers))


def _first_guess(view: JobView, demand: Demand, quotas: Sequence[QuotaLine]) -> Code:
    """Return the code before anybody has said one for this state."""
    if view.state is not JobState.QUEUED:
        return Code.WAITING_FOR_CAPACITY
    is_short = bool(quotas) and all(line.free < demand.devices for line in quotas)
    return Code.WAITING_FOR_QUOTA if is_short else Code.UNKNOWN


def _of_quota(code: Code, demand: Demand, quotas: Sequence[QuotaLine], *, held: int) -> Explanation:
    line = max(quotas, key=lambda quota: quota.free)
    message = f"quota of {line.gpu_class} is {line.nominal}, used {line.used}, asked {demand.devices}"
    numbers = {"asked": demand.devices, "nominal": line.nominal, "used": line.used}
    if held:
        return Explanation(code, f"{message}, held for preemptors {held}", {**numbers, "held": held})
    return Explanation(code, message, numbers)


def _of_topology(code: Code, demand: Demand, fleet: Sequence[Capacity]) -> Explanation:
    best = max(fleet, key=lambda capacity: (capacity.domain or 0, capacity.domain_free or 0))
    domain, free, level = best.domain or 0, best.domain_free or 0, demand.topology_level
    message = f"needs {demand.devices} {best.gpu_class} in one {level}, largest {level} {domain}, free there {free}"
    numbers = {"asked": demand.devices, "largest_domain": domain, "domain_free": free}
    return Explanation(code, message, numbers)


def _of_capacity(code: Code, demand: Demand, fleet: Sequence[Capacity], told: str) -> Explanation:
    best = max(fleet, key=lambda capacity: (capacity.free, capacity.total))
    numbers = {
        "asked": demand.devices,
        "free": best.free,
        "held": best.held,
        "unknown": best.unknown,
        "total": best.total,
        "replicas": best.replicas,
    }
    words = _never_words(demand, best, told) if code is Code.CAN_NEVER_FIT else _capacity_words(demand, best)
    return Explanation(code, words, numbers)


def _never_words(demand: Demand, best: Capacity, told: str) -> str:
    """Return what is too small now; what only placement can tell (CPU, a domain) in the words it ``told``."""
    if demand.devices > best.total:
        return f"can never fit: {demand.devices} {best.gpu_class} asked, {best.total} exist"
    if demand.devices_per_replica > best.node:
        needs = f"{demand.devices_per_replica} {best.gpu_class} on one node"
        return f"can never fit: a replica needs {needs}, the largest node has {best.node}"
    return told or f"can never fit: {demand.devices} {best.gpu_class} asked"


def _capacity_words(demand: Demand, best: Capacity) -> str:
    words = f"needs {demand.devices} {best.gpu_class}, free {best.free}"
    if best.free >= demand.devices and best.replicas < demand.replicas:
        words += (
            f", but only {best.replicas} of {demand.replicas} replicas find {demand.devices_per_replica} on one node"
        )
    held = [hold for hold in best.holds if hold.idle]
    shown = [f"{h.idle} more held on {h.node} ({h.owner}: {h.reason}, since {h.since:%Y-%m-%d %H:%M})" for h in held]
    if len(shown) > _SHOWN_HOLDS:
        rest = sum(hold.idle for hold in held[_SHOWN_HOLDS:])
        shown = [*shown[:_SHOWN_HOLDS], f"{rest} more held on {len(held) - _SHOWN_HOLDS} other nodes"]
    unknown = [f"{best.unknown} on silent nodes"] if best.unknown else []
    return ", ".join((words, *shown, *unknown))


def _of_state(view: JobView) -> Explanation:
    said = view.said
    if said is not None and said.reason is not None:
        return Explanation(
            said.reason.code, said.reason.message or said.reason.code, dict(said.reason.numbers), said.at
        )
    if view.life.ended:
        numbers = {} if view.exit_code is None else {"exit_code": view.exit_code}
        return Explanation(view.state, f"the job has ended: {view.state}", numbers, said.at if said else None)
    places = view.placement.places if view.placement and view.placement.attempt == view.attempt else ()
    nodes = ", ".join(place.node_name for place in places[:_SHOWN_HOLDS])
    more = ", …" if len(places) > _SHOWN_HOLDS else ""
    where = f"on {nodes}{more}" if nodes else "granted"
    words = f"{where}; waits for {_WAITS_FOR[view.state]}"
    return Explanation(view.state, words, {"nodes": len(places)}, _on_its_way_since(view))


def _on_its_way_since(view: JobView) -> datetime | None:
    """Return when this attempt started, or else when it was granted; None: no fact has told."""
    if view.state is JobState.RUNNING and view.started is not None and view.started.attempt == view.attempt:
        return view.started.at
    is_granted = view.placement is not None and view.placement.attempt == view.attempt
    return view.placement.issued_at if view.placement is not None and is_granted else None
