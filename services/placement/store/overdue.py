"""Work that waits for time or for proof: seals to ask, deadlines that passed, facts whose answer was not heard."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from libs.pg.pool import Connection, Record
from libs.remembered import remembered
from schemas.base import Event, fact_type
from schemas.calls import Seal, SealAnswer
from schemas.ids import GrantId, JobId, NodeId, fact_id, run_name
from schemas.workload import GrantIssued, GrantRefused, GrantReleased, GrantRevoked, Work

_work = remembered(Work)
_LOCK_KEY: Final = 7_215  # any number that nobody else in the schema uses


async def seals_due(connection: Connection, limit: int) -> list[Seal]:
    """Take the seals to ask for now, each for one replica of this service; the next ask comes after a growing pause."""
    rows = await connection.fetch(_SEALS_DUE, limit)
    return [
        Seal(
            run=run_name(row["job"], row["attempt"]),
            grant=row["grant_id"],
            epoch=row["epoch"],
            node=row["node"],
            devices=tuple(row["devices"]),
            revocation=row["revocation"],
            stop=True,
            grace_seconds=_work(row["work"]).grace_seconds,
        )
        for row in rows
    ]


async def note_refused_seals(connection: Connection, notes: Sequence[tuple[GrantId, NodeId, str]]) -> None:
    """Note why seals were not given (grant, node, code)."""
    columns = list(zip(*notes, strict=True))
    await connection.execute(_NOTE_SEALS, *columns)


async def note_clear(connection: Connection, answers: Sequence[SealAnswer]) -> None:
    """Ask no more about parts that were released on a person's word and are sealed now."""
    await connection.execute(
        _NOTE_CLEAR,
        [answer.grant for answer in answers],
        [answer.node for answer in answers],
        [answer.revocation for answer in answers],
    )


async def note_boots_over(connection: Connection, ended: Mapping[NodeId, Collection[str]]) -> None:
    """Ask no more about parts that were released on a person's word and whose boot has ended since."""
    pairs = [(node, boot) for node, boots in ended.items() for boot in boots]
    await connection.execute(_NOTE_BOOTS_OVER, [node for node, _ in pairs], [boot for _, boot in pairs])


async def going_on_elsewhere(connection: Connection, grants: Collection[GrantId]) -> set[GrantId]:
    """Return those of these grants that are not revoked and have more than one part that goes on."""
    return {row["grant_id"] for row in await connection.fetch(_GO_ON, list(grants))}


async def seal_soon(connection: Connection, grants: Collection[GrantId]) -> bool:
    """Let the seals of these grants be asked for at once. Return whether one waits for it."""
    return bool(await connection.fetch(_SEAL_SOON, list(grants)))


@dataclass(frozen=True, slots=True)
class Overdue:
    """Grants whose unclaimed parts are past their deadline, and parts whose proof is (grant, node)."""

    unclaimed: tuple[GrantId, ...]
    stuck: tuple[tuple[GrantId, NodeId], ...]


async def alone(connection: Connection) -> bool:
    """Say whether no other replica looks at deadlines now; it holds until the end of the transaction."""
    return bool(await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK_KEY))


async def overdue(connection: Connection, *, stuck_seconds: int) -> Overdue:
    """Return what is past its deadline now (R7)."""
    unclaimed = tuple(row["id"] for row in await connection.fetch(_UNCLAIMED))
    stuck = await connection.fetch(_STUCK, stuck_seconds)
    return Overdue(unclaimed, tuple((row["grant_id"], row["node"]) for row in stuck))


async def unanswered(connection: Connection, *, quiet_seconds: int) -> list[UUID]:
    """Return the facts to say again: of grants that are not over for all who wait for them, and final refusals."""
    grants = await connection.fetch(_UNANSWERED_GRANTS, quiet_seconds)
    refusals = await connection.fetch(_UNANSWERED_REFUSALS, quiet_seconds)
    return [
        *(fact for row in grants for fact in _unanswered(row)),
        *(_id(GrantRefused, run_name(JobId(row["job"]), row["attempt"]), row["refusals"]) for row in refusals),
    ]


def _unanswered(row: Record) -> list[UUID]:
    """An issue until it is claimed, a revocation until the attempt is over; all of it until the run is over, too."""
    if row["revocation"] is None:
        return [_id(GrantIssued, row["id"], 1)] if row["unclaimed"] else []
    revoked = _id(GrantRevoked, row["id"], row["revocation"])
    if row["run_over"]:
        return [revoked]
    released = (_id(GrantReleased, row["id"], version) for version in row["released"] or ())
    return [_id(GrantIssued, row["id"], 1), revoked, *released]


def _id(fact: type[Event], key: str, version: int) -> UUID:
    return fact_id(fact_type(fact), key, version)


