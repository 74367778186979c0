"""Calls: the only messages that are not facts. Request and reply; a lost answer is resolved by asking again."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from schemas.base import Value
from schemas.ids import ClusterId, DeviceId, GrantId, JobId, NodeId, RunName, TenantId
from schemas.lifecycle import DeviceState, PartState, RunState
from schemas.reasons import Code, Reason
from schemas.runtime import Holder
from schemas.workload import ExitRecord, ReplicaSlot, Work


class LaunchOrder(Value):
    """Start one part: one shim on the node, which starts one process per replica of the part.

    ``world_size`` counts the ranks of the whole gang; rank 0 is on the node ``master_addr``. ``cluster`` is the
    destination that the grant is of; None: the one whose document declares the node.
    """

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    tenant: TenantId
    name: str
    queue: str
    node: NodeId
    replicas: tuple[ReplicaSlot, ...]
    world_size: int
    master_addr: str
    master_port: int
    work: Work
    start_deadline: datetime
    cluster: ClusterId | None = None


class Launch(Value):
    """call.node.<id>.launch: idempotent by run, grant and epoch."""

    orders: tuple[LaunchOrder, ...]


class LaunchReply(Value):
    """One order's answer. Accepted: a shim for this grant exists (now or already)."""

    run: RunName
    grant: GrantId
    accepted: bool
    reason: Reason | None = None


class LaunchAnswer(Value):
    """The answers, in the order of the orders."""

    replies: tuple[LaunchReply, ...]


class Find(Value):
    """call.node.<id>.find: what became of these runs; no names: all that the node knows."""

    runs: tuple[RunName, ...] = ()


class FoundState(StrEnum):
    """Where a run instance is on its node."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class FoundRun(Value):
    """One run as its node knows it."""

    run: RunName
    grant: GrantId
    epoch: int
    job: JobId
    attempt: int
    node: NodeId
    instance: str
    state: FoundState
    exit: ExitRecord | None = None


class FindAnswer(Value):
    """What was found. ``ready`` False: the node can not tell yet, absence means nothing."""

    ready: bool
    boot: str
    runs: tuple[FoundRun, ...]


class Stop(Value):
    """call.node.<id>.stop: TERM now, KILL after the grace; only for a grant that is Revoking or Released."""

    run: RunName
    grant: GrantId
    epoch: int
    grace_seconds: int


class StopAnswer(Value):
    """Whether the node knows such a run; stopping goes on after the answer."""

    known: bool
    reason: Reason | None = None


class Seal(Value):
    """call.node.<id>.seal: look now whether the devices are clear. ``revocation``: the revocation's version."""

    run: RunName
    grant: GrantId
    epoch: int
    node: NodeId
    devices: tuple[DeviceId, ...]
    revocation: int
    stop: bool
    grace_seconds: int


class SealAnswer(Value):
    """The proof of release, or why there is none (``reason``). Repeats the question: answers can not be mixed up."""

    grant: GrantId
    epoch: int
    node: NodeId
    revocation: int
    sealed: bool
    boot: str
    devices: tuple[DeviceId, ...]
    exit: ExitRecord | None = None
    reason: Reason | None = None
    observed_at: datetime


class Logs(Value):
    """call.node.<id>.logs: a piece of a replica's output from a byte offset, at most ``limit`` bytes."""

    run: RunName
    rank: int
    offset: int = 0
    limit: int = 65_536


class LogsAnswer(Value):
    """The piece as text (bytes that are not UTF-8 are replaced) and where the next begins."""

    known: bool
    text: str
    next_offset: int
    ended: bool


class Claim(Value):
    """call.grant.claim: the question that every start asks, from the start itself (R2)."""

    grant: GrantId
    epoch: int
    node: NodeId
    cluster: ClusterId
    boot: str
    instance: str
    nonce: str
    devices: tuple[DeviceId, ...]


class ClaimAnswer(Value):
    """Yes: the ledger has committed Claimed. No: the reason's code."""

    grant: GrantId
    nonce: str
    granted: bool
    reason: Reason | None = None


class Hello(Value):
    """call.grant.hello: an agent that came up says which grants hold devices on its node.

    ``boots``: the number in the ledger's last answer to this agent; 0: none yet.
    """

    node: NodeId
    cluster: ClusterId
    boot: str
    incarnation: str
    holders: tuple[Holder, ...]
    boots: int = 0


class Verdict(StrEnum):
    """What the ledger says of a holder. Unknown is not an order: nothing is killed on it."""

    KEEP = "keep"
    STOP = "stop"
    UNKNOWN = "unknown"


