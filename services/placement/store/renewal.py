"""What the leases are held against: the live lines and the highest epochs; and the stop when the ledger went back."""

from collections.abc import Sequence

from libs.leases import Lease
from libs.pg.pool import Connection


async def live_leases(connection: Connection) -> list[Lease]:
    """Return the lease of every device with a live line: what Redis is renewed and rebuilt from (L4)."""
    rows = await connection.fetch(_LIVE)
    return [Lease(row["device"], row["id"], row["epoch"]) for row in rows]


async def ghosts(connection: Connection, found: Sequence[Lease]) -> list[Lease]:
    """Return the leases whose grant the ledger knows and holds as over. One that it does not know is no ghost (L5)."""
    rows = await connection.fetch(
        _GHOSTS,
        [lease.device for lease in found],
        [lease.grant for lease in found],
        [lease.epoch for lease in found],
    )
    return [Lease(row["device"], row["id"], row["epoch"]) for row in rows]


async def stop_when_behind(connection: Connection, higher: Sequence[Lease]) -> list[Lease]:
    """Stop all new grants when a lease stands above the highest epoch that the ledger gave its device (L5).

    A lease above the line's epoch but not above that is the next grant's, met by a slow renewer. Returns the leases
    that show the ledger to be behind.
    """
    rows = await connection.fetch(
        _BEHIND,
        [lease.device for lease in higher],
        [lease.grant for lease in higher],
        [lease.epoch for lease in higher],
    )
    return [Lease(row["device"], row["lease_grant"], row["lease_epoch"]) for row in rows]


async def stopped(connection: Connection) -> bool:
    """Say whether new grants are stopped: by a stop, or by what nodes run and the ledger has not taken up yet."""
    return bool(await connection.fetchval(_STOPPED))


async def lifted(connection: Connection) -> bool:
    """Say whether no stop stands; what nodes run and the ledger forgot may still be taken up."""
    return bool(await connection.fetchval(_LIFTED))


async def lift_stop(connection: Connection, person: str) -> int:
    """Let grants go on after the recovery of a ledger that went back (R12). Return how many stops were lifted."""
    return len(await connection.fetch(_LIFT, person))


_LIVE = """
SELECT l.device, g.id, g.epoch FROM lines l JOIN grants g ON g.id = l.grant_id WHERE l.live ORDER BY l.id
"""
_GHOSTS = """
SELECT f.device, g.id, g.epoch
FROM unnest($1::text[], $2::text[], $3::bigint[]) AS f(device, id, epoch)
JOIN grants g ON g.id = f.id AND g.epoch = f.epoch
WHERE NOT EXISTS (SELECT FROM lines l WHERE l.grant_id = g.id AND l.device = f.device AND l.live)
"""
_BEHIND = """
WITH ahead AS (
    SELECT f.device, f.lease_grant, f.lease_epoch, d.last_epoch
    FROM unnest($1::text[], $2::text[], $3::bigint[]) AS f(device, lease_grant, lease_epoch)
    JOIN devices d ON d.device = f.device
    WHERE f.lease_epoch > d.last_epoch
       OR NOT EXISTS (SELECT FROM grants g WHERE g.id = f.lease_grant AND g.epoch = f.lease_epoch)
), noted AS (
    INSERT INTO stops (device, lease_grant, lease_epoch, ledger_epoch)
    SELECT a.device, a.lease_grant, a.lease_epoch, a.last_epoch
    FROM ahead a
    WHERE NOT EXISTS (
        SELECT FROM stops s
        WHERE s.device = a.device AND s.lease_epoch = a.lease_epoch AND s.lifted_at IS NULL
    )
)
SELECT device, lease_grant, lease_epoch FROM ahead
"""
_STOPPED = (
    "SELECT EXISTS (SELECT FROM stops WHERE lifted_at IS NULL) OR EXISTS (SELECT FROM forgotten WHERE NOT stranger)"
)
_LIFTED = "SELECT NOT EXISTS (SELECT FROM stops WHERE lifted_at IS NULL)"
_LIFT = "UPDATE stops SET lifted_at = now(), lifted_by = $1 WHERE lifted_at IS NULL RETURNING id"
