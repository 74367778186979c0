"""R1: one transaction that locks the attempts and the devices, looks again, draws the epochs, and inserts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from asyncpg import ExclusionViolationError, UniqueViolationError

from libs.bus.turn import Turn
from libs.errors import ConflictError
from libs.pg.pool import Connection, Record
from schemas.ids import GrantId, JobId, grant_id
from services.placement.core.decide import Placement
from services.placement.core.grant import Grant, Part, issue
from services.placement.store import comebacks
from services.placement.store.grants import insert_lines, moment

Attempt = tuple[JobId, int]


@dataclass(frozen=True, slots=True)
class Walled:
    """What the wall let through, and the gangs that lost a race: their attempts wait on."""

    granted: tuple[Grant, ...] = ()
    lost: tuple[Placement, ...] = ()


async def grant(turn: Turn, placements: Sequence[Placement], *, start_seconds: int) -> Walled:
    """Grant each gang that still can be, whole, and say so; no query per gang unless the constraint refuses one."""
    connection = turn.connection
    waiting = await _lock_attempts(connection, placements)
    free = await _lock_devices(connection, placements)
    able = [p for p in placements if _key(p) in waiting and _is_free(p, free)]
    epochs, now = await _draw(connection, len(able)), await moment(connection)
    times = (now, now + timedelta(seconds=start_seconds))
    pairs = [(p, _new(p, epoch, waiting[_key(p)]["grants"] + 1, *times)) for p, epoch in zip(able, epochs, strict=True)]
    causes = {key: row["cause"] for key, row in waiting.items()}
    granted = await _insert_all(turn, pairs, causes)
    let_through = {grant.id for grant in granted}
    inserted = {_key(p) for p, new in pairs if new.id in let_through}
    if inserted:
        await comebacks.end(connection, {job for job, _ in inserted})
    return Walled(tuple(granted), tuple(p for p in placements if _key(p) not in inserted))


async def _insert_all(
    turn: Turn, pairs: Sequence[tuple[Placement, Grant]], causes: dict[Attempt, UUID | None]
) -> list[Grant]:
    """Insert all at once; when the database refuses, each alone, so that one conflict is one gang's."""
    if not pairs:
        return []
    if await _insert(turn, pairs, causes):
        return [new for _, new in pairs]
    return [new for p, new in pairs if len(pairs) > 1 and await _insert(turn, [(p, new)], causes)]


async def _insert(turn: Turn, pairs: Sequence[tuple[Placement, Grant]], causes: dict[Attempt, UUID | None]) -> bool:
    """Insert under a savepoint; False: overlapping lines, a second live grant, or a deadlock."""
    try:
        async with turn.savepoint():
            await _insert_grants(turn.connection, pairs)
            for placement, new in pairs:
                for said in issue(new).facts:
                    cause = causes[_key(placement)]
                    turn.emit(said.fact, scope=new.tenant, key=new.id, version=said.version, cause=cause)
    except (ExclusionViolationError, UniqueViolationError, ConflictError):
        return False
    return True


async def _lock_attempts(connection: Connection, placements: Sequence[Placement]) -> dict[Attempt, Record]:
    keys = [_key(placement) for placement in placements]
    rows = await connection.fetch(_LOCK_ATTEMPTS, [job for job, _ in keys], [attempt for _, attempt in keys])
    return {(row["job"], row["attempt"]): row for row in rows}


async def _lock_devices(connection: Connection, placements: Sequence[Placement]) -> dict[str, Record]:
    """Lock the device rows in the order of their ids, then look: a statement sees what was committed before it."""
    devices = [device.device for placement in placements for device in placement.devices]
    await connection.execute(_LOCK_DEVICES, devices)
    return {row["device"]: row for row in await connection.fetch(_FREE_DEVICES, devices)}


def _is_free(placement: Placement, free: dict[str, Record]) -> bool:
    """Look again at what the decision saw: free devices of one owner, at the owner epoch that its nodes had."""
    wanted = (placement.cluster, placement.pending.gpu_class)
    rows = [
        (free.get(device.device), part.node.owner_epoch)
        for part in placement.parts
        for slot in part.replicas
        for device in slot.devices
    ]
    return all(
        row is not None and (row["owner"], row["gpu_class"], row["owner_epoch"]) == (*wanted, epoch)
        for row, epoch in rows
    )


async def _draw(connection: Connection, count: int) -> list[int]:
    """Draw epochs, after the locks: so the epochs of one device rise in the order of its grants [B2]."""
    return [row["epoch"] for row in await connection.fetch(_DRAW, count)]


def _new(placement: Placement, epoch: int, number: int, now: datetime, deadline: datetime) -> Grant:
    pending = placement.pending
    return Grant(
        id=grant_id(pending.job, pending.attempt, number),
        epoch=epoch,
        job=pending.job,
        attempt=pending.attempt,
        tenant=pending.tenant,
        name=pending.name,
        queue=pending.queue,
        cluster=placement.cluster,
        gpu_class=pending.gpu_class,
        work=pending.work,
        issued_at=now,
        start_deadline=deadline,
        parts=tuple(
            Part(part.node.node, part.node.name, part.replicas, owner_epoch=part.node.owner_epoch)
            for part in placement.parts
        ),
    )


