"""Placement in numbers, by class."""

from typing import Final

from libs.pg.pool import Connection

Lines = dict[tuple[str, ...], int]


async def devices(connection: Connection) -> tuple[Lines, Lines]:
    """Count the devices that are offered and free, and those that a live grant holds."""
    rows = await connection.fetch(_DEVICES)
    free: Lines = {(row["gpu_class"],): row["free"] for row in rows}
    live: Lines = {(row["gpu_class"],): row["live"] for row in rows}
    return free, live


async def pending(connection: Connection) -> Lines:
    """Count the attempts that wait for devices."""
    return {(row["gpu_class"],): row["attempts"] for row in await connection.fetch(_PENDING)}


async def strangers(connection: Connection) -> int:
    """Count what nodes run and the ledger has no part for and cannot take up (R12)."""
    return int(await connection.fetchval("SELECT count(*) FROM forgotten WHERE stranger"))


_DEVICES: Final = """
SELECT d.gpu_class, count(DISTINCT d.device) FILTER (WHERE l.id IS NOT NULL)::int AS live,
       count(*) FILTER (
           WHERE l.id IS NULL AND NOT d.unmanaged AND o.device IS NULL
             AND n.reported AND NOT n.stale AND NOT n.blind AND n.suspect_since IS NULL AND n.marks = '[]'
             AND coalesce(n.told_at >= (SELECT max(since) FROM stops), NOT EXISTS (SELECT FROM stops))
             AND NOT EXISTS (SELECT FROM parts p WHERE p.node = n.node AND p.state <> 'Released'
                             AND p.escalated_at IS NOT NULL)
       )::int AS free
FROM devices d
JOIN nodes n ON n.node = d.node AND NOT n.retired
LEFT JOIN lines l ON l.device = d.device AND l.live
LEFT JOIN occupied o ON o.device = d.device
WHERE NOT d.retired AND d.gpu_class IS NOT NULL
GROUP BY d.gpu_class
"""
_PENDING: Final = """
SELECT gpu_class, count(*)::int AS attempts FROM attempts WHERE state = 'Pending' GROUP BY gpu_class
"""
