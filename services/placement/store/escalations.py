"""Reading what is not known of devices, and since when."""

from datetime import datetime
from typing import Final

from libs.pg.pool import Connection, Record
from schemas.calls import Escalation
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.lifecycle import PartState
from services.placement.core.escalations import PartEvidence, blind_node, drift, of_part, stop, stranger, untaken
from services.placement.store.recovery import forgotten_row


async def escalations(connection: Connection) -> list[Escalation]:
    """Return all of them, the longest first."""
    found = [of_part(_part(row)) for row in await connection.fetch(_PARTS)]
    found += [_untaken(row) for row in await connection.fetch(_UNTAKEN)]
    found += [blind_node(**row) for row in await connection.fetch(_BLIND)]
    found += [stranger(**row) for row in await connection.fetch(_STRANGERS)]
    found += [drift(**row) for row in await connection.fetch(_DRIFTS)]
    found += [stop(**row) for row in await connection.fetch(_STOPS)]
    return sorted(found, key=lambda each: each.since)


async def overridden(connection: Connection, grant: GrantId, node: NodeId) -> tuple[DeviceId, ...] | None:
    """Return the devices of a part that was released on somebody's word before; None: it was not."""
    row = await connection.fetchrow(_OVERRIDDEN, grant, node)
    return tuple(row["devices"]) if row else None


async def standing(connection: Connection, grant: GrantId, node: NodeId) -> tuple[PartState, datetime | None] | None:
    """Return a part's state and when it was escalated; None: there is no such part."""
    row = await connection.fetchrow(_STANDING, grant, node)
    return (PartState(row["state"]), row["escalated_at"]) if row else None


def _part(row: Record) -> PartEvidence:
    fields = dict(row)
    fields |= {
        "state": PartState(row["state"]),
        "devices": tuple(row["devices"] or ()),
        "indexes": tuple(row["indexes"] or ()),
    }
    return PartEvidence(**fields)


def _untaken(row: Record) -> Escalation:
    return untaken(forgotten_row(row), since=row["since"], heard_at=row["heard_at"], silent=row["silent"])


_PARTS: Final = """
SELECT p.grant_id AS grant, g.epoch, g.tenant, g.job, g.name AS job_name, g.attempt, g.cluster, p.node, p.node_name,
       p.state, p.boot, p.instance, p.claimed_at, coalesce(p.narrowed_at, g.revoked_at) AS revoked_at,
       p.released_at, p.suspected_at, p.escalated_at,
       p.seal_note, p.seal_asks, n.heard_at, coalesce(n.suspect_since IS NOT NULL, true) AS silent,
       coalesce(n.blind, false) AS blind, o.person, h.devices, h.indexes
FROM parts p
JOIN grants g ON g.id = p.grant_id
LEFT JOIN nodes n ON n.node = p.node
LEFT JOIN overrides o ON o.grant_id = p.grant_id AND o.node = p.node
LEFT JOIN LATERAL (
    SELECT array_agg(d.device ORDER BY d.index) AS devices, array_agg(d.index ORDER BY d.index) AS indexes
    FROM lines l JOIN devices d ON d.device = l.device WHERE l.grant_id = p.grant_id AND l.node = p.node
) h ON true
WHERE p.state IN ('Claimed', 'Revoking') AND (p.suspected_at IS NOT NULL OR p.escalated_at IS NOT NULL OR n.blind)
   OR p.state = 'Revoking' AND p.seal_note IS NOT NULL
      AND coalesce(p.narrowed_at, g.revoked_at) < now() - make_interval(secs => (g.work ->> 'grace_seconds')::int)
   OR p.state = 'Released' AND p.next_seal_at IS NOT NULL
"""
_UNTAKEN: Final = """
SELECT f.node, n.name, n.cluster, f.boot, f.instance, f.launch::text AS launch, f.since, n.heard_at,
       n.suspect_since IS NOT NULL AS silent
FROM forgotten f JOIN nodes n ON n.node = f.node
WHERE f.stranger
"""
_BLIND: Final = """
SELECT cluster, node, name, blind_why AS why, coalesce(blind_since, heard_at, now()) AS since, heard_at
FROM nodes WHERE blind AND NOT retired
"""
_STRANGERS: Final = """
SELECT n.cluster, n.node, n.name, d.device, d.index, d.unmanaged_by AS user,
       coalesce(d.unmanaged_since, now()) AS since
FROM devices d JOIN nodes n ON n.node = d.node
WHERE d.unmanaged AND NOT d.retired AND NOT n.retired
"""
_DRIFTS: Final = """
SELECT d.kind, d.subject, d.node, n.name, d.found_at, d.since
FROM drifts d LEFT JOIN nodes n ON n.node = d.node
WHERE d.found_at IS NOT NULL
"""
_STOPS: Final = "SELECT device, lease_epoch, ledger_epoch, since FROM stops WHERE lifted_at IS NULL"
_OVERRIDDEN: Final = """
SELECT array_agg(l.device ORDER BY l.id) AS devices
FROM overrides o JOIN lines l ON l.grant_id = o.grant_id AND l.node = o.node
WHERE o.grant_id = $1 AND o.node = $2
GROUP BY o.grant_id
"""
_STANDING: Final = "SELECT state, escalated_at FROM parts WHERE grant_id = $1 AND node = $2"
