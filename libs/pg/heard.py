"""When nodes were last heard, in a service's table ``nodes (heard_at)``, and when anybody last could hear."""

from typing import Final

from libs.pg.pool import Connection
from libs.pg.tables import Operations

_TABLE: Final = """
    CREATE TABLE listened (
        one boolean PRIMARY KEY DEFAULT true CHECK (one),
        at timestamptz NOT NULL,
        before timestamptz NOT NULL
    )
"""
# not now(): the turn may have waited for the row, and then another's look is the one before
_LISTEN: Final = """
    INSERT INTO listened (at, before) VALUES (clock_timestamp(), clock_timestamp())
    ON CONFLICT (one) DO UPDATE SET at = clock_timestamp(), before = listened.at
    RETURNING extract(epoch FROM at - before)::float8
"""
# who was heard since the clock was put back has its right time already: it would be ahead of now, or is not
_SHIFT: Final = """
    WITH locked AS (
        SELECT node FROM nodes WHERE heard_at IS NOT NULL AND ($1 > 0 OR heard_at > now()) ORDER BY node FOR UPDATE
    )
    UPDATE nodes n SET heard_at = least(n.heard_at + make_interval(secs => $1), now())
    FROM locked WHERE n.node = locked.node
"""


def listened(operations: Operations) -> None:
    """Create the table ``listened`` in the schema that is being migrated."""
    operations.execute(_TABLE)


async def listen(connection: Connection) -> float:
    """Note that the service can hear now; return the seconds since it was last noted, by the store's clock."""
    seconds = await connection.fetchval(_LISTEN)
    assert isinstance(seconds, float), seconds
    return seconds


async def shift(connection: Connection, seconds: float) -> None:
    """Let nobody's silence count so many seconds; negative: the clock was put back by so much."""
    await connection.execute(_SHIFT, seconds)
