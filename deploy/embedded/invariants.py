"""I1 to I10: what must always hold, checked against Postgres, Redis and what the workloads themselves wrote down.

``always`` holds at any moment; ``settled`` holds once nothing is under way. Each check returns breaches as sentences;
an empty list is the only good answer. The queries run as a user who may read every schema.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from libs.leases import Lease, Leases
from libs.pg.pool import Connection


@dataclass(frozen=True, slots=True)
class Stint:
    """A process's own record: this attempt was on this device from then to then (None: still is)."""

    job: str
    attempt: int
    device: str
    started_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Law:
    """One query whose every row is a breach. ``settled``: only to be asked when nothing is under way."""

    name: str
    says: str
    query: str
    settled: bool = False

    @property
    def schemas(self) -> set[str]:
        """The services whose tables it looks into."""
        return set(re.findall(r"(?:FROM|JOIN) (\w+)\.\w+", self.query))


LAWS = (
    Law(
        "I1",
        "two live lines of one device overlap",
        """
        SELECT a.device, a.grant_id AS one, b.grant_id AS other FROM placement.lines a
        JOIN placement.lines b ON a.id < b.id AND a.live AND b.live AND a.span && b.span
        """,
    ),
    Law(
        "I1",
        "two claims of one device overlap in time",
        """
        WITH tenure AS (
            SELECT l.device, p.grant_id, tstzrange(p.claimed_at, p.released_at) AS span
            FROM placement.lines l JOIN placement.parts p USING (grant_id, node)
            WHERE p.claimed_at <= coalesce(p.released_at, 'infinity')  -- or the clock was put back meanwhile
        )
        SELECT a.device, a.grant_id AS one, b.grant_id AS other FROM tenure a
        JOIN tenure b ON a.device = b.device AND a.grant_id < b.grant_id AND a.span && b.span
        """,
    ),
    Law(
        "I1",
        "a live part without a live line on each of its devices, or a line of a part that is over",
        """
        SELECT p.grant_id, p.node, p.state FROM placement.parts p
        LEFT JOIN placement.lines l ON l.grant_id = p.grant_id AND l.node = p.node
        GROUP BY p.grant_id, p.node, p.state
        HAVING CASE WHEN p.state = 'Released' THEN bool_or(l.live) ELSE NOT coalesce(bool_and(l.live), false) END
        """,
    ),
    Law(
        "I2",
        "a queue is charged over its quota",
        """
        SELECT c.tenant, c.queue, c.gpu_class, sum(c.booked) AS used, min((q.nominal ->> c.gpu_class)::int) AS nominal
        FROM admission.charges c JOIN admission.queues q ON q.tenant = c.tenant AND q.name = c.queue
        WHERE NOT c.over AND c.account = 'queue' GROUP BY c.tenant, c.queue, c.gpu_class
        HAVING sum(c.booked) > coalesce(min((q.nominal ->> c.gpu_class)::int), 0)
        """,
    ),
    Law(
        "I2",
        "a live grant that is not charged for all that it holds",
        """
        SELECT g.id, g.job, g.attempt, h.devices FROM placement.grants g
        CROSS JOIN LATERAL (SELECT count(*) AS devices FROM placement.lines l WHERE l.grant_id = g.id AND l.live) h
        LEFT JOIN admission.charges c ON c.job = g.job AND c.attempt = g.attempt AND NOT c.over
        WHERE g.live AND coalesce(g.reason ->> 'code', '') <> 'LedgerBehind'  -- of no job we know
          AND h.devices > coalesce(c.devices, 0)
                          - (SELECT coalesce(sum(value::int), 0) FROM jsonb_each_text(coalesce(c.released, '{}')))
        """,
    ),
    Law(
        "I2",
        "a charge of an attempt that is over and holds nothing",
        """
        SELECT c.job, c.attempt, c.devices FROM admission.charges c JOIN admission.jobs j USING (job)
        LEFT JOIN placement.grants g ON g.job = c.job AND g.attempt = c.attempt AND g.live
        WHERE NOT c.over AND g.id IS NULL AND (c.attempt < j.attempt OR j.state NOT IN ('Queued', 'Admitted'))
        """,
        settled=True,
    ),
    Law(
        "I2",
        "an attempt is admitted beside one of the same job that is not proved over",
        """
        SELECT c.job, c.attempt, c.booked FROM admission.charges c JOIN admission.jobs j USING (job)
        WHERE NOT c.over AND c.account = 'queue' AND c.booked > 0 AND c.attempt < j.attempt AND j.state = 'Admitted'
        """,
    ),
    Law(
        "I3",
        "a gang holds some of its devices and not all, and did not give the others back",
        """
        SELECT g.id, count(l.id) AS held FROM placement.grants g JOIN placement.attempts a USING (job, attempt)
        LEFT JOIN placement.parts p ON p.grant_id = g.id
        LEFT JOIN placement.lines l ON l.grant_id = g.id AND l.node = p.node AND (l.live OR p.narrowed_at IS NOT NULL)
        WHERE g.live AND g.revoked_at IS NULL GROUP BY g.id
        HAVING count(l.id) <> min((a.demand ->> 'replicas')::int * (a.demand ->> 'devices_per_replica')::int)
        """,
    ),
    Law(
        "I4",
        "a transition of an attempt was said twice",
        """
        WITH said AS (
            SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM admission.outbox
            UNION ALL SELECT convert_from(body, 'UTF8')::jsonb FROM placement.outbox
            UNION ALL SELECT convert_from(body, 'UTF8')::jsonb FROM dispatch.outbox
        )
        SELECT fact ->> 'type', fact #>> '{data,job}', fact #>> '{data,attempt}', count(*) FROM said
        WHERE fact ->> 'type' IN (
            'workload.job.queued.v1', 'workload.job.admitted.v1', 'workload.job.evicted.v1', 'workload.job.requeued.v1',
            'workload.grant.issued.v1', 'workload.grant.revoked.v1', 'workload.run.launched.v1',
            'workload.run.accepted.v1', 'workload.run.started.v1', 'workload.run.succeeded.v1',
            'workload.run.failed.v1', 'workload.run.stopped.v1', 'workload.run.lost.v1')
        GROUP BY 1, 2, 3 HAVING count(*) > 1
        """,
    ),
    Law(
        "I4",
        "a run has two results",
        """
        SELECT fact #>> '{data,run}', array_agg(fact ->> 'type') FROM (
            SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM dispatch.outbox) said
        WHERE fact ->> 'type' ~ 'workload.run.(succeeded|failed|stopped|lost)' GROUP BY 1 HAVING count(*) > 1
        """,
    ),
    Law(
        "I5",
        "a job has two ends, or something was said of it after its end",
        """
        WITH said AS (
            SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM admission.outbox
        ), numbered AS (
            SELECT fact #>> '{data,job}' AS job, (fact ->> 'entityversion')::int AS version,
                   fact ->> 'type' ~ 'workload.job.(finished|cancelled|rejected)' AS ends FROM said
        )
        SELECT job, count(*) FILTER (WHERE ends) AS ends, max(version), max(version) FILTER (WHERE ends)
        FROM numbered GROUP BY job
        HAVING count(*) FILTER (WHERE ends) > 1 OR max(version) FILTER (WHERE ends) < max(version)
        """,
    ),
    Law(
        "I5",
        "admission's row and what was said of the job's end differ",
        """
        SELECT j.job, j.state, e.fact ->> 'type' FROM admission.jobs j
        LEFT JOIN (SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM admission.outbox) e
          ON e.fact #>> '{data,job}' = j.job AND e.fact ->> 'type' ~ 'workload.job.(finished|cancelled|rejected)'
        WHERE (j.state IN ('Queued', 'Admitted')) <> (e.fact IS NULL)
        """,
    ),
    Law(
        "I6",
        "billed time of one device overlaps or is negative",
        """
        SELECT a.device, a.grant_id AS one, b.grant_id AS other FROM billing.lines a
        JOIN billing.lines b ON a.device = b.device AND a.grant_id <= b.grant_id AND (
            (a.grant_id < b.grant_id AND tstzrange(a.started_at, a.ended_at) && tstzrange(b.started_at, b.ended_at))
            OR (a.grant_id = b.grant_id AND a.ended_at < a.started_at))
        """,
    ),
    Law(
        "I6",
        "granted time and billed time differ",
        """
        SELECT p.grant_id, p.node, g.issued_at, p.released_at, l.devices, b.billed FROM placement.parts p
        JOIN placement.grants g ON g.id = p.grant_id
        JOIN LATERAL (SELECT count(*) AS devices FROM placement.lines
                      WHERE grant_id = p.grant_id AND node = p.node) l ON true
        JOIN LATERAL (SELECT sum(ended_at - started_at) AS billed FROM billing.lines
                      WHERE grant_id = p.grant_id AND node = p.node) b ON true
        WHERE p.state = 'Released'  -- nothing is billed if the clock was put back meanwhile
          AND b.billed IS DISTINCT FROM l.devices * (greatest(p.released_at, g.issued_at) - g.issued_at)
        """,
        settled=True,
    ),
    Law(
        "I7",
        "a part was released without proof, or as never claimed although it was",
        """
        SELECT grant_id, node, proof FROM placement.parts
        WHERE state = 'Released' AND (
            proof IS NULL OR proof = 'NeverClaimed' AND claimed_at IS NOT NULL
            OR proof <> 'NeverClaimed' AND claimed_at IS NULL AND NOT EXISTS (SELECT FROM placement.stops)
        )
        """,
    ),
    Law(
        "I8",
        "a drain without owner, reason or session",
        """
        SELECT fact #>> '{data,drain}' FROM (SELECT convert_from(body, 'UTF8')::jsonb AS fact FROM health.outbox) said
        WHERE fact ->> 'type' = 'fleet.drain.requested.v1'
          AND '' IN (fact #>> '{data,owner}', fact #>> '{data,reason}', fact #>> '{data,session}')
        """,
    ),
    Law(
        "I8",
        "a job holds room in a queue and does not wait there, or in one whose jobs do not preempt",
        """
        SELECT j.job, j.state, q.preempts FROM admission.jobs j
        JOIN admission.queues q ON q.tenant = j.tenant AND q.name = j.queue
        WHERE j.held_since IS NOT NULL AND (j.state <> 'Queued' OR j.preemption IS NULL OR NOT q.preempts)
        """,
    ),
    Law(
        "I8",
        "room in a queue is held for a job that has ended",
        """
        SELECT job, state, recovery FROM admission.jobs
        WHERE recovery IS NOT NULL AND state NOT IN ('Queued', 'Admitted')
        """,
    ),
    Law(
        "I8",
        "room is held for a grant that has not ended, or for longer than its job wishes",
        """
        SELECT c.job, g.revoked_at, c.until, c.seconds FROM placement.comebacks c
        JOIN placement.grants g ON g.id = c.grant_id
        WHERE coalesce(c.until > g.revoked_at + make_interval(secs => c.seconds), true)
        """,
    ),
    Law(
        "I9",
        "a job waits without a reason",
        """
        SELECT job, attempt, state FROM admission.jobs WHERE state = 'Queued' AND reason IS NULL
        UNION ALL SELECT job, attempt, state FROM placement.attempts WHERE state = 'Pending' AND refusal IS NULL
        """,
        settled=True,
    ),
    Law(
        "I9",
        "a job waits for quota with a quota that is not its queue's",
        """
        SELECT j.job, j.reason -> 'numbers' -> 'nominal', q.nominal FROM admission.jobs j
        JOIN admission.queues q ON q.tenant = j.tenant AND q.name = j.queue
        WHERE j.state = 'Queued' AND j.reason ->> 'code' IN ('WaitingForQuota', 'ExceedsQuota')
          AND NOT EXISTS (SELECT FROM jsonb_each(q.nominal) n WHERE n.value = j.reason -> 'numbers' -> 'nominal')
        """,
    ),
    Law(
        "I10",
        "a fact was never sent",
        """
        SELECT 'admission' AS service, subject FROM admission.outbox WHERE sent_at IS NULL
        UNION ALL SELECT 'placement', subject FROM placement.outbox WHERE sent_at IS NULL
        UNION ALL SELECT 'dispatch', subject FROM dispatch.outbox WHERE sent_at IS NULL
        UNION ALL SELECT 'gateway', subject FROM gateway.outbox WHERE sent_at IS NULL
        UNION ALL SELECT 'billing', subject FROM billing.outbox WHERE sent_at IS NULL
        """,
        settled=True,
    ),
)
LIVE_LEASES = """
    SELECT l.device, l.grant_id, g.epoch, d.last_epoch FROM placement.devices d
    LEFT JOIN placement.lines l ON l.device = d.device AND l.live AND l.kind = 'grant'
    LEFT JOIN placement.grants g ON g.id = l.grant_id
"""
DEVICES = "SELECT device, last_epoch FROM placement.devices"


