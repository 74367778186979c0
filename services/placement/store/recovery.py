"""Reading and writing what is rebuilt after the ledger went back (R12)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from asyncpg import ExclusionViolationError, UniqueViolationError

from libs.errors import ConflictError
from libs.pg.pool import Connection, Record
from schemas.calls import HoldersAnswer, LaunchOrder
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.workload import GrantedDevice
from services.placement.core.grant import Grant
from services.placement.core.recovery import Forgotten, Rebuilt
from services.placement.store import wall
from services.placement.store.grants import insert_lines


def forgotten_row(row: Record) -> Forgotten:
    """Return a row of ``forgotten`` with its node's name and cluster."""
    return Forgotten(
        row["node"],
        row["name"],
        row["cluster"],
        row["boot"],
        row["instance"],
        LaunchOrder.model_validate_json(row["launch"]),
    )


async def untold(connection: Connection) -> list[NodeId]:
    """Return the nodes that have not said what they run since the ledger last went back."""
    return [NodeId(row["node"]) for row in await connection.fetch(_UNTOLD)]


async def note_told(connection: Connection, nodes: Collection[NodeId]) -> None:
    """Note that these nodes have said what they run."""
    await connection.execute(_TOLD, list(nodes))


async def forget_not(connection: Connection, answers: Sequence[HoldersAnswer]) -> list[Forgotten]:
    """Keep the runs that the ledger has no part for. Return those of them that are strangers, and new."""
    runs = [(answer, run) for answer in answers for run in answer.runs]
    rows = await connection.fetch(
        _KEEP,
        [run.order.grant for _, run in runs],
        [answer.node for answer, _ in runs],
        [run.order.epoch for _, run in runs],
        [answer.boot for answer, _ in runs],
        [run.instance for _, run in runs],
        [run.order.model_dump_json() for _, run in runs],
    )
    return [forgotten_row(row) for row in rows]


async def forgotten(connection: Connection) -> list[Forgotten]:
    """Return all that is run and may be taken up."""
    return [forgotten_row(row) for row in await connection.fetch(_FORGOTTEN)]


async def estrange(connection: Connection, parts: Sequence[Forgotten] = ()) -> list[Forgotten]:
    """Take up neither these parts nor those of grants that the ledger knows by now; return whom it did not know so."""
    return [forgotten_row(row) for row in await connection.fetch(_ESTRANGE, *_keys(parts))]


async def strangers(connection: Connection) -> list[Forgotten]:
    """Return the strangers whose seals are to be asked for: none while a stop stands, and none of retired nodes."""
    return [forgotten_row(row) for row in await connection.fetch(_STRANGERS)]


async def settle(connection: Connection, proved: Sequence[Forgotten]) -> None:
    """Forget strangers that are proved over: their devices are offered again."""
    await connection.execute(_SETTLE, *_keys(proved))


async def end_boots(connection: Connection, ended: Mapping[NodeId, Collection[str]]) -> None:
    """Forget the strangers of boots that have ended."""
    pairs = [(node, boot) for node, boots in ended.items() for boot in boots]
    await connection.execute(_END_BOOTS, [node for node, _ in pairs], [boot for _, boot in pairs])


async def slots(
    connection: Connection, devices: Collection[DeviceId]
) -> dict[DeviceId, tuple[GrantedDevice, str | None]]:
    """Return devices with their ordinals and classes; their rows are locked."""
    rows = await connection.fetch(_SLOTS, list(devices))
    return {
        row["device"]: (
            GrantedDevice(device=row["device"], index=row["index"], ordinal=row["ordinal"]),
            row["gpu_class"],
        )
        for row in rows
    }


async def holding(connection: Connection, devices: Collection[DeviceId]) -> dict[tuple[GrantId, NodeId], bool]:
    """Return which parts have live lines on these devices, and whether the results of their runs were said."""
    rows = await connection.fetch(_HOLDING, list(devices))
    return {(row["grant_id"], row["node"]): row["run_over"] for row in rows}


async def waits(connection: Connection, grant: Rebuilt) -> bool:
    """Say whether its attempt is one that the ledger would grant devices to."""
    return bool(await connection.fetchval(_WAITS, grant.grant.job, grant.grant.attempt))


def has_no_place(error: ConflictError) -> bool:
    """Say whether the ledger holds something else in the place of what was to be inserted; False: try it again."""
    return isinstance(error.__cause__, ExclusionViolationError | UniqueViolationError)


