"""Grants as aggregates: loaded under the lock of their row, changed by the core, saved whole."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from libs.pg.pool import Connection, Record
from libs.remembered import remembered
from libs.resources.span import Range, Span, whole
from schemas.ids import GrantId, NodeId
from schemas.lifecycle import PartState
from schemas.reasons import Reason
from schemas.workload import ExitRecord, GrantedDevice, ReleaseProof, ReplicaSlot, Work
from services.placement.core.grant import Grant, Part

_work, _reason = remembered(Work), remembered(Reason)


@dataclass(frozen=True, slots=True)
class Change:
    """A grant before and after."""

    before: Grant
    after: Grant

    @property
    def parts(self) -> list[Part]:
        """The parts that changed, as they are now."""
        return [after for before, after in zip(self.before.parts, self.after.parts, strict=True) if after != before]

    @property
    def rebound(self) -> list[Part]:
        """The parts that are on other devices than before."""
        pairs = zip(self.before.parts, self.after.parts, strict=True)
        return [after for before, after in pairs if after.replicas != before.replicas]


async def load(connection: Connection, ids: Collection[GrantId]) -> dict[GrantId, Grant]:
    """Return the grants, their rows and those of their parts locked in the order of ids until the transaction ends."""
    rows = await connection.fetch(_LOCK, list(ids))
    found = [row["id"] for row in rows]
    parts = await connection.fetch(_PARTS, found)
    slots: dict[tuple[str, str], list[Record]] = {}
    for line in await connection.fetch(_SLOTS, found):
        slots.setdefault((line["grant_id"], line["node"]), []).append(line)
    by_grant: dict[str, list[Part]] = {grant: [] for grant in found}
    for part in parts:
        by_grant[part["grant_id"]].append(_part(part, slots.get((part["grant_id"], part["node"]), [])))
    return {row["id"]: _grant(row, by_grant[row["id"]]) for row in rows}


async def moment(connection: Connection) -> datetime:
    """Return the ledger's clock now, not at the start of the transaction.

    Asked after the locks it is later than whatever they waited for: so what is issued, claimed and released on a
    device never overlaps and never ends before it began.
    """
    now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def causes(connection: Connection, ids: Collection[GrantId]) -> dict[GrantId, UUID | None]:
    """Return the facts that the grants answer: the last that admission said of their attempts."""
    return {row["id"]: row["cause"] for row in await connection.fetch(_CAUSES, list(ids))}


async def save(connection: Connection, changes: Sequence[Change]) -> None:
    """Write what changed: the grants, their parts, and the lines of parts that were released or rebound."""
    if not changes:
        return
    grants = [change.after for change in changes]
    await connection.execute(
        _SAVE,
        [grant.id for grant in grants],
        [grant.version for grant in grants],
        [grant.revoked_at for grant in grants],
        [grant.revocation for grant in grants],
        [grant.reason.model_dump_json() if grant.reason else None for grant in grants],
        [grant.live for grant in grants],
    )
    parts = [(change.after.id, part) for change in changes for part in change.parts]
    if parts:
        await _save_parts(connection, parts)
    over = [(grant, part.node) for grant, part in parts if not part.live]
    if over:
        await connection.execute(_FREE, [grant for grant, _ in over], [node for _, node in over])
    rebound = [(change.after.id, part) for change in changes for part in change.rebound]
    if rebound:
        await connection.execute(_UNBIND, [grant for grant, _ in rebound], [part.node for _, part in rebound])
        await insert_lines(connection, rebound)
        await connection.execute(_RAISE_EPOCHS, [grant for grant, _ in rebound])


async def insert_lines(connection: Connection, parts: Iterable[tuple[GrantId, Part]]) -> None:
    """Insert live lines on the whole devices of parts. Raises asyncpg's ExclusionViolationError: one is taken."""
    rows = [
        (grant, part.node, replica.rank, device.device, span_text(whole(device.ordinal)))
        for grant, part in parts
        for replica in part.replicas
        for device in replica.devices
    ]
    columns = list(zip(*rows, strict=True))
    await connection.execute(_LINES, *columns)


def span_text(span: Span) -> str:
    """Return a span as Postgres reads an int8multirange."""
    return "{" + ",".join(_range_text(part) for part in span) + "}"


async def _save_parts(connection: Connection, parts: Sequence[tuple[GrantId, Part]]) -> None:
    await connection.execute(
        _SAVE_PARTS,
        [grant for grant, _ in parts],
        [part.node for _, part in parts],
        [part.state for _, part in parts],
        [part.instance for _, part in parts],
        [part.boot for _, part in parts],
        [part.claimed_at for _, part in parts],
        [part.released_at for _, part in parts],
        [part.proof for _, part in parts],
        [part.exit.model_dump_json() if part.exit else None for _, part in parts],
        [part.suspected_at for _, part in parts],
        [part.escalated_at for _, part in parts],
        [part.version for _, part in parts],
        [part.revocation for _, part in parts],
        [part.narrowed_at for _, part in parts],
    )


def _range_text(part: Range) -> str:
    return f"[{part.start},{part.stop})"


