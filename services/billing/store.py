"""Billing's memory in Postgres. The order in which facts are noted makes no difference."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any, Final

from asyncpg import Record

from libs.pg.pool import Connection
from schemas.ids import UsageId
from schemas.ledger import UsageLine, UsageRated
from services.billing.core import Held, Issue, Part, Price, Release, Revocation, View

NOTE_PRICES: Final = """
    INSERT INTO prices (gpu_class, generation, applied_at, micros_per_hour, currency)
    SELECT * FROM unnest($1::text[], $2::int[], $3::timestamptz[], $4::bigint[], $5::text[])
    ON CONFLICT DO NOTHING
"""
# Devices come joined by commas, since unnest flattens arrays of arrays.
NOTE_PARTS: Final = """
    INSERT INTO parts (grant_id, node, job, attempt, tenant, queue, gpu_class, issued_devices, issued_at,
                       claimed_devices, claimed_at, lost, revoked_at, claimed, released_at, lost_at)
    SELECT grant_id, node, job, attempt, tenant, queue, gpu_class, string_to_array(issued, ','), issued_at,
           string_to_array(started, ','), claimed_at, lost, revoked_at, claimed, released_at, lost_at
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[],
                $9::timestamptz[], $10::text[], $11::timestamptz[], $12::bool[], $13::timestamptz[], $14::bool[],
                $15::timestamptz[], $16::timestamptz[])
         AS heard (grant_id, node, job, attempt, tenant, queue, gpu_class, issued, issued_at, started, claimed_at,
                   lost, revoked_at, claimed, released_at, lost_at)
    ORDER BY grant_id, node
    ON CONFLICT (grant_id, node) DO UPDATE
    SET queue = coalesce(parts.queue, excluded.queue),
        gpu_class = coalesce(parts.gpu_class, excluded.gpu_class),
        issued_devices = coalesce(parts.issued_devices, excluded.issued_devices),
        issued_at = coalesce(parts.issued_at, excluded.issued_at),
        claimed_devices = coalesce(parts.claimed_devices, excluded.claimed_devices),
        claimed_at = coalesce(parts.claimed_at, excluded.claimed_at),
        lost = coalesce(parts.lost, excluded.lost),
        revoked_at = coalesce(parts.revoked_at, excluded.revoked_at),
        claimed = coalesce(parts.claimed, excluded.claimed),
        released_at = coalesce(parts.released_at, excluded.released_at),
        lost_at = coalesce(parts.lost_at, excluded.lost_at),
        heard_at = excluded.heard_at
"""
SETTLED: Final = """
    SELECT grant_id, node, job, attempt, tenant, queue, gpu_class, issued_devices, issued_at, claimed_devices,
           claimed_at, lost, revoked_at, claimed, released_at, lost_at
    FROM parts
    WHERE state = 'open' AND released_at IS NOT NULL AND issued_at IS NOT NULL
      AND (NOT claimed OR (claimed_at IS NOT NULL AND revoked_at IS NOT NULL))
      AND (heard_at <= now() - make_interval(secs => $1) OR heard_at > now() + interval '5 seconds')  -- put back
      AND EXISTS (SELECT FROM prices WHERE prices.gpu_class = parts.gpu_class AND generation = 1)
    ORDER BY released_at LIMIT $2
    FOR UPDATE SKIP LOCKED
"""
PRICES: Final = """
    SELECT gpu_class, generation, applied_at, micros_per_hour, currency FROM prices
    WHERE gpu_class = ANY($1) ORDER BY gpu_class, generation
"""
BOOK_LINES: Final = """
    INSERT INTO lines (usage, account, grant_id, node, currency, device, started_at, ended_at, micros_per_hour,
                       amount_micros)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
                         $8::timestamptz[], $9::bigint[], $10::bigint[])
    ON CONFLICT DO NOTHING
    RETURNING grant_id, node
"""
UNBOOK: Final = """
    DELETE FROM lines USING unnest($1::text[], $2::text[]) AS p (grant_id, node)
    WHERE lines.grant_id = p.grant_id AND lines.node = p.node
"""
BOOK_PARTS: Final = """
    UPDATE parts SET state = b.state FROM unnest($1::text[], $2::text[], $3::text[]) AS b (grant_id, node, state)
    WHERE parts.grant_id = b.grant_id AND parts.node = b.node
"""
WAITING: Final = """
    SELECT count(*)::int FROM parts
    WHERE state = 'open' AND released_at IS NOT NULL
      AND (heard_at < now() - make_interval(secs => $1) OR heard_at > now() + interval '5 seconds')
