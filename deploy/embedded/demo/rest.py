"""What has to hold once everything has come to rest."""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from deploy.embedded.demo.diary import Entry
from deploy.embedded.demo.stage import Stage
from deploy.embedded.invariants import Stint, breaches
from libs.leases import Leases

REST_SECONDS = 60.0  # bills and outboxes come to rest after the last release
LOOK_SECONDS = 1.0


async def broken_laws(stage: Stage, diary: Iterable[Entry] = ()) -> list[str]:
    """Return which invariants do not hold; what is only under way gets its time. Raises asyncpg.PostgresError."""
    stints = [_stint(entry, device) for entry in diary for device in entry.devices]
    ledger, leases = await stage.postgres().connect(), Leases(stage.redis_url())
    try:
        deadline = time.monotonic() + REST_SECONDS
        while True:
            broken = await breaches(ledger, leases, stints, settled=True)
            if not broken or time.monotonic() > deadline:
                return broken
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await leases.close()
        await ledger.close()


def _stint(entry: Entry, device: str) -> Stint:
    began = datetime.fromtimestamp(entry.begin, UTC)
    ended = None if entry.end is None else datetime.fromtimestamp(entry.end, UTC)
    return Stint(entry.job, entry.attempt, device, began, ended)
