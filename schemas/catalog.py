"""The catalogue: every fact, who says it, who hears it, on which stream. All else is made from it."""

from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel

from schemas import calls, fleet, ledger, moves, runtime, workload
from schemas.base import Event, fact_name, fact_type

SERVICES: Final = (
    "gateway",
    "admission",
    "placement",
    "dispatch",
    "agent",
    "inventory",
    "health",
    "billing",
    "audit",
)
DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Fact:
    """One row: the owner alone says it; audit hears everything and is not listed."""

    event: type[Event]
    owner: str
    listeners: tuple[str, ...]

    @property
    def name(self) -> str:
        """``plane.noun.verb``."""
        return fact_name(self.event)

    @property
    def type(self) -> str:
        """``plane.noun.verb.v<major>``."""
        return fact_type(self.event)

    @property
    def plane(self) -> str:
        """First token of the name."""
        return self.name.partition(".")[0]

    @property
    def stream(self) -> str:
        """The plane's stream."""
        return self.plane.upper()

    @property
    def pattern(self) -> str:
        """What a durable filters on."""
        return f"{self.type}.>"


@dataclass(frozen=True, slots=True)
class Stream:
    """A JetStream stream; what is older than ``max_age_seconds`` goes."""

    name: str
    subjects: tuple[str, ...]
    max_age_seconds: int


@dataclass(frozen=True, slots=True)
class Durable:
    """A pull consumer ``<service>-<plane>``: one a service and stream, so that a batch keeps the stream's order."""

    name: str
    service: str
    stream: str
    filter_subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its reply. ``*`` in the subject stands for a node's id."""

    subject: str
    answered_by: str
    asked_by: tuple[str, ...]
    question: type[BaseModel]
    answer: type[BaseModel]


FACTS: Final[tuple[Fact, ...]] = (
    Fact(workload.RequestSubmitted, "gateway", ("admission",)),
    Fact(workload.RequestWithdrawn, "gateway", ("admission",)),
    Fact(workload.RequestApplied, "gateway", ("admission", "inventory", "billing")),
    Fact(workload.RequestOrdered, "gateway", ("health",)),
    Fact(workload.JobQueued, "admission", ("gateway",)),
    Fact(workload.JobQuotaReserved, "admission", ("gateway",)),
    Fact(workload.JobAdmitted, "admission", ("placement", "gateway")),
    Fact(workload.JobHeld, "admission", ("gateway",)),
    Fact(workload.JobEvicted, "admission", ("placement", "gateway")),
    Fact(workload.JobRequeued, "admission", ("gateway",)),
    Fact(workload.JobRejected, "admission", ("placement", "gateway")),
    Fact(workload.JobCancelled, "admission", ("placement", "gateway")),
    Fact(workload.JobFinished, "admission", ("placement", "gateway")),
    Fact(workload.GrantIssued, "placement", ("admission", "dispatch", "inventory", "health", "billing", "gateway")),
    Fact(workload.GrantRefused, "placement", ("admission", "gateway")),
    Fact(workload.GrantConfirmed, "placement", ("dispatch", "billing", "gateway")),
    Fact(workload.GrantNarrowed, "placement", ("gateway",)),
    Fact(workload.GrantRevoked, "placement", ("admission", "dispatch", "billing", "gateway")),
    Fact(workload.GrantSuspected, "placement", ("admission", "gateway")),
    Fact(workload.GrantCleared, "placement", ("gateway",)),
    Fact(workload.GrantOverridden, "placement", ("gateway",)),
    Fact(workload.GrantReleased, "placement", ("admission", "dispatch", "inventory", "health", "billing", "gateway")),
    Fact(workload.DriftFound, "placement", ("gateway",)),
    Fact(workload.DriftCleared, "placement", ("gateway",)),
    Fact(workload.RunLaunched, "dispatch", ("gateway",)),
    Fact(workload.RunAccepted, "dispatch", ("gateway",)),
    Fact(workload.RunStarted, "dispatch", ("gateway",)),
    Fact(workload.RunSucceeded, "dispatch", ("admission", "placement", "gateway")),
    Fact(workload.RunFailed, "dispatch", ("admission", "placement", "gateway")),
    Fact(workload.RunStopped, "dispatch", ("placement", "gateway")),
    Fact(workload.RunLost, "dispatch", ("admission", "placement", "gateway")),
    Fact(runtime.ObservationReported, "agent", ("inventory", "health", "placement")),
    Fact(runtime.ObservationNoticed, "agent", ("dispatch", "placement")),
    Fact(fleet.ClusterDiscovered, "inventory", ("placement", "gateway")),
    Fact(fleet.ClusterChanged, "inventory", ("placement", "gateway")),
    Fact(fleet.NodeDiscovered, "inventory", ("placement", "health", "gateway")),
    Fact(fleet.NodeChanged, "inventory", ("placement", "health", "gateway")),
    Fact(fleet.NodeWentStale, "inventory", ("placement", "gateway")),
    Fact(fleet.NodeFreshened, "inventory", ("placement", "gateway")),
    Fact(fleet.NodeRetired, "inventory", ("placement", "health", "gateway")),
    Fact(fleet.NodeOwnerChanged, "inventory", ("placement", "gateway")),
    Fact(fleet.MoveRequested, "inventory", ("gateway",)),
    Fact(fleet.MoveAdvanced, "inventory", ("gateway",)),
    Fact(fleet.MoveWaited, "inventory", ("gateway",)),
    Fact(fleet.MoveCompleted, "inventory", ("gateway",)),
    Fact(fleet.MoveCancelled, "inventory", ("gateway",)),
    Fact(fleet.IncidentOpened, "health", ("gateway",)),
    Fact(fleet.IncidentEscalated, "health", ("gateway",)),
    Fact(fleet.IncidentCleared, "health", ("gateway",)),
    Fact(fleet.DrainRequested, "health", ("inventory", "gateway")),
    Fact(fleet.DrainAcknowledged, "health", ("gateway",)),
    Fact(fleet.DrainCompleted, "health", ("gateway",)),
    Fact(fleet.DrainLifted, "health", ("inventory", "gateway")),
    Fact(ledger.UsageRated, "billing", ("gateway",)),
)