async def insert(connection: Connection, found: Rebuilt, grant: Grant) -> None:
    """Insert a grant as it must have been, with the attempt it needs. Raises ConflictError, see ``has_no_place``."""
    await connection.execute(_ATTEMPT, grant.job, grant.attempt, grant.tenant, found.number)
    await wall.insert_bare(connection, grant)
    await insert_lines(connection, [(grant.id, part) for part in grant.parts])
    await wall.raise_epochs(connection, [(device, grant.epoch) for device in found.devices])
    await connection.execute("DELETE FROM forgotten WHERE grant_id = $1 AND epoch = $2", grant.id, grant.epoch)


def _keys(parts: Sequence[Forgotten]) -> tuple[list[GrantId], list[NodeId], list[int]]:
    """Return the columns of the primary key of these rows."""
    return [part.order.grant for part in parts], [part.node for part in parts], [part.order.epoch for part in parts]


_UNTOLD: Final = """
SELECT node FROM nodes
WHERE NOT retired AND reported AND coalesce(told_at, '-infinity') < (SELECT max(since) FROM stops)
ORDER BY node
"""
_TOLD: Final = "UPDATE nodes SET told_at = clock_timestamp() WHERE node = ANY($1::text[])"
_KEEP: Final = """
WITH kept AS (
    INSERT INTO forgotten (grant_id, node, epoch, boot, instance, launch, stranger)
    SELECT k.grant_id, k.node, k.epoch, k.boot, k.instance, k.launch,
           EXISTS (SELECT FROM grants g WHERE g.id = k.grant_id)
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::json[])
         AS k(grant_id, node, epoch, boot, instance, launch)
    WHERE NOT EXISTS (
        SELECT FROM grants g JOIN parts p ON p.grant_id = g.id
        WHERE g.id = k.grant_id AND g.epoch = k.epoch AND p.node = k.node
    )
    ON CONFLICT (grant_id, node, epoch) DO NOTHING
    RETURNING node, boot, instance, launch, stranger
)
SELECT k.node, n.name, n.cluster, k.boot, k.instance, k.launch::text AS launch
FROM kept k JOIN nodes n ON n.node = k.node
WHERE k.stranger
"""
_FORGOTTEN: Final = """
SELECT f.node, n.name, n.cluster, f.boot, f.instance, f.launch::text AS launch
FROM forgotten f JOIN nodes n ON n.node = f.node
WHERE NOT f.stranger
ORDER BY f.grant_id, f.node
"""
_ESTRANGE: Final = """
UPDATE forgotten f SET stranger = true
FROM nodes n
WHERE n.node = f.node AND NOT f.stranger AND (
    EXISTS (SELECT FROM grants g WHERE g.id = f.grant_id)
    OR (f.grant_id, f.node, f.epoch) IN (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]))
)
RETURNING f.node, n.name, n.cluster, f.boot, f.instance, f.launch::text AS launch
"""
_STRANGERS: Final = """
SELECT f.node, n.name, n.cluster, f.boot, f.instance, f.launch::text AS launch
FROM forgotten f JOIN nodes n ON n.node = f.node
WHERE f.stranger AND NOT n.retired AND NOT EXISTS (SELECT FROM stops WHERE lifted_at IS NULL)
ORDER BY f.since, f.grant_id, f.node
"""
_SETTLE: Final = """
DELETE FROM forgotten f
USING unnest($1::text[], $2::text[], $3::bigint[]) AS p(grant_id, node, epoch)
WHERE f.stranger AND f.grant_id = p.grant_id AND f.node = p.node AND f.epoch = p.epoch
"""
_END_BOOTS: Final = """
DELETE FROM forgotten f
USING unnest($1::text[], $2::text[]) AS e(node, boot)
WHERE f.stranger AND f.node = e.node AND f.boot = e.boot
"""
_SLOTS: Final = """
SELECT device, index, ordinal, gpu_class FROM devices WHERE device = ANY($1::text[]) ORDER BY device FOR UPDATE
"""
_HOLDING: Final = """
SELECT DISTINCT l.grant_id, l.node, g.run_over
FROM lines l JOIN grants g ON g.id = l.grant_id
WHERE l.device = ANY($1::text[]) AND l.live
"""
_WAITS: Final = """
SELECT EXISTS (
    SELECT FROM attempts a WHERE a.job = $1 AND a.attempt = $2 AND a.state = 'Pending' AND a.cause IS NOT NULL
)
"""
# an attempt that this ledger never heard of is refused: a later admission of it is told so, and tries the next one
_ATTEMPT: Final = """
INSERT INTO attempts AS a (job, attempt, state, tenant, grants, refused_at)
VALUES ($1, $2, 'Refused', $3, $4, now())
ON CONFLICT (job, attempt) DO UPDATE
SET state = CASE WHEN a.state = 'Pending' THEN 'Granted' ELSE a.state END, grants = greatest(a.grants, excluded.grants)
"""
