"""The holds of nodes that move, and the lines by which they have the slots."""

from collections.abc import Collection

from libs.pg.pool import Connection
from schemas.ids import GrantId, MoveId, NodeId
from schemas.moves import TransferDrop, TransferHold
from services.placement.core.holds import Standing


async def look(connection: Connection, node: NodeId, hold: MoveId) -> Standing:
    """Lock a node with its devices, and return what the ledger has of it and of a hold.

    A statement sees what was committed before it: so what follows is true until the end of the transaction.
    """
    await connection.execute(_LOCK_NODE, node)
    await connection.execute(_LOCK_DEVICES, node)
    row = await connection.fetchrow(_LOOK, node, hold)
    assert row is not None, node
    return Standing(row["owner"], row["owner_epoch"], row["dropped"], row["other"], tuple(row["grants"]))


async def keep(connection: Connection, asked: TransferHold) -> None:
    """Let nothing new be placed on the node; asked again it changes nothing."""
    await connection.execute(
        _KEEP,
        asked.move,
        asked.node,
        asked.owner_epoch,
        asked.stop,
        asked.owner,
        asked.reason,
        asked.session,
    )


async def take(connection: Connection, hold: MoveId) -> None:
    """Take all slots of the hold's node. Raises asyncpg's ExclusionViolationError: one has another line."""
    await connection.execute(_TAKE, hold)


async def drop(connection: Connection, asked: TransferDrop) -> None:
    """Give the slots back; what was never taken can not be taken any more."""
    await connection.execute(_DROP, asked.move, asked.node, asked.owner_epoch, asked.owner, asked.reason, asked.session)
    await connection.execute(_FREE, [asked.move])


async def outlive(connection: Connection, nodes: Collection[NodeId]) -> list[MoveId]:
    """Drop the holds of these nodes whose owner epoch has passed (M4), whoever the owner is now."""
    dropped = [MoveId(row["hold"]) for row in await connection.fetch(_OUTLIVE, list(nodes))]
    if dropped:
        await connection.execute(_FREE, dropped)
    return dropped


async def stopped_grants(connection: Connection) -> dict[GrantId, str]:
    """Return the grants that are to end because their node moves, and why it does."""
    return {row["grant_id"]: row["reason"] for row in await connection.fetch(_STOPPED)}


_LOCK_NODE = "SELECT node FROM nodes WHERE node = $1 FOR UPDATE"
_LOCK_DEVICES = "SELECT device FROM devices WHERE node = $1 ORDER BY device FOR UPDATE"
_LOOK = """
SELECT n.cluster AS owner, coalesce(n.owner_epoch, 0) AS owner_epoch,
       EXISTS (SELECT FROM holds h WHERE h.hold = a.hold AND h.dropped_at IS NOT NULL) AS dropped,
       (SELECT h.hold FROM holds h WHERE h.node = a.node AND h.hold <> a.hold AND h.dropped_at IS NULL) AS other,
       ARRAY(SELECT DISTINCT l.grant_id FROM lines l JOIN devices d ON d.device = l.device
             WHERE d.node = a.node AND l.live AND l.kind = 'grant' ORDER BY l.grant_id) AS grants
FROM (VALUES ($1::text, $2::text)) AS a(node, hold) LEFT JOIN nodes n ON n.node = a.node
"""
_KEEP = """
INSERT INTO holds (hold, kind, node, owner_epoch, stop, owner, reason, session)
VALUES ($1, 'transfer', $2, $3, $4, $5, $6, $7)
ON CONFLICT (hold) DO UPDATE SET stop = holds.stop OR excluded.stop
"""
_TAKE = """
WITH held AS (
    UPDATE holds SET held_at = coalesce(held_at, now()) WHERE hold = $1 RETURNING hold, node
)
INSERT INTO lines (kind, hold, node, device, span)
SELECT 'hold', h.hold, d.node, d.device, whole(d.ordinal)
FROM held h JOIN devices d ON d.node = h.node
WHERE NOT EXISTS (SELECT FROM lines l WHERE l.device = d.device AND l.live AND l.hold = h.hold)
"""
_DROP = """
INSERT INTO holds (hold, kind, node, owner_epoch, stop, owner, reason, session, dropped_at)
VALUES ($1, 'transfer', $2, $3, false, $4, $5, $6, now())
ON CONFLICT (hold) DO UPDATE SET dropped_at = coalesce(holds.dropped_at, now())
"""
_FREE = "UPDATE lines SET live = false WHERE hold = ANY($1::text[]) AND live"
_OUTLIVE = """
UPDATE holds h SET dropped_at = now()
FROM nodes n
WHERE n.node = ANY($1::text[]) AND h.node = n.node AND h.dropped_at IS NULL AND h.owner_epoch < n.owner_epoch
RETURNING h.hold
"""
_STOPPED = """
SELECT p.grant_id, h.reason
FROM holds h
JOIN parts p ON p.node = h.node AND p.state IN ('Issued', 'Claimed')
JOIN grants g ON g.id = p.grant_id AND g.revoked_at IS NULL
WHERE h.dropped_at IS NULL AND h.stop
"""
