"""The moves of nodes. A move changes only under the lock of its node's cluster."""

from collections.abc import Collection
from typing import Final

from libs.pg.pool import Connection, Record
from schemas.fleet import MoveInfo
from schemas.ids import ClusterId, DeviceId, MoveId, NodeId
from schemas.lifecycle import MOVE_ENDS
from services.inventory.core.view import Move, Node

UNDER_WAY: Final = "SELECT number, version, info FROM moves WHERE open AND node = ANY($1::text[])"
ONE: Final = "SELECT number, version, info FROM moves WHERE move = $1"
DEVICES: Final = """
    SELECT d ->> 'device' AS device FROM nodes n, jsonb_array_elements(n.devices) d WHERE n.node = $1
"""
CLUSTER_OF: Final = "SELECT cluster FROM nodes WHERE node = $1"
# whoever asks has so long for it; what is further ahead was written before the clock was put back
DUE: Final = """
    WITH due AS (
        SELECT move FROM moves
        WHERE open AND (next_at <= now() OR next_at > now() + make_interval(secs => 2 * $2))
        ORDER BY next_at LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    UPDATE moves m SET next_at = now() + make_interval(secs => $2)
    FROM due d WHERE m.move = d.move
    RETURNING m.number, m.version, m.info
"""
SOON: Final = """
    UPDATE moves SET next_at = now()
    WHERE open AND node = ANY($1::text[]) AND info ->> 'state' = 'Requested' AND next_at > now()
"""
SAVE: Final = """
    INSERT INTO moves (move, node, number, version, info, open) VALUES ($1, $2, $3, $4, $5::jsonb, $6)
    ON CONFLICT (move) DO UPDATE SET version = excluded.version, info = excluded.info, open = excluded.open,
        next_at = now(), tries = 0
"""
# asked again after 1, 2, 4, … s
PUT_OFF: Final = """
    UPDATE moves
    SET version = $2, info = $3::jsonb, tries = tries + 1,
        next_at = now() + make_interval(secs => least($4::float8, 2 ^ least(tries, 10)))
    WHERE move = $1
"""
# a node that moves is told of its marks by its move
UNMARKED: Final = """
    WITH due AS (
        SELECT node FROM nodes n
        WHERE marks_due_at <= now() AND NOT EXISTS (SELECT FROM moves m WHERE m.open AND m.node = n.node)
        ORDER BY marks_due_at LIMIT $1 FOR UPDATE SKIP LOCKED
    )
    UPDATE nodes n SET marks_due_at = now() + make_interval(secs => $2)
    FROM due d WHERE n.node = d.node
    RETURNING n.node
"""
MARKED: Final = """
    UPDATE nodes n SET marks_due_at = NULL FROM unnest($1::text[], $2::int[]) AS a(node, moves)
    WHERE n.node = a.node AND n.moves = a.moves
"""
COUNTS: Final = """
    SELECT info ->> 'state' AS state, count(*)::int AS moves FROM moves WHERE open GROUP BY info ->> 'state'
"""


async def under_way(connection: Connection, nodes: Collection[NodeId]) -> dict[NodeId, Move]:
    """Return the moves of these nodes that are under way."""
    found = [_move(row) for row in await connection.fetch(UNDER_WAY, list(nodes))]
    return {move.info.node: move for move in found}


async def one(connection: Connection, move: MoveId) -> Move | None:
    """Return a move, also one that is over."""
    row = await connection.fetchrow(ONE, move)
    return _move(row) if row else None


async def cluster_of(connection: Connection, node: NodeId) -> ClusterId | None:
    """Return the cluster that declares a node; None: inventory knows no such node."""
    found: str | None = await connection.fetchval(CLUSTER_OF, node)
    return ClusterId(found) if found is not None else None


async def devices_of(connection: Connection, node: NodeId) -> tuple[DeviceId, ...]:
    """Return the devices that inventory knows of a node."""
    return tuple(DeviceId(row["device"]) for row in await connection.fetch(DEVICES, node))


async def due(connection: Connection, limit: int, seconds: float) -> list[Move]:
    """Return moves that go on now; nobody else gets them for so long."""
    return [_move(row) for row in await connection.fetch(DUE, limit, seconds)]


async def soon(connection: Connection, nodes: Collection[NodeId]) -> None:
    """Let the moves of these nodes that wait for granted work go on now."""
    await connection.execute(SOON, list(nodes))


async def save(connection: Connection, move: Move) -> None:
    """Keep a move that came to its state; it goes on at once."""
    info = move.info
    is_open = info.state not in MOVE_ENDS
    await connection.execute(SAVE, info.move, info.node, move.number, move.version, info.model_dump_json(), is_open)


async def put_off(connection: Connection, move: Move, most_seconds: float) -> None:
    """Keep a move that does not go on, and ask again later."""
    await connection.execute(PUT_OFF, move.info.move, move.version, move.info.model_dump_json(), most_seconds)


async def unmarked(connection: Connection, limit: int, seconds: float) -> list[NodeId]:
    """Return nodes whose marks are to be said again; nobody else gets them for so long."""
    return [NodeId(row["node"]) for row in await connection.fetch(UNMARKED, limit, seconds)]


async def marked(connection: Connection, nodes: Collection[Node]) -> None:
    """Note that these nodes bear their marks, unless they began to move meanwhile."""
    await connection.execute(MARKED, [node.id for node in nodes], [node.moves for node in nodes])


async def counts(connection: Connection) -> dict[tuple[str, ...], int]:
    """Count the moves under way by state."""
    return {(row["state"],): row["moves"] for row in await connection.fetch(COUNTS)}


def _move(row: Record) -> Move:
    return Move(MoveInfo.model_validate_json(row["info"]), row["number"], row["version"])
