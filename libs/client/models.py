"""What the gateway's HTTP interface takes and gives: one definition for the server, the client and the command."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from schemas.reasons import Reason
from schemas.spec.base import Name, Tenant
from schemas.spec.parse import DocumentFault

Order = Literal["cordon", "drain", "uncordon"]
Words = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=500)]
"""A line of text for people: no control characters."""
RoleName = Literal["viewer", "submitter", "operator", "admin"]


class Model(BaseModel):
    """Frozen; fields that a newer gateway adds are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Problem(Model):
    """An error (RFC 9457), with the field it is about and what mends it."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None


class DocumentResult(Model):
    """What became of one document of a text."""

    number: int
    line: int
    kind: str | None
    tenant: str | None
    name: str | None
    outcome: Literal["created", "unchanged", "changed", "error"]
    id: str | None = None
    faults: tuple[DocumentFault, ...] = ()


class DocumentsAnswer(Model):
    """The results in the order of the text. After a dry run nothing was kept."""

    dry_run: bool
    results: tuple[DocumentResult, ...]


class Job(Model):
    """A job as it stands."""

    id: str
    tenant: str
    name: str
    generation: int
    queue: str
    state: str
    attempt: int
    ended: bool
    devices: int
    replicas: int
    gpu_class: str | None
    nodes: tuple[str, ...]
    reason: str | None
    submitted_by: str
    submitted_at: datetime
    withdrawn_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None


class JobDetail(Job):
    """A job with all that is known of it."""

    document: dict[str, Any]
    said: Reason | None
    run_reason: Reason | None


class JobPage(Model):
    """Jobs, newest first; ``next`` is the cursor of the page behind."""

    items: tuple[Job, ...]
    next: str | None = None


class HistoryLine(Model):
    """One thing that happened to a job."""

    at: datetime
    attempt: int
    type: str
    code: str | None = None
    message: str = ""
    numbers: dict[str, int] = Field(default_factory=dict)


class Explanation(Model):
    """Why a job is where it is: a stable code, and numbers counted now."""

    id: str
    tenant: str
    name: str
    state: str
    attempt: int
    code: str
    message: str
    numbers: dict[str, int]
    since: datetime | None
    retry_after_seconds: int | None
    history: tuple[HistoryLine, ...]


class TraceStep(Model):
    """One fact. ``seconds``: since what it answers (``after``), or since the step before when that is not known."""

    fact: UUID
    at: datetime
    service: str
    type: str
    attempt: int
    after: str | None
    seconds: float
    reason: Reason | None


class TracePhase(Model):
    """A part of an attempt's life and the last reason given for it. Not ``over``: it lasts until now."""

    name: str
    attempt: int
    began: datetime
    seconds: float
    over: bool
    reason: Reason | None


class JobTrace(Model):
    """A job's life fact by fact, and where the time went. ``trace``: its id in a tracing system. ``cut``: not whole."""

    id: str
    tenant: str
    name: str
    state: str
    attempt: int
    trace: str
    cut: bool
    steps: tuple[TraceStep, ...]
    phases: tuple[TracePhase, ...]


class LogPiece(Model):
    """A piece of a replica's output. ``known`` False: there is none yet. Ask again from ``next_offset``."""

    attempt: int
    rank: int
    known: bool
    text: str
    next_offset: int
    ended: bool


class FleetLine(Model):
    """Devices of one class in one cluster. Held and silent (unknown) ones are neither allocatable nor idle."""

    cluster: str
    gpu_class: str | None
    total: int
    allocatable: int
    reserved: int
    idle: int
    held: int
    unknown: int


class MarkLine(Model):
    """A hold on a node."""

    effect: str
    owner: str
    reason: str
    session: str
    since: datetime


class IncidentLine(Model):
    """An open incident of a node."""

    severity: str
    code: str
    message: str
    since: datetime


class Node(Model):
    """A node and what is granted on it. ``seen_at``: the last report before a silence, or the first after."""

    id: str
    cluster: str
    name: str
    devices: dict[str, int]
    reserved: int
    state: Literal["ready", "silent", "unreported", "cordoned", "draining", "drained"]
    seen_at: datetime | None
    place: dict[str, str]
    marks: tuple[MarkLine, ...]
    incidents: tuple[IncidentLine, ...]


class NodePage(Model):
    """Nodes by cluster and name; ``next`` is the cursor of the page behind."""

    items: tuple[Node, ...]
    next: str | None = None


class QueueLine(Model):
    """A queue's line of one class, in devices; jobs that wait and jobs that hold quota.

    ``preemption``: whose jobs may be ended for one that does not fit: Never, or LowerPriority of the same queue.
    """

    tenant: str
    queue: str
    order: str
    preemption: str = "Never"
    gpu_class: str
    nominal: int
    used: int
    waiting: int
    admitted: int
    warning: str | None = None


class NodeOrder(Model):
    """An order about a node. ``owner``: who stands for it; left out: who asks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: Order
    reason: Words
    owner: Words | None = None


class OrderAnswer(Model):
    """The order was taken; what it does shows at the node."""

    id: str
    order: Order
    node: str
    owner: str


class Escalation(Model):
    """Something that is not known of devices. ``commands`` settle it; ``waits_for_person``: nothing else will.

    ``evidence`` is what was last heard of the node and what its seal said.
    """

    subject: Literal["part", "node", "device", "ledger", "drift", "move"]
    state: str
    code: str
    message: str
    since: datetime
    age_seconds: int
    waits_for_person: bool
    tenant: str | None
    job: str | None
    job_name: str | None
    attempt: int | None
    grant: str | None
    epoch: int | None
    node: str | None
    node_name: str | None
    devices: tuple[str, ...]
    indexes: tuple[int, ...]
    evidence: tuple[str, ...]
    commands: tuple[str, ...]


class Settlement(Model):
    """Why a person says that nothing of an escalated part lives any more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reason: Words


class Settled(Model):
    """The part is Released, on whose word; its node is asked on until it shows the devices clear."""

    grant: str
    node: str
    devices: tuple[str, ...]
    person: str


class BillLine(Model):
    """What an account owes for one queue and class. Amounts are integer millionths of the currency."""

    account: str
    queue: str
    gpu_class: str
    currency: str
    device_seconds: int
    amount_micros: int


class NewTenant(Model):
    """A tenant to be created."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Tenant


class TenantLine(Model):
    """A tenant."""

    name: str
    created_by: str
    created_at: datetime


class NewToken(Model):
    """A token to be created. ``tenant`` ``*``: the whole fleet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    role: RoleName
    tenant: Tenant | Literal["*"]
    expires_in_seconds: int | None = Field(default=None, ge=60, le=10 * 366 * 86_400)


class TokenLine(Model):
    """A token without its secret."""

    id: str
    name: str
    role: RoleName
    tenant: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class CreatedToken(TokenLine):
    """A new token. The secret is shown this once."""

    secret: str


class Event(Model):
    """A fact that was heard, and its place in the log of events."""

    position: int
    type: str
    fact: dict[str, Any]


class Me(Model):
    """Who asks, and whom they ask."""

    name: str
    role: RoleName
    tenant: str
    version: str
