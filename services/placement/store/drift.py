"""What is compared, and the differences that are known."""

from collections.abc import Collection, Sequence
from typing import Final
from uuid import UUID

from libs.pg.pool import Connection
from schemas.base import fact_type
from schemas.ids import GrantId, NodeId, fact_id
from schemas.lifecycle import PartState
from schemas.workload import DriftKind, GrantIssued, GrantReleased, GrantRevoked
from services.placement.core.drift import Difference, Held, Known, LedgerPart

_LOCK_KEY: Final = 7_214  # of the one replica that judges: any number that nobody else in the schema uses


async def alone(connection: Connection) -> bool:
    """Say whether no other replica judges now; it holds until the end of the transaction."""
    return bool(await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK_KEY))


async def live_parts(connection: Connection, *, silent_seconds: float) -> list[LedgerPart]:
    """Return every part that is not Released."""
    rows = await connection.fetch(_PARTS, silent_seconds)
    return [
        LedgerPart(
            row["grant_id"],
            row["job"],
            row["attempt"],
            row["node"],
            PartState(row["state"]),
            row["heard"],
            row["devices"],
        )
        for row in rows
    ]


async def held(connection: Connection) -> list[Held]:
    """Return what nodes named in their last reports."""
    rows = await connection.fetch(_HELD)
    return [Held(row["node"], row["grant_id"], PartState(row["state"]) if row["state"] else None) for row in rows]


async def idle_devices(connection: Connection) -> list[str]:
    """Return the devices that no live line is on."""
    return [row["device"] for row in await connection.fetch(_IDLE)]


async def known(connection: Connection) -> list[Known]:
    """Return the differences that were seen before and are not cleared."""
    rows = await connection.fetch(_KNOWN)
    return [
        Known(
            Difference(DriftKind(row["kind"]), row["subject"], row["node"]),
            row["since"],
            row["found_at"],
            row["version"],
        )
        for row in rows
    ]


async def note(connection: Connection, new: Collection[Difference]) -> None:
    """Note differences that are seen for the first time, or again after they were cleared."""
    rows = [(each.id, each.kind.value, each.subject, each.node) for each in new]
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    await connection.execute(_NOTE, *columns)


async def mark_found(connection: Connection, found: Collection[Known]) -> None:
    """Note that these are said to be drifts."""
    await connection.execute(_FOUND, [each.difference.id for each in found])


async def mark_gone(connection: Connection, gone: Collection[Known]) -> None:
    """Note that these are over; their versions stay, so that one that comes back goes on from there."""
    await connection.execute(_GONE, [each.difference.id for each in gone])


async def counts(connection: Connection) -> dict[tuple[str, ...], int]:
    """Count the drifts by kind; a kind without any counts 0."""
    rows = {row["kind"]: row["drifts"] for row in await connection.fetch(_COUNTS)}
    return {(kind.value,): rows.get(kind.value, 0) for kind in DriftKind}


async def said_of(connection: Connection, grants: Collection[GrantId], attempts: Collection[str]) -> list[UUID]:
    """Return the ids of what was said last of these grants, or of the grants of these attempts (as run names)."""
    rows = await connection.fetch(_SAID, list(grants), list(attempts))
    ids: list[UUID] = []
    for row in rows:
        ids.append(fact_id(fact_type(GrantIssued), row["id"], 1))
        if row["revocation"] is not None:
            ids.append(fact_id(fact_type(GrantRevoked), row["id"], row["revocation"]))
        ids += [fact_id(fact_type(GrantReleased), row["id"], version) for version in row["released"] or ()]
    return ids


async def stop_soon(connection: Connection, held: Collection[tuple[GrantId, NodeId]]) -> None:
    """Let these parts, which are Released and still have a process, be asked for a seal, which stops it (G7)."""
    await connection.execute(_STOP_SOON, [grant for grant, _ in held], [node for _, node in held])


async def hold(connection: Connection, nodes: Collection[NodeId], held: Sequence[tuple[NodeId, str, str]]) -> None:
    """Note what these nodes named (node, grant, instance) in their last reports, and nothing else any more."""
    columns = [list(column) for column in zip(*held, strict=True)] or [[], [], []]
    await connection.execute(_LET_GO, list(nodes), *columns)
    if held:
        await connection.execute(_HOLD, *columns)


_PARTS: Final = """
SELECT p.grant_id, g.job, g.attempt, p.node, p.state,
       coalesce(n.heard_at > greatest(now() - make_interval(secs => $1), p.claimed_at) AND NOT n.blind, false) AS heard,
       (SELECT count(*) FROM lines l WHERE l.grant_id = p.grant_id AND l.node = p.node AND l.live) AS devices
FROM parts p JOIN grants g ON g.id = p.grant_id LEFT JOIN nodes n ON n.node = p.node
WHERE p.state <> 'Released'
"""
_HELD: Final = """
SELECT h.node, h.grant_id, p.state FROM held h LEFT JOIN parts p ON p.grant_id = h.grant_id AND p.node = h.node
"""
_IDLE: Final = """
SELECT d.device FROM devices d
WHERE NOT d.retired AND NOT EXISTS (SELECT FROM lines l WHERE l.device = d.device AND l.live)
"""
_KNOWN: Final = "SELECT kind, subject, node, since, found_at, version FROM drifts WHERE since IS NOT NULL"
_NOTE: Final = """
INSERT INTO drifts AS d (drift, kind, subject, node, since)
SELECT drift, kind, subject, node, now()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS n(drift, kind, subject, node)
ON CONFLICT (drift) DO UPDATE SET since = now() WHERE d.since IS NULL
"""
_FOUND: Final = "UPDATE drifts SET found_at = now(), version = version + 1 WHERE drift = ANY($1::text[])"
_GONE: Final = """
UPDATE drifts SET since = NULL, gone_at = now(), version = version + (found_at IS NOT NULL)::int, found_at = NULL
WHERE drift = ANY($1::text[])
"""
_COUNTS: Final = "SELECT kind, count(*)::int AS drifts FROM drifts WHERE found_at IS NOT NULL GROUP BY kind"
_SAID: Final = """
SELECT g.id, g.revocation, array_agg(p.version) FILTER (WHERE p.state = 'Released') AS released
FROM grants g JOIN parts p ON p.grant_id = g.id
WHERE g.id = ANY($1::text[]) OR g.job || '-a' || g.attempt = ANY($2::text[])
GROUP BY g.id
"""
_STOP_SOON: Final = """
UPDATE parts p SET next_seal_at = now(), seal_asks = 0
FROM unnest($1::text[], $2::text[]) AS k(grant_id, node)
WHERE p.grant_id = k.grant_id AND p.node = k.node AND p.state = 'Released' AND p.next_seal_at IS NULL
"""
_LET_GO: Final = """
DELETE FROM held h
WHERE h.node = ANY($1::text[]) AND NOT EXISTS (
    SELECT FROM unnest($2::text[], $3::text[], $4::text[]) AS k(node, grant_id, instance)
    WHERE (k.node, k.grant_id, k.instance) = (h.node, h.grant_id, h.instance)
)
"""
_HOLD: Final = """
INSERT INTO held (node, grant_id, instance)
SELECT node, grant_id, instance FROM unnest($1::text[], $2::text[], $3::text[]) AS k(node, grant_id, instance)
ORDER BY node, grant_id, instance
ON CONFLICT DO NOTHING
"""
