"""Reading and writing what is rebuilt after the ledger went back (R12)."""

from collections.abc import Collection, Sequence
from typing import Final

from asyncpg import ExclusionViolationError, UniqueViolationError

from libs.errors import ConflictError
from libs.pg.pool import Connection
from schemas.calls import HoldersAnswer, LaunchOrder
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.workload import GrantedDevice
from services.placement.core.grant import Grant
from services.placement.core.recovery import Forgotten, Rebuilt
from services.placement.store import wall
from services.placement.store.grants import insert_lines

CLASHES: Final = (ExclusionViolationError, UniqueViolationError, ConflictError)
"""What ``insert`` raises when the ledger does not allow what a node runs."""


async def untold(connection: Connection) -> list[NodeId]:
    """Return the nodes that have not said what they run since the ledger last went back."""
    return [NodeId(row["node"]) for row in await connection.fetch(_UNTOLD)]


async def note_told(connection: Connection, nodes: Collection[NodeId]) -> None:
    """Note that these nodes have said what they run."""
    await connection.execute(_TOLD, list(nodes))


async def forget_not(connection: Connection, answers: Sequence[HoldersAnswer]) -> None:
    """Keep the runs of grants that the ledger does not know."""
    runs = [(answer, run) for answer in answers for run in answer.runs]
    await connection.execute(
        _KEEP,
        [run.order.grant for _, run in runs],
        [answer.node for answer, _ in runs],
        [answer.boot for answer, _ in runs],
        [run.instance for _, run in runs],
        [run.order.model_dump_json() for _, run in runs],
    )


async def forgotten(connection: Connection) -> list[Forgotten]:
    """Return all that is run and not known."""
    return [
        Forgotten(
            row["node"],
            row["name"],
            row["cluster"],
            row["boot"],
            row["instance"],
            LaunchOrder.model_validate_json(row["launch"]),
        )
        for row in await connection.fetch(_FORGOTTEN)
    ]


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


async def insert(connection: Connection, found: Rebuilt, grant: Grant) -> None:
    """Insert a grant as it must have been, with the attempt it needs. Raises CLASHES."""
    await connection.execute(_ATTEMPT, grant.job, grant.attempt, grant.tenant, found.number)
    await wall.insert_bare(connection, grant)
    await insert_lines(connection, [(grant.id, part) for part in grant.parts])
    await wall.raise_epochs(connection, [(device, grant.epoch) for device in found.devices])
    await connection.execute("DELETE FROM forgotten WHERE grant_id = $1", grant.id)


_UNTOLD: Final = """
SELECT node FROM nodes
WHERE NOT retired AND reported AND coalesce(told_at, '-infinity') < (SELECT max(since) FROM stops)
ORDER BY node
"""
_TOLD: Final = "UPDATE nodes SET told_at = clock_timestamp() WHERE node = ANY($1::text[])"
_KEEP: Final = """
INSERT INTO forgotten (grant_id, node, boot, instance, launch)
SELECT k.grant_id, k.node, k.boot, k.instance, k.launch
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::json[]) AS k(grant_id, node, boot, instance, launch)
WHERE NOT EXISTS (SELECT FROM grants g WHERE g.id = k.grant_id)
ON CONFLICT (grant_id, node) DO NOTHING
"""
_FORGOTTEN: Final = """
SELECT f.node, n.name, n.cluster, f.boot, f.instance, f.launch::text AS launch
FROM forgotten f JOIN nodes n ON n.node = f.node
ORDER BY f.grant_id, f.node
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