class HolderVerdict(Value):
    """The ledger's word on one holder."""

    grant: GrantId
    verdict: Verdict


class HelloAnswer(Value):
    """``boot_known``: the ledger has seen this boot before, so a new runtime folder means a blind node (G6).

    ``boots`` a number: the boot was not taken; ask again with it. It counts the boots that the ledger knows of the
    node, on top of the time when the ledger last went back, so that only who hears this answer can end another boot: a
    hello that comes late never does.
    """

    boot_known: bool
    verdicts: tuple[HolderVerdict, ...]
    boots: int | None = None


class Subject(StrEnum):
    """What an escalation is about."""

    PART = "part"
    NODE = "node"
    DEVICE = "device"
    LEDGER = "ledger"
    DRIFT = "drift"


class EscalationsQuery(Value):
    """call.grant.escalations: what is not known of devices; of one tenant: only what its own attempts hold."""

    tenant: TenantId | None = None


class Escalation(Value):
    """One thing that is not known, and all that the ledger has to say of it. ``state``: of the devices.

    ``reason``: why it is here; ``since``: for how long; ``waits_for_person``: nothing will settle it by itself.
    Of a part: who holds the devices. ``heard_at``, ``boot``: of the node's last word. ``seal``: what the last
    question for a proof brought, ``seals_asked`` how many there were.
    """

    subject: Subject
    state: DeviceState
    reason: Reason
    since: datetime
    waits_for_person: bool
    cluster: ClusterId | None = None
    node: NodeId | None = None
    node_name: str | None = None
    devices: tuple[DeviceId, ...] = ()
    indexes: tuple[int, ...] = ()
    tenant: TenantId | None = None
    job: JobId | None = None
    job_name: str | None = None
    attempt: int | None = None
    grant: GrantId | None = None
    epoch: int | None = None
    part: PartState | None = None
    claimed_at: datetime | None = None
    revoked_at: datetime | None = None
    boot: str | None = None
    instance: str | None = None
    heard_at: datetime | None = None
    seal: Code | None = None
    seals_asked: int = 0


class EscalationsPage(Value):
    """All of them, the longest first, by the ledger's clock (``now``)."""

    now: datetime
    items: tuple[Escalation, ...]


class Override(Value):
    """call.grant.override: a named person's word that nothing of an escalated part lives any more (R11)."""

    grant: GrantId
    node: NodeId
    person: str
    reason: str


class OverrideAnswer(Value):
    """Done (also when it was before), or why not."""

    done: bool
    devices: tuple[DeviceId, ...] = ()
    reason: Reason | None = None


class Holders(Value):
    """call.node.<id>.holders: what runs on this node, with its order; asked after the ledger went back (R12)."""

    node: NodeId


class HeldRun(Value):
    """A run whose start the ledger has allowed at some time, and what it was ordered to be."""

    instance: str
    order: LaunchOrder


class HoldersAnswer(Value):
    """All of them. ``ready`` False: the node cannot tell yet, since it is blind or a start waits for leave."""

    node: NodeId
    boot: str
    ready: bool
    runs: tuple[HeldRun, ...]


class PageQuery(Value):
    """call.job.charges, call.run.open: what is open, in the order of its keys, behind ``after``."""

    after: str = ""
    limit: int = 5_000


class OpenCharge(Value):
    """An attempt that is charged and was given devices. ``devices``: those of them that are not proved free."""

    job: JobId
    attempt: int
    devices: int


class ChargesPage(Value):
    """A page; ``following`` is what to ask behind next, None: this was the last."""

    items: tuple[OpenCharge, ...]
    following: str | None = None


class OpenRun(Value):
    """A run that is not settled."""

    grant: GrantId
    run: RunName
    state: RunState


class RunsPage(Value):
    """A page; ``following`` is what to ask behind next, None: this was the last."""

    items: tuple[OpenRun, ...]
    following: str | None = None


class AuditQuery(Value):
    """call.audit.query: entries after a sequence number, oldest first; filters are joined by and."""

    entity: str | None = None
    type_prefix: str | None = None
    tenant: TenantId | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0
    limit: int = 200
    verify: bool = False


class AuditEntry(Value):
    """One fact as it was heard, and its place in the hash chain."""

    sequence: int
    heard_at: datetime
    type: str
    scope: str
    key: str
    source: str
    fact: dict[str, Any]
    previous_hash: str
    hash: str


class AuditPage(Value):
    """A page of entries. ``intact``: the whole chain holds (None: was not asked); ``broken_at``: first bad entry."""

    entries: tuple[AuditEntry, ...]
    intact: bool | None = None
    broken_at: int | None = None
