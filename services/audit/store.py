"""Audit's memory in Postgres: entries that are only ever added, and the head of the chain."""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final
from uuid import UUID

from asyncpg import DataError, Record

from libs.errors import PoisonError
from libs.pg.pool import Connection
from schemas.calls import AuditQuery
from services.audit.core import GENESIS, Entry, Head

READ_AHEAD: Final = 1_000  # entries a round trip when the whole chain is read

LOCK_HEAD: Final = """
    INSERT INTO head (sequence, hash) VALUES (0, $1)
    ON CONFLICT (single) DO UPDATE SET single = true
"""
HEAD: Final = "SELECT sequence, hash FROM head"
KNOWN: Final = "SELECT fact FROM entries WHERE fact = ANY($1)"
APPEND: Final = """
    INSERT INTO entries (sequence, heard_at, body, previous, hash, fact, type, scope, key, source, tenant, entities)
    SELECT sequence, heard_at, body, previous, hash, fact, type, scope, key, source, tenant,
           string_to_array(entities, ',')
    FROM unnest($1::bigint[], $2::timestamptz[], $3::bytea[], $4::bytea[], $5::bytea[], $6::uuid[], $7::text[],
                $8::text[], $9::text[], $10::text[], $11::text[], $12::text[])
         AS e (sequence, heard_at, body, previous, hash, fact, type, scope, key, source, tenant, entities)
"""
MOVE_HEAD: Final = "UPDATE head SET sequence = $1, hash = $2"
EVERYTHING: Final = """
    SELECT sequence, heard_at, body, previous, hash, fact, type, scope, key, source, tenant, entities
    FROM entries ORDER BY sequence
"""
FIND: Final = """
    SELECT sequence, heard_at, body, previous, hash, fact, type, scope, key, source, tenant, entities
    FROM entries
    WHERE sequence > $1
      AND ($2::text IS NULL OR entities @> ARRAY[$2])
      AND ($3::text IS NULL OR starts_with(type, $3))
      AND ($4::text IS NULL OR tenant = $4)
      AND ($5::timestamptz IS NULL OR heard_at >= $5)
      AND ($6::timestamptz IS NULL OR heard_at < $6)
    ORDER BY sequence LIMIT $7
"""


async def lock_head(connection: Connection) -> None:
    """Let nobody else move the end of the chain before this transaction is over."""
    await connection.execute(LOCK_HEAD, GENESIS)


async def head(connection: Connection) -> Head:
    """Return the end of the chain, which may move on at once."""
    row = await connection.fetchrow(HEAD)
    return Head(row["sequence"], row["hash"]) if row else Head()


async def known(connection: Connection, facts: Collection[UUID]) -> set[UUID]:
    """Return which of these facts are in the chain."""
    return {row["fact"] for row in await connection.fetch(KNOWN, list(facts))}


async def append(connection: Connection, entries: Sequence[Entry]) -> None:
    """Add entries behind the head and move it. The head must be locked."""
    if not entries:
        return
    await connection.execute(APPEND, *(list(column) for column in zip(*map(_row, entries), strict=True)))
    await connection.execute(MOVE_HEAD, entries[-1].sequence, entries[-1].hash)


async def everything(connection: Connection) -> AsyncIterator[Entry]:
    """Yield every entry, in order, without holding more than a thousand."""
    async for row in connection.cursor(EVERYTHING, prefetch=READ_AHEAD):
        yield _entry(row)


async def find(connection: Connection, question: AuditQuery, *, limit: int) -> list[Entry]:
    """Return entries that answer a question, oldest first. ``until`` itself is not included.

    Raises PoisonError for a question with a value that Postgres has no room for.
    """
    sought = (question.after, question.entity, question.type_prefix, question.tenant, question.since, question.until)
    try:
        rows = await connection.fetch(FIND, *sought, limit)
    except DataError as error:
        raise PoisonError("not a question to the audit trail: a value is out of range") from error
    return [_entry(row) for row in rows]


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        *(entry.sequence, entry.heard_at, entry.body, entry.previous, entry.hash, entry.fact),
        *(entry.type, entry.scope, entry.key, entry.source, entry.tenant, ",".join(entry.entities)),
    )


def _entry(row: Record) -> Entry:
    return Entry(**{**row, "entities": tuple(row["entities"])})
