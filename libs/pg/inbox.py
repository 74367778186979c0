"""Which messages a durable has taken already: checked and noted in the transaction of the effect."""

from collections.abc import Collection
from uuid import UUID

from libs.pg.pool import Connection


async def unseen(connection: Connection, durable: str, ids: Collection[UUID]) -> set[UUID]:
    """Note the ids and return those that were not there before. Waits for a rival that is just noting the same."""
    rows = await connection.fetch(_NOTE, durable, sorted(ids))  # sorted, so that two rivals cannot deadlock
    return {row["id"] for row in rows}


_NOTE = """
INSERT INTO inbox (durable, id)
SELECT $1, unnest($2::uuid[])
ON CONFLICT DO NOTHING
RETURNING id
"""
