"""The tables that every schema has: the inbox, the outbox, and what was last seen of each stream."""

from typing import Final, Protocol

TABLES: Final = (
    """
    CREATE TABLE inbox (
        durable text NOT NULL,
        id uuid NOT NULL,
        at timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (durable, id)
    )
    """,
    "CREATE INDEX inbox_at ON inbox USING brin (at)",
    """
    CREATE TABLE outbox (
        position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id uuid NOT NULL UNIQUE,
        cause uuid,
        subject text NOT NULL,
        stream text NOT NULL,
        body bytea NOT NULL,
        headers jsonb,
        said integer NOT NULL DEFAULT 1,
        created_at timestamptz NOT NULL DEFAULT now(),
        sent_at timestamptz,
        stream_seq bigint
    )
    """,
    "CREATE INDEX outbox_unsent ON outbox (position) WHERE sent_at IS NULL",
    "CREATE INDEX outbox_cause ON outbox (cause) WHERE cause IS NOT NULL",
    "CREATE INDEX outbox_sent ON outbox (stream, stream_seq) WHERE sent_at IS NOT NULL",
    """
    CREATE TABLE stream_seen (
        stream text PRIMARY KEY,
        created timestamptz NOT NULL
    )
    """,
)

SAY_LIGHTLY: Final = (
    """
    CREATE TABLE unsaid (
        position bigint PRIMARY KEY
    )
    """,
    """
    CREATE TABLE received (
        stream text PRIMARY KEY,
        sequence bigint NOT NULL  -- the highest that the stream gave a receipt for
    )
    """,
    "INSERT INTO unsaid SELECT position FROM outbox WHERE sent_at IS NULL",
    """
    INSERT INTO received
    SELECT stream, max(stream_seq) FROM outbox WHERE sent_at IS NOT NULL AND stream_seq IS NOT NULL GROUP BY stream
    """,
    # no index but a summary may name what a receipt changes, and the page needs room: then it touches no index
    "DROP INDEX outbox_unsent, outbox_sent",
    "CREATE INDEX outbox_sent ON outbox USING brin (stream_seq)",
    "ALTER TABLE outbox SET (fillfactor = 50)",
    # ids differ in their first bytes, names of durables in their last
    "ALTER TABLE inbox DROP CONSTRAINT inbox_pkey, ADD PRIMARY KEY (id, durable)",
)


class Operations(Protocol):
    """What a revision works with: ``alembic.op``."""

    def execute(self, sqltext: str) -> None:
        """Run one statement."""


def inbox_outbox(operations: Operations) -> None:
    """Create the shell's tables in the schema that is being migrated.

    Call it first in a service's first revision, and then ``say_lightly``.
    """
    for table in TABLES:
        operations.execute(table)


def say_lightly(operations: Operations) -> None:
    """Keep what waits to be said in a table of its own, so that a receipt changes one row in its place."""
    for statement in SAY_LIGHTLY:
        operations.execute(statement)
