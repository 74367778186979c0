"""A ledger that went back, under test: it is made as a backup had it, and a person lifts the stop."""

from collections.abc import Sequence
from typing import Final

import asyncpg
from redis.asyncio import Redis

from tests.support.eventually import eventually
from tests.support.servers import Servers

STOP: Final = """
INSERT INTO stops (device, lease_grant, lease_epoch, ledger_epoch) VALUES ('*', 'restored from a backup', 0, 0)
"""


async def go_back(rows: "asyncpg.Connection[asyncpg.Record]", *, keeps: Sequence[str] = ()) -> None:
    """Let the ledger be as a backup had it that was made before these grants were issued."""
    await rows.execute("DELETE FROM lines WHERE NOT grant_id = ANY($1::text[])", list(keeps))
    await rows.execute("DELETE FROM parts WHERE NOT grant_id = ANY($1::text[])", list(keeps))
    await rows.execute("DELETE FROM grants WHERE NOT id = ANY($1::text[])", list(keeps))
    await rows.execute("UPDATE devices SET last_epoch = 0")
    await rows.execute(
        "UPDATE attempts a SET state = 'Pending', grants = 0"
        " WHERE NOT EXISTS (SELECT FROM grants g WHERE g.job = a.job AND g.attempt = a.attempt)"
    )
    await rows.execute("DELETE FROM outbox")
    await rows.execute("SELECT setval('epochs', nextval('epochs') + 4294967296)")
    await rows.execute(STOP)


async def lift(rows: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Lift the stop as a person does."""
    await rows.execute("UPDATE stops SET lifted_at = now(), lifted_by = 'ada'")


async def told(rows: "asyncpg.Connection[asyncpg.Record]", nodes: int) -> None:
    """Wait until so many nodes have told what they run since the ledger last went back."""

    async def all_told() -> bool:
        return bool(
            await rows.fetchval("SELECT count(*) = $1 FROM nodes WHERE told_at > (SELECT max(since) FROM stops)", nodes)
        )

    await eventually(all_told)


async def wipe_leases(servers: Servers) -> None:
    """Let Redis be empty, as it is when a restore took its time."""
    async with Redis.from_url(servers.operator_redis_url) as redis:
        await redis.flushall()
