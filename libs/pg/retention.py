"""How long inbox and outbox remember, so that neither grows for ever."""

from collections.abc import Mapping
from typing import Final

from libs.pg.pool import Connection
from schemas.catalog import DAY_SECONDS, FACTS, STREAMS, Durable

OUTBOX_SECONDS: Final = 90 * DAY_SECONDS  # since it was last said: three times the oldest stream
INBOX_SECONDS: Final = 180 * DAY_SECONDS  # since it was last heard: longer than any outbox can say it again
MARGIN_SECONDS: Final = 3_600
BATCH: Final = 10_000
_WITHOUT_OUTBOX: Final = {"agent"}


def inbox_seconds(durable: Durable) -> int:
    """Return how long a durable must remember a message after it was last heard.

    What has no outbox behind it can be heard again only while its stream holds it: heartbeats are gone in a day.
    """
    if {fact.owner for fact in FACTS if fact.stream == durable.stream} <= _WITHOUT_OUTBOX:
        return next(stream.max_age_seconds for stream in STREAMS if stream.name == durable.stream) + MARGIN_SECONDS
    return INBOX_SECONDS


async def forget(connection: Connection, inbox: Mapping[str, int]) -> bool:
    """Delete some old rows; ``inbox`` maps a durable to its seconds. Return whether there may be more."""
    durables, seconds = list(inbox), list(inbox.values())
    heard = await connection.execute(_FORGET_HEARD, durables, seconds, BATCH)
    said = await connection.execute(_FORGET_SAID, OUTBOX_SECONDS, BATCH)
    return any(int(status.rpartition(" ")[2]) >= BATCH for status in (heard, said))


_FORGET_HEARD: Final = """
DELETE FROM inbox WHERE ctid = ANY(ARRAY(
    SELECT i.ctid FROM inbox i JOIN unnest($1::text[], $2::int[]) AS r(durable, seconds) ON r.durable = i.durable
    WHERE i.at < now() - make_interval(secs => r.seconds) LIMIT $3
))
"""
_FORGET_SAID: Final = """
DELETE FROM outbox WHERE position = ANY(ARRAY(
    SELECT position FROM outbox
    WHERE created_at < now() - make_interval(secs => $1) AND sent_at < now() - make_interval(secs => $1)
    ORDER BY position LIMIT $2
))
"""
