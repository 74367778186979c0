"""Which messages a durable has taken already: checked and noted in the transaction of the effect."""

from collections.abc import Collection
from uuid import UUID

from libs.pg.pool import Connection


async def unseen(connection: Connection, durable: str, ids: Collection[UUID]) -> set[UUID]:
    """Note the ids and return those that were not there before. Waits for a rival that is just noting the same.

    One that was there is noted as heard again, so that it is remembered for as long as it is said.
    """
    in_order = sorted(ids, key=_number)  # so that two rivals cannot deadlock
    rows = await connection.fetch(_NOTE, durable, in_order)
    return {row["id"] for row in rows if row["fresh"]}


def _number(message: UUID) -> int:
    return message.int


_NOTE = """
INSERT INTO inbox (durable, id)
SELECT $1, unnest($2::uuid[])
ON CONFLICT (durable, id) DO UPDATE SET at = excluded.at
RETURNING id, xmax = 0 AS fresh  -- a row that was there has a transaction that ended its old version
"""