async def insert_bare(connection: Connection, grant: Grant) -> None:
    """Insert a grant with Issued parts and without lines: one that was made before, and forgotten."""
    await _insert_rows(connection, [grant])
    nodes = [part.node for part in grant.parts]
    names = [part.node_name for part in grant.parts]
    zeros = [0] * len(nodes)
    epochs = [part.owner_epoch for part in grant.parts]
    await connection.execute(_INSERT_PARTS, [grant.id] * len(nodes), nodes, names, zeros, zeros, epochs)


async def raise_epochs(connection: Connection, held: Sequence[tuple[str, int]]) -> None:
    """Note the epochs that devices were given: they only rise."""
    await connection.execute(_RAISE_EPOCHS, [device for device, _ in held], [epoch for _, epoch in held])


async def _insert_grants(connection: Connection, pairs: Sequence[tuple[Placement, Grant]]) -> None:
    grants = [issue(new).grant for _, new in pairs]
    await _insert_rows(connection, grants)
    await _insert_parts(connection, pairs)
    await insert_lines(connection, [(new.id, part) for new in grants for part in new.parts])
    await raise_epochs(
        connection, [(d.device, new.epoch) for new in grants for part in new.parts for d in part.devices]
    )
    await connection.execute(_GRANTED, [new.job for new in grants], [new.attempt for new in grants])


async def _insert_rows(connection: Connection, grants: Sequence[Grant]) -> None:
    await connection.execute(
        _INSERT_GRANTS,
        [new.id for new in grants],
        [new.epoch for new in grants],
        [new.job for new in grants],
        [new.attempt for new in grants],
        [new.tenant for new in grants],
        [new.name for new in grants],
        [new.queue for new in grants],
        [new.cluster for new in grants],
        [new.gpu_class for new in grants],
        [new.work.model_dump_json() for new in grants],
        [new.issued_at for new in grants],
        [new.start_deadline for new in grants],
        [new.version for new in grants],
    )


async def _insert_parts(connection: Connection, pairs: Sequence[tuple[Placement, Grant]]) -> None:
    rows: list[tuple[GrantId, str, str, int, int, int]] = []
    for placement, new in pairs:
        demand = placement.pending.demand
        rows += [
            (
                new.id,
                part.node,
                part.node_name,
                len(part.replicas) * demand.cpu_milli_per_replica,
                len(part.replicas) * demand.memory_mib_per_replica,
                part.owner_epoch,
            )
            for part in new.parts
        ]
    columns = list(zip(*rows, strict=True))
    await connection.execute(_INSERT_PARTS, *columns)


def _key(placement: Placement) -> Attempt:
    return placement.pending.job, placement.pending.attempt


_LOCK_ATTEMPTS = """
SELECT a.job, a.attempt, a.grants, a.cause
FROM attempts a JOIN unnest($1::text[], $2::int[]) AS k(job, attempt) ON a.job = k.job AND a.attempt = k.attempt
WHERE a.state = 'Pending'
ORDER BY a.job, a.attempt
FOR UPDATE OF a
"""
_LOCK_DEVICES = "SELECT device FROM devices WHERE device = ANY($1::text[]) ORDER BY device FOR UPDATE"
_FREE_DEVICES = """
SELECT d.device, d.owner, d.owner_epoch, d.gpu_class
FROM devices d JOIN nodes n ON n.node = d.node
WHERE d.device = ANY($1::text[]) AND NOT d.retired AND NOT d.unmanaged
  AND n.reported AND NOT (n.stale OR n.retired OR n.blind) AND n.suspect_since IS NULL AND n.marks = '[]'::jsonb
  AND coalesce(n.told_at >= (SELECT max(since) FROM stops), NOT EXISTS (SELECT FROM stops))
  AND NOT EXISTS (SELECT FROM lines l WHERE l.device = d.device AND l.live)
  AND NOT EXISTS (SELECT FROM occupied o WHERE o.device = d.device)
  AND NOT EXISTS (SELECT FROM holds h WHERE h.node = d.node AND h.dropped_at IS NULL)
"""
_DRAW = "SELECT nextval('epochs') AS epoch FROM generate_series(1, $1::int)"
_INSERT_GRANTS = """
INSERT INTO grants (id, epoch, job, attempt, tenant, name, queue, cluster, gpu_class, work, issued_at, start_deadline,
                    version, live)
SELECT id, epoch, job, attempt, tenant, name, queue, cluster, gpu_class, work::jsonb, issued_at, start_deadline,
       version, true
FROM unnest($1::text[], $2::bigint[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[],
            $9::text[], $10::text[], $11::timestamptz[], $12::timestamptz[], $13::int[])
     AS g(id, epoch, job, attempt, tenant, name, queue, cluster, gpu_class, work, issued_at, start_deadline, version)
"""
_INSERT_PARTS = """
INSERT INTO parts (grant_id, node, node_name, state, cpu_milli, memory_mib, version, owner_epoch)
SELECT grant_id, node, node_name, 'Issued', cpu_milli, memory_mib, 0, owner_epoch
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[])
     AS p(grant_id, node, node_name, cpu_milli, memory_mib, owner_epoch)
"""
_RAISE_EPOCHS = """
UPDATE devices d SET last_epoch = greatest(d.last_epoch, e.epoch)
FROM unnest($1::text[], $2::bigint[]) AS e(device, epoch) WHERE d.device = e.device
"""
_GRANTED = """
UPDATE attempts a SET state = 'Granted', grants = a.grants + 1, refusal = NULL
FROM unnest($1::text[], $2::int[]) AS k(job, attempt) WHERE a.job = k.job AND a.attempt = k.attempt
"""