STREAMS: Final[tuple[Stream, ...]] = (
    Stream("WORKLOAD", ("workload.>",), 7 * DAY_SECONDS),
    Stream("RUNTIME", ("runtime.>",), 1 * DAY_SECONDS),
    Stream("FLEET", ("fleet.>",), 7 * DAY_SECONDS),
    Stream("LEDGER", ("ledger.>",), 30 * DAY_SECONDS),
    Stream("DEAD", ("dead.>",), 30 * DAY_SECONDS),
)

CALLS: Final[tuple[Call, ...]] = (
    Call("call.node.*.launch", "agent", ("dispatch",), calls.Launch, calls.LaunchAnswer),
    Call("call.node.*.find", "agent", ("dispatch",), calls.Find, calls.FindAnswer),
    Call("call.node.*.stop", "agent", ("dispatch",), calls.Stop, calls.StopAnswer),
    Call("call.node.*.seal", "agent", ("placement",), calls.Seal, calls.SealAnswer),
    Call("call.node.*.holders", "agent", ("placement",), calls.Holders, calls.HoldersAnswer),
    Call("call.node.*.logs", "agent", ("gateway",), calls.Logs, calls.LogsAnswer),
    Call("call.node.*.mark", "agent", ("inventory",), moves.MarkOrder, moves.MarkAnswer),
    Call("call.node.*.look", "agent", ("inventory",), moves.NodeLook, moves.NodeLookAnswer),
    Call("call.grant.claim", "placement", ("agent",), calls.Claim, calls.ClaimAnswer),
    Call("call.grant.hello", "placement", ("agent",), calls.Hello, calls.HelloAnswer),
    Call("call.grant.escalations", "placement", ("gateway",), calls.EscalationsQuery, calls.EscalationsPage),
    Call("call.grant.override", "placement", ("gateway",), calls.Override, calls.OverrideAnswer),
    Call("call.grant.hold", "placement", ("inventory",), moves.TransferHold, moves.TransferHoldAnswer),
    Call("call.grant.drop", "placement", ("inventory",), moves.TransferDrop, moves.TransferDropAnswer),
    Call("call.move.start", "inventory", ("gateway",), moves.MoveStart, moves.MoveAnswer),
    Call("call.move.cancel", "inventory", ("gateway",), moves.MoveCancel, moves.MoveAnswer),
    Call("call.job.charges", "admission", ("placement",), calls.PageQuery, calls.ChargesPage),
    Call("call.run.open", "dispatch", ("placement",), calls.PageQuery, calls.RunsPage),
    Call("call.audit.query", "audit", ("gateway",), calls.AuditQuery, calls.AuditPage),
)

BY_TYPE: Final = {fact.type: fact for fact in FACTS}
BY_EVENT: Final = {fact.event: fact for fact in FACTS}


def heard_by(service: str) -> tuple[Fact, ...]:
    """Return the facts a service listens to, in the catalogue's order; audit hears all."""
    return FACTS if service == "audit" else tuple(fact for fact in FACTS if service in fact.listeners)


def durables(service: str | None = None) -> tuple[Durable, ...]:
    """Return the durables of one service, or of all."""
    rows = []
    for name in SERVICES if service is None else (service,):
        filters: dict[str, list[str]] = {}
        for fact in heard_by(name):
            filters.setdefault(fact.plane, []).append(fact.pattern)
        rows += [Durable(f"{name}-{plane}", name, plane.upper(), tuple(subs)) for plane, subs in filters.items()]
    return tuple(rows)