# a seal is asked after 1, 2, 4, … 32 s, and at once when the node says that something ended; also of parts that were
# released on a person's word, until they are seen to be clear; what is further ahead was written before the clock was
# put back
_SEALS_DUE = """
WITH due AS (
    SELECT grant_id, node
    FROM parts
    WHERE next_seal_at <= now() OR next_seal_at > now() + interval '1 minute'
    ORDER BY next_seal_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), asked AS (
    UPDATE parts p
    SET seal_asks = p.seal_asks + 1, next_seal_at = now() + make_interval(secs => 2 ^ least(p.seal_asks, 5))
    FROM due d WHERE p.grant_id = d.grant_id AND p.node = d.node
    RETURNING p.grant_id, p.node, p.revocation
)
SELECT a.grant_id, a.node, g.epoch, g.job, g.attempt, coalesce(a.revocation, g.revocation) AS revocation, g.work,
       array_agg(l.device ORDER BY l.id) AS devices
FROM asked a
JOIN grants g ON g.id = a.grant_id
JOIN lines l ON l.grant_id = a.grant_id AND l.node = a.node
GROUP BY a.grant_id, a.node, a.revocation, g.id
"""
# for people to read: of a part that is being changed it is noted another time
_NOTE_SEALS = """
WITH waiting AS (
    SELECT p.grant_id, p.node, s.code
    FROM parts p JOIN unnest($1::text[], $2::text[], $3::text[]) AS s(grant_id, node, code) USING (grant_id, node)
    WHERE p.next_seal_at IS NOT NULL
    FOR NO KEY UPDATE OF p SKIP LOCKED
)
UPDATE parts p SET seal_note = w.code FROM waiting w WHERE p.grant_id = w.grant_id AND p.node = w.node
"""
_NOTE_CLEAR = """
UPDATE parts p SET next_seal_at = NULL
FROM unnest($1::text[], $2::text[], $3::int[]) AS s(grant_id, node, revocation)
JOIN grants g ON g.id = s.grant_id
WHERE p.grant_id = s.grant_id AND p.node = s.node AND coalesce(p.revocation, g.revocation) = s.revocation
  AND p.state = 'Released' AND p.next_seal_at IS NOT NULL
"""
_NOTE_BOOTS_OVER = """
UPDATE parts p SET next_seal_at = NULL
FROM unnest($1::text[], $2::text[]) AS e(node, boot)
WHERE p.node = e.node AND p.boot = e.boot AND p.state = 'Released' AND p.next_seal_at IS NOT NULL
"""
_GO_ON = """
SELECT p.grant_id FROM parts p
WHERE p.grant_id = ANY($1::text[]) AND p.state IN ('Issued', 'Claimed')
GROUP BY p.grant_id HAVING count(*) > 1
"""
_SEAL_SOON = """
WITH ended AS (
    SELECT grant_id, node FROM parts WHERE grant_id = ANY($1::text[]) AND state = 'Revoking'
    ORDER BY grant_id, node
    FOR NO KEY UPDATE
)
UPDATE parts p SET next_seal_at = now(), seal_asks = 0
FROM ended e WHERE p.grant_id = e.grant_id AND p.node = e.node
RETURNING p.grant_id
"""
_UNCLAIMED = """
SELECT g.id FROM grants g
WHERE g.live AND g.revoked_at IS NULL AND g.start_deadline < now()
  AND EXISTS (SELECT FROM parts p WHERE p.grant_id = g.id AND p.state = 'Issued')
  AND NOT EXISTS (  -- after the ledger went back a node that has not told may have started it
      SELECT FROM parts p JOIN nodes n ON n.node = p.node
      WHERE p.grant_id = g.id AND p.state = 'Issued'
        AND coalesce(n.told_at, '-infinity') < (SELECT max(since) FROM stops)
  )
"""
_STUCK = """
SELECT p.grant_id, p.node
FROM parts p JOIN grants g ON g.id = p.grant_id
WHERE p.state = 'Revoking' AND p.escalated_at IS NULL
  AND coalesce(p.narrowed_at, g.revoked_at) < now() - make_interval(secs => $1 + (g.work ->> 'grace_seconds')::int)
"""
_UNANSWERED_GRANTS = """
SELECT g.id, g.revocation, g.run_over, bool_or(p.state = 'Issued') AS unclaimed,
       array_agg(p.version) FILTER (WHERE p.state = 'Released') AS released
FROM grants g
JOIN parts p ON p.grant_id = g.id
JOIN attempts a ON a.job = g.job AND a.attempt = g.attempt
WHERE (g.live OR NOT g.run_over OR a.state <> 'Over' AND a.cause IS NOT NULL)
  AND coalesce(g.revoked_at, g.issued_at) < now() - make_interval(secs => $1)
GROUP BY g.id
"""
_UNANSWERED_REFUSALS = """
SELECT job, attempt, refusals FROM attempts
WHERE state = 'Refused' AND refused_at < now() - make_interval(secs => $1)
"""