def _grant(row: Record, parts: Sequence[Part]) -> Grant:
    return Grant(
        id=row["id"],
        epoch=row["epoch"],
        job=row["job"],
        attempt=row["attempt"],
        tenant=row["tenant"],
        name=row["name"],
        queue=row["queue"],
        cluster=row["cluster"],
        gpu_class=row["gpu_class"],
        work=_work(row["work"]),
        issued_at=row["issued_at"],
        start_deadline=row["start_deadline"],
        parts=tuple(parts),
        version=row["version"],
        revoked_at=row["revoked_at"],
        revocation=row["revocation"],
        reason=_reason(row["reason"]) if row["reason"] else None,
    )


def _part(row: Record, lines: Sequence[Record]) -> Part:
    ranks: dict[int, list[GrantedDevice]] = {}
    for line in lines:
        device = GrantedDevice(device=line["device"], index=line["index"], ordinal=line["ordinal"])
        ranks.setdefault(line["rank"], []).append(device)
    return Part(
        node=NodeId(row["node"]),
        node_name=row["node_name"],
        replicas=tuple(ReplicaSlot(rank=rank, devices=tuple(devices)) for rank, devices in ranks.items()),
        state=PartState(row["state"]),
        instance=row["instance"],
        boot=row["boot"],
        claimed_at=row["claimed_at"],
        released_at=row["released_at"],
        proof=ReleaseProof(row["proof"]) if row["proof"] else None,
        exit=ExitRecord.model_validate_json(row["exit"]) if row["exit"] else None,
        suspected_at=row["suspected_at"],
        escalated_at=row["escalated_at"],
        version=row["version"],
        owner_epoch=row["owner_epoch"],
        revocation=row["revocation"],
        narrowed_at=row["narrowed_at"],
        doubtful=row["doubtful"],
    )


_LOCK = """
SELECT id, epoch, job, attempt, tenant, name, queue, cluster, gpu_class, work, issued_at, start_deadline, version,
       revoked_at, revocation, reason
FROM grants
WHERE id = ANY($1::text[])
ORDER BY id
FOR UPDATE
"""
_PARTS = """
SELECT grant_id, node, node_name, state, instance, boot, claimed_at, released_at, proof, exit, suspected_at,
       escalated_at, version, owner_epoch, revocation, narrowed_at,
       state = 'Issued' AND EXISTS (
           SELECT FROM stops s LEFT JOIN nodes n ON n.node = parts.node AND n.told_at >= s.since WHERE n.node IS NULL
       ) AS doubtful
FROM parts
WHERE grant_id = ANY($1::text[])
ORDER BY grant_id, node
FOR NO KEY UPDATE
"""
_SLOTS = """
SELECT l.grant_id, l.node, l.rank, l.device, d.index, d.ordinal
FROM lines l JOIN devices d ON d.device = l.device
WHERE l.grant_id = ANY($1::text[])
ORDER BY l.grant_id, l.node, l.rank, l.id
"""
_CAUSES = """
SELECT g.id, a.cause FROM grants g JOIN attempts a ON a.job = g.job AND a.attempt = g.attempt
WHERE g.id = ANY($1::text[])
"""
_SAVE = """
UPDATE grants g
SET version = c.version, revoked_at = c.revoked_at, revocation = c.revocation, reason = c.reason::jsonb, live = c.live
FROM unnest($1::text[], $2::int[], $3::timestamptz[], $4::int[], $5::text[], $6::boolean[])
     AS c(id, version, revoked_at, revocation, reason, live)
WHERE g.id = c.id
"""
_SAVE_PARTS = """
UPDATE parts p
SET state = c.state, instance = c.instance, boot = c.boot, claimed_at = c.claimed_at, released_at = c.released_at,
    proof = c.proof, exit = c.exit::jsonb, suspected_at = c.suspected_at, escalated_at = c.escalated_at,
    version = c.version, revocation = c.revocation, narrowed_at = c.narrowed_at,
    next_seal_at = CASE WHEN c.state = 'Revoking' THEN coalesce(p.next_seal_at, now())
                        WHEN c.proof = 'Override' THEN now() END,
    seal_asks = CASE WHEN c.proof = 'Override' THEN 0 ELSE p.seal_asks END
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[],
            $8::text[], $9::text[], $10::timestamptz[], $11::timestamptz[], $12::int[], $13::int[],
            $14::timestamptz[])
     AS c(grant_id, node, state, instance, boot, claimed_at, released_at, proof, exit, suspected_at, escalated_at,
          version, revocation, narrowed_at)
WHERE p.grant_id = c.grant_id AND p.node = c.node
"""
_FREE = """
UPDATE lines l SET live = false
FROM unnest($1::text[], $2::text[]) AS p(grant_id, node)
WHERE l.grant_id = p.grant_id AND l.node = p.node AND l.live
"""
_UNBIND = """
DELETE FROM lines l
USING unnest($1::text[], $2::text[]) AS p(grant_id, node)
WHERE l.grant_id = p.grant_id AND l.node = p.node
"""
# else a lease of the grant on its new device would stand above the ledger, which would take itself for restored (L5)
_RAISE_EPOCHS = """
UPDATE devices d SET last_epoch = g.epoch
FROM lines l JOIN grants g ON g.id = l.grant_id
WHERE g.id = ANY($1::text[]) AND l.live AND d.device = l.device AND d.last_epoch < g.epoch
"""
_LINES = """
INSERT INTO lines (grant_id, node, rank, device, span)
SELECT grant_id, node, rank, device, span::int8multirange
FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::text[]) AS l(grant_id, node, rank, device, span)
"""
