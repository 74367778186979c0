"""Facts that are committed and wait to be said. A row stays after it was said, so that it can be said again."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import orjson

from libs.log import get_logger
from libs.pg.pool import Connection

BACKLOG_LIMIT = 10_000  # counted no further: looking must stay cheap when nothing can be said for long
ASKS: Final = "Triplane-Asks"  # a header: its sayer misses the answer, and does not merely fill a stream again
log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Message:
    """Bytes for a stream. ``cause`` is the id of the fact it answers, ``id`` the business id that never changes."""

    id: UUID
    subject: str
    stream: str
    body: bytes
    cause: UUID | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unsent:
    """A message in the outbox: its place in the order of this service, and how often it was asked for (from 1).

    ``sequence`` is that of an earlier receipt which is in doubt; 0: there is none.
    """

    position: int
    said: int
    message: Message
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """A stream's receipt for one unsent message."""

    position: int
    said: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages are not said yet (counted up to a limit), and the age of the oldest that was never said."""

    facts: int
    oldest_seconds: float


async def put(connection: Connection, messages: Sequence[Message]) -> None:
    """Add messages in this order. One whose id is there already has been said, and is not said again."""
    if messages:
        status = await connection.execute(
            _PUT,
            [m.id for m in messages],
            [m.cause for m in messages],
            [m.subject for m in messages],
            [m.stream for m in messages],
            [m.body for m in messages],
            [orjson.dumps(dict(m.headers)).decode() if m.headers else None for m in messages],
        )
        if (known := len(messages) - _count(status)) > 0:
            log.warning("said before under the same version", n=known, first=messages[0].subject)


async def say_again(connection: Connection, ids: Collection[UUID], *, quiet_seconds: float, asks: bool = False) -> int:
    """Mark facts as unsent, but those that were sent within the quiet time. Return how many.

    ``asks``: whoever has heard them before shall answer again.
    """
    return _count(await connection.execute(_SAY_AGAIN, list(ids), quiet_seconds, ASKS, asks))


async def answer_again(connection: Connection, causes: Collection[UUID], *, quiet_seconds: float) -> int:
    """Mark the facts that answer these causes as unsent, but those sent within the quiet time. Return how many."""
    return _count(await connection.execute(_ANSWER_AGAIN, list(causes), quiet_seconds, ASKS))


async def answer_another(connection: Connection, answers: Mapping[UUID, UUID]) -> None:
    """Let facts that were said already (id -> cause) count as answers to another fact from now on."""
    if answers:
        await connection.execute(_ANSWER_ANOTHER, list(answers), list(answers.values()))


async def unsent(connection: Connection, limit: int) -> list[Unsent]:
    """Return the first unsent messages in order."""
    return [
        Unsent(
            row["position"],
            row["said"],
            Message(
                row["id"],
                row["subject"],
                row["stream"],
                row["body"],
                row["cause"],
                orjson.loads(row["headers"] or "{}"),
            ),
            row["stream_seq"] or 0,
        )
        for row in await connection.fetch(_UNSENT, limit)
    ]


async def backlog(connection: Connection) -> Backlog:
    """Return what waits to be said."""
    row = await connection.fetchrow(_BACKLOG, BACKLOG_LIMIT)
    assert row is not None
    return Backlog(row["facts"], row["oldest_seconds"])


async def mark_sent(connection: Connection, receipts: Sequence[Sent]) -> None:
    """Note receipts. One that was asked for again meanwhile stays unsent."""
    await connection.execute(
        _MARK_SENT, [r.position for r in receipts], [r.said for r in receipts], [r.sequence for r in receipts]
    )


async def rename(connection: Connection, messages: Sequence[Unsent]) -> None:
    """Give unsent messages a new message id, since the stream claims to know them and may be wrong."""
    await connection.execute(_RENAME, [m.position for m in messages], [m.said for m in messages])


async def lost_beyond(connection: Connection, stream: str, sequence: int, *, since_seconds: float) -> int:
    """Mark as unsent what the stream had received beyond a sequence, no older than so many seconds. Return how many."""
    return _count(await connection.execute(_LOST_BEYOND, stream, sequence, since_seconds, ASKS))


async def doubt(connection: Connection, *, seconds: float, limit: int) -> int:
    """Mark as unsent, of the newest messages, what was sent in the last seconds; receipts are kept. Return how many."""
    return _count(await connection.execute(_DOUBT, seconds, limit))


async def last_sequence(connection: Connection, stream: str) -> int:
    """Return the highest sequence the stream has given a receipt for; 0: none."""
    return int(await connection.fetchval(_LAST_SEQUENCE, stream))


async def created_seen(connection: Connection, stream: str) -> datetime | None:
    """Return which incarnation of the stream was last seen, by its creation; None: none yet."""
    created: datetime | None = await connection.fetchval("SELECT created FROM stream_seen WHERE stream = $1", stream)
    return created


async def note_created(connection: Connection, stream: str, created: datetime) -> None:
    """Remember which incarnation of the stream was seen."""
    await connection.execute(_NOTE_CREATED, stream, created)


def _count(status: str) -> int:
    return int(status.rpartition(" ")[2])


_PUT = """
WITH put AS (
    INSERT INTO outbox (id, cause, subject, stream, body, headers)
    SELECT id, cause, subject, stream, body, headers::jsonb
    FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bytea[], $6::text[])
         WITH ORDINALITY AS m(id, cause, subject, stream, body, headers, place)
    ORDER BY place
    ON CONFLICT (id) DO NOTHING
    RETURNING position
)
INSERT INTO unsaid SELECT position FROM put
"""
_SAY_AGAIN = """
WITH again AS (
    UPDATE outbox
    SET sent_at = NULL, stream_seq = NULL, said = said + 1,
        headers = CASE WHEN $4 THEN coalesce(headers, '{}') || jsonb_build_object($3::text, '')
                  ELSE headers - $3::text END
    WHERE id = ANY($1::uuid[]) AND sent_at < now() - make_interval(secs => $2)
    RETURNING position
)
INSERT INTO unsaid SELECT position FROM again
"""
_ANSWER_AGAIN = """
WITH again AS (
    UPDATE outbox SET sent_at = NULL, stream_seq = NULL, said = said + 1, headers = headers - $3::text
    WHERE cause = ANY($1::uuid[]) AND sent_at < now() - make_interval(secs => $2)
    RETURNING position
)
INSERT INTO unsaid SELECT position FROM again
"""
_ANSWER_ANOTHER = """
UPDATE outbox o SET cause = a.cause FROM unnest($1::uuid[], $2::uuid[]) AS a(id, cause) WHERE o.id = a.id
"""
_UNSENT = """
SELECT position, said, id, cause, subject, stream, body, headers::text AS headers, stream_seq
FROM outbox WHERE position = ANY (ARRAY(SELECT position FROM unsaid ORDER BY position LIMIT $1)) ORDER BY position
"""  # no join: its plan, made while both are empty, would read all of the outbox
_BACKLOG = """
SELECT count(*)::int AS facts,
       coalesce(extract(epoch FROM now() - min(created_at) FILTER (WHERE said = 1)), 0)::float8 AS oldest_seconds
