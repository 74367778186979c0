"""What is held for gangs that lost a node, until they are placed again, their jobs end, or the time is over.

A row is one job's; what it holds is what its last grant had. No grant, attempt or device is locked or changed by it.
"""

from collections.abc import Collection

from libs.pg.pool import Connection
from schemas.ids import GrantId, JobId
from services.placement.core.comeback import Comeback, Room


async def keep(connection: Connection, grants: Collection[GrantId]) -> None:
    """Hold what these grants had, which lost a node, where the demand of their attempts says for how long."""
    await connection.execute(_KEEP, list(grants))


async def end(connection: Connection, jobs: Collection[JobId]) -> None:
    """Hold nothing more for these jobs."""
    await connection.execute(_END, list(jobs))


async def end_late(connection: Connection) -> None:
    """Delete what is over; what stands further ahead than it may was written before the clock was put back."""
    await connection.execute(_END_LATE)
    await connection.execute(_SHORTEN)


async def standing(connection: Connection) -> list[Comeback]:
    """Return what is held now. Asked after the view: what it shows as free is held by then, if it is to be."""
    rooms: dict[JobId, list[Room]] = {}
    rows = await connection.fetch(_STANDING)
    for row in rows:
        room = Room(row["node"], row["devices"], row["cpu_milli"], row["memory_mib"])
        rooms.setdefault(JobId(row["job"]), []).append(room)
    return [
        Comeback(
            job=job,
            name=row["name"],
            priority=row["priority"],
            queued_at=row["queued_at"],
            cluster=row["cluster"],
            gpu_class=row["gpu_class"],
            until=row["until"],
            rooms=tuple(rooms[job]),
        )
        for job, row in {JobId(row["job"]): row for row in rows}.items()
    ]


_KEEP = """
INSERT INTO comebacks (job, grant_id, seconds, until)
SELECT DISTINCT ON (g.job) g.job, g.id, d.seconds, g.revoked_at + make_interval(secs => d.seconds)
FROM grants g
JOIN attempts a ON a.job = g.job AND a.attempt = g.attempt AND a.state = 'Granted'
CROSS JOIN LATERAL (SELECT (a.demand ->> 'recovery_seconds')::int AS seconds) d
WHERE g.id = ANY($1::text[]) AND d.seconds IS NOT NULL
ORDER BY g.job, g.epoch DESC
ON CONFLICT (job) DO UPDATE SET grant_id = excluded.grant_id, seconds = excluded.seconds, until = excluded.until
"""
_END = """
DELETE FROM comebacks
WHERE job IN (SELECT job FROM comebacks WHERE job = ANY($1::text[]) ORDER BY job FOR UPDATE)
"""
_END_LATE = "DELETE FROM comebacks WHERE until <= now()"
_SHORTEN = """
UPDATE comebacks SET until = now() + make_interval(secs => seconds)
WHERE until > now() + make_interval(secs => seconds)
"""
_STANDING = """
SELECT c.job, c.until, a.name, a.priority, a.queued_at, g.cluster, g.gpu_class, p.node, p.cpu_milli, p.memory_mib,
       (SELECT count(*)::int FROM lines l WHERE l.grant_id = p.grant_id AND l.node = p.node) AS devices
FROM comebacks c
JOIN grants g ON g.id = c.grant_id
JOIN attempts a ON a.job = g.job AND a.attempt = g.attempt
JOIN parts p ON p.grant_id = g.id
WHERE c.until > now()
ORDER BY c.job, p.node
"""