"""
OPEN_NOW: Final = """
    SELECT CASE WHEN state <> 'open' THEN state WHEN released_at IS NULL THEN 'held' ELSE 'waiting' END AS stage,
           count(*)::int AS parts
    FROM parts WHERE state <> 'rated' GROUP BY 1
"""


async def open_parts(connection: Connection) -> dict[tuple[str, ...], int]:
    """Count the parts that are not rated: held, over and waiting for it, or disputed."""
    return {(row["stage"],): row["parts"] for row in await connection.fetch(OPEN_NOW)}


async def note(connection: Connection, heard: View) -> None:
    """Add what was heard to what is known; what is known stays."""
    prices = [price for of_class in heard.prices.values() for price in of_class]
    if prices:
        await connection.execute(NOTE_PRICES, *_columns([astuple(price) for price in prices]))
    if heard.parts:
        await connection.execute(NOTE_PARTS, *_columns([_row(part) for part in heard.parts.values()]))


async def settled(connection: Connection, *, settle_seconds: float, limit: int) -> View:
    """Return parts that are over, of which nothing was heard for so long, locked, and the prices of their classes."""
    parts = [_part(row) for row in await connection.fetch(SETTLED, settle_seconds, limit)]
    classes = sorted({part.issue.gpu_class for part in parts if part.issue})
    rows = await connection.fetch(PRICES, classes) if classes else []
    prices = [Price(*row.values()) for row in rows]
    by_class = {name: tuple(price for price in prices if price.gpu_class == name) for name in classes}
    return View(prices=by_class, parts={part.key: part for part in parts})


async def book(connection: Connection, usages: Sequence[UsageRated]) -> set[UsageId]:
    """Book the lines of usages and return which were booked. A part whose time was billed before is set aside whole."""
    if not usages:
        return set()
    lines = [_line(usage, line) for usage in usages for line in usage.lines]
    booked = Counter(tuple(row.values()) for row in await connection.fetch(BOOK_LINES, *_columns(lines)))
    wanted = Counter({(usage.grant, usage.node): 0 for usage in usages})
    for usage in usages:
        wanted[usage.grant, usage.node] += len(usage.lines)
    states = {part: "rated" if booked[part] == count else "disputed" for part, count in wanted.items()}
    disputed = [part for part, state in states.items() if state == "disputed"]
    if disputed:
        await connection.execute(UNBOOK, *_columns(disputed))
    await connection.execute(BOOK_PARTS, *_columns([(*part, state) for part, state in states.items()]))
    return {usage.usage for usage in usages if states[usage.grant, usage.node] == "rated"}


async def waiting(connection: Connection, *, seconds: float) -> int:
    """Return how many parts are over, not rated, and without any news for so long."""
    return int(await connection.fetchval(WAITING, seconds))


def _columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


def _row(part: Part) -> tuple[Any, ...]:
    issue, claim, revocation, release = part.issue, part.claim, part.revocation, part.release
    return (
        *(part.grant, part.node, part.job, part.attempt, part.tenant),
        *((issue.queue, issue.gpu_class) if issue else (None, None)),
        *_held(issue.held if issue else None),
        *_held(claim),
        *((revocation.lost, revocation.revoked_at) if revocation else (None, None)),
        *((release.claimed, release.released_at, release.lost_at) if release else (None, None, None)),
    )


def _held(held: Held | None) -> tuple[str | None, datetime | None]:
    return (",".join(held.devices), held.since) if held else (None, None)


def _line(usage: UsageRated, line: UsageLine) -> tuple[Any, ...]:
    return (
        *(usage.usage, usage.account, usage.grant, usage.node, usage.currency),
        *(line.device, line.started_at, line.ended_at, line.price_micros_per_hour, line.amount_micros),
    )


def _part(row: Record) -> Part:
    claimed, revoked = row["claimed_at"] is not None, row["revoked_at"] is not None
    return Part(
        grant=row["grant_id"],
        node=row["node"],
        job=row["job"],
        attempt=row["attempt"],
        tenant=row["tenant"],
        issue=Issue(row["queue"], row["gpu_class"], Held(tuple(row["issued_devices"]), row["issued_at"])),
        claim=Held(tuple(row["claimed_devices"]), row["claimed_at"]) if claimed else None,
        revocation=Revocation(row["lost"], row["revoked_at"]) if revoked else None,
        release=Release(row["claimed"], row["released_at"], row["lost_at"]),
    )