FROM outbox WHERE position = ANY (ARRAY(SELECT position FROM unsaid ORDER BY position LIMIT $1))
"""
_MARK_SENT = """
WITH sent AS (
    UPDATE outbox SET sent_at = clock_timestamp(), stream_seq = r.sequence
    FROM unnest($1::bigint[], $2::int[], $3::bigint[]) AS r(position, said, sequence)
    WHERE outbox.position = r.position AND outbox.said = r.said
    RETURNING outbox.position, stream, r.sequence
), settled AS (
    DELETE FROM unsaid WHERE position = ANY (ARRAY(SELECT position FROM sent))
)
INSERT INTO received
SELECT stream, max(sequence) FROM sent GROUP BY stream
ON CONFLICT (stream) DO UPDATE SET sequence = greatest(received.sequence, excluded.sequence)
"""
_RENAME = """
UPDATE outbox SET said = outbox.said + 1
FROM unnest($1::bigint[], $2::int[]) AS r(position, said)
WHERE outbox.position = r.position AND outbox.said = r.said
"""
_LOST_BEYOND = """
WITH back AS (
    UPDATE received SET sequence = least(sequence, $2) WHERE stream = $1
), lost AS (
    UPDATE outbox SET sent_at = NULL, stream_seq = NULL, said = said + 1, headers = headers - $4::text
    WHERE stream = $1 AND sent_at IS NOT NULL AND stream_seq > $2 AND created_at > now() - make_interval(secs => $3)
    RETURNING position
)
INSERT INTO unsaid SELECT position FROM lost
"""
_DOUBT = """
WITH doubtful AS (
    UPDATE outbox SET sent_at = NULL
    WHERE position > (SELECT max(position) FROM outbox) - $2 AND sent_at > now() - make_interval(secs => $1)
    RETURNING position
)
INSERT INTO unsaid SELECT position FROM doubtful
"""
_LAST_SEQUENCE = "SELECT coalesce(max(sequence), 0) FROM received WHERE stream = $1"
_NOTE_CREATED = """
INSERT INTO stream_seen (stream, created) VALUES ($1, $2)
ON CONFLICT (stream) DO UPDATE SET created = excluded.created
"""