async def breaches(postgres: Connection, leases: Leases, stints: Iterable[Stint] = (), *, settled: bool) -> list[str]:
    """Return what does not hold, as sentences that begin with the invariant's name."""
    found = []
    for law in LAWS:
        if settled or not law.settled:
            found += await _broken(postgres, law)
    found += await _lease_breaches(postgres, leases, settled=settled)
    return found + overlaps(stints)


async def alone(postgres: Connection, schemas: Collection[str]) -> list[str]:
    """Return what does not hold inside one service's tables, whatever its neighbours did or did not do."""
    laws = [law for law in LAWS if not law.settled and len(law.schemas) == 1 and law.schemas <= set(schemas)]
    return [breach for law in laws for breach in await _broken(postgres, law)]


async def _broken(postgres: Connection, law: Law) -> list[str]:
    rows = await postgres.fetch(law.query)
    return [f"{law.name}: {law.says}: {tuple(row.values())}" for row in rows[:5]]


async def _lease_breaches(postgres: Connection, leases: Leases, *, settled: bool) -> list[str]:
    """No lease stands above the ledger; when settled, every live line has its lease."""
    highest = {row["device"]: row["last_epoch"] for row in await postgres.fetch(DEVICES)}
    said = await leases.read_many(sorted(highest))
    above = [lease for device, lease in said.items() if lease is not None and lease.epoch > highest[device]]
    found = [f"I10: a lease stands above the ledger: {lease}" for lease in above]
    if settled:
        rows = [row for row in await postgres.fetch(LIVE_LEASES) if row["grant_id"] is not None]
        live = [Lease(row["device"], row["grant_id"], row["epoch"]) for row in rows]
        found += [f"I10: a live line without its lease: {lease}" for lease in live if said.get(lease.device) != lease]
    return found


def overlaps(stints: Iterable[Stint]) -> list[str]:
    """Return where two attempts say that they were on one device at one time (I1, by the workloads' own word)."""
    by_device: dict[str, list[Stint]] = {}
    for stint in stints:
        by_device.setdefault(stint.device, []).append(stint)
    return [
        f"I1: {device} served {one.job} attempt {one.attempt} and {other.job} attempt {other.attempt} at once"
        for device, held in sorted(by_device.items())
        for one, other in pairwise(sorted(held, key=_by_start))
        if (one.job, one.attempt) != (other.job, other.attempt) and _end(one) > other.started_at
    ]


def _by_start(stint: Stint) -> datetime:
    return stint.started_at


def _end(stint: Stint) -> datetime:
    return stint.ended_at or datetime.max.replace(tzinfo=stint.started_at.tzinfo)
