"""Postgres is used so that neither cancellation nor a second process leaves anything behind."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from libs.errors import ConflictError, PoisonError, TransientError, UnavailableError
from libs.pg import inbox, migrate, outbox, retention
from libs.pg.outbox import Message, Sent
from libs.pg.pool import ARRAYS, Pool, connect, open_pool, transaction, uninterrupted
from schemas.catalog import durables
from schemas.ids import fact_id
from tests.support.eventually import eventually
from tests.support.shell_services import gateway, wish
from tests.support.shell_worlds import REVISIONS, RealWorld

IDLE = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user AND state LIKE 'idle in transaction%'"
TABLES = ["alembic_version", "effects", "inbox", "outbox", "received", "stream_seen", "unsaid"]
CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE usename = current_user"


@pytest.fixture
async def pool(real: RealWorld) -> AsyncIterator[Pool]:
    dsn = dsn_of(real)
    await migrate.upgrade(dsn, "gateway", versions=REVISIONS)
    opened = await open_pool(dsn, schema="gateway", minimum=1, maximum=10)
    yield opened
    await opened.close()


def dsn_of(real: RealWorld) -> str:
    return real.surroundings["gateway"].postgres_dsn.get_secret_value()


async def admit(pool: Pool, number: int, seconds: float) -> None:
    """Take a row lock, wait as for another server, then write a second row."""
    async with transaction(pool) as connection:
        await connection.execute("SELECT FROM effects WHERE what = 'queue' FOR UPDATE")
        await connection.execute("INSERT INTO effects (what) VALUES ($1)", f"row {number}")
        await connection.execute("SELECT pg_sleep($1)", seconds)
        await connection.execute("INSERT INTO effects (what) VALUES ($1)", f"event {number}")


async def admit_in_the_end(pool: Pool, number: int) -> None:
    """Admit as a service does, which tries again when the line was longer than it waits."""
    while True:
        try:
            return await admit(pool, number, 0.0)
        except (UnavailableError, TransientError):
            continue


async def test_s50_five_hundred_cancelled_admissions_leave_nothing_behind(pool: Pool) -> None:
    dice = random.Random(50)
    await pool.execute("INSERT INTO effects (what) VALUES ('queue')")
    started = time.monotonic()
    await admit(pool, 500, 0.0)
    usual = time.monotonic() - started
    storm = [asyncio.ensure_future(admit(pool, number, 0.2 * dice.random())) for number in range(500)]
    for task in dice.sample(storm, len(storm)):
        await asyncio.wait(storm, timeout=0.005 * dice.random(), return_when=asyncio.FIRST_EXCEPTION)
        task.cancel()
        if dice.random() < 0.3:  # impatient callers cancel twice, also while the first is cleaning up
            await asyncio.sleep(0)
            task.cancel()
    await asyncio.gather(*storm, return_exceptions=True)

    started = time.monotonic()
    await admit(pool, 1_000, 0.0)
    assert time.monotonic() - started < 1 + 50 * usual  # and not the seconds that a lost lock is waited for
    await asyncio.gather(*(admit_in_the_end(pool, 2_000 + number) for number in range(200)))
    rows = {row["what"] for row in await pool.fetch("SELECT what FROM effects")}
    assert {row.removeprefix("row ") for row in rows if row.startswith("row ")} == {
        row.removeprefix("event ") for row in rows if row.startswith("event ")
    }
    assert len([row for row in rows if row.startswith("row ")]) >= 202
    await eventually(lambda: _none(pool, IDLE))
    assert await pool.fetchval(CONNECTIONS) <= 10
    assert pool.get_idle_size() == pool.get_size()


async def test_turns_that_are_cancelled_leave_no_transaction_open(real: RealWorld) -> None:
    service = gateway(real)
    async with real.running(service):
        turns = [asyncio.ensure_future(wish(service, f"job-{number}")) for number in range(100)]
        for number, task in enumerate(turns):
            await asyncio.sleep(0)
            if number % 2:
                task.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await wish(service, "last")
        assert await service.pool.fetchval(IDLE) == 0
        assert service.pool.get_idle_size() == service.pool.get_size()


async def test_a_commit_that_is_cancelled_is_still_a_commit(pool: Pool) -> None:
    committed = asyncio.Event()
    task = asyncio.ensure_future(_write(pool, committed))
    await committed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await pool.fetchval("SELECT what FROM effects") == "one"


async def test_work_that_may_not_be_interrupted_ends_before_the_cancellation_is_raised() -> None:
    done: list[str] = []
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()
        done.append("work")

    task = asyncio.ensure_future(uninterrupted(work()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]


async def test_a_deadlock_is_a_conflict(pool: Pool) -> None:
    await pool.execute("INSERT INTO effects (what) VALUES ('a'), ('b')")
    both = asyncio.Barrier(2)
    results = await asyncio.gather(_lock(pool, both, "a", "b"), _lock(pool, both, "b", "a"), return_exceptions=True)
    assert [type(each) for each in results if each is not None] == [ConflictError]


@pytest.mark.parametrize("what", ["unique_violation", "exclusion_violation", "foreign_key_violation"])
async def test_a_row_that_another_one_stands_against_is_a_conflict(pool: Pool, what: str) -> None:
    with pytest.raises(ConflictError):
        async with transaction(pool) as connection:
            await connection.execute(f"DO $$ BEGIN RAISE {what}; END $$")


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("SELECT $1::text", "a\0b"),
        ("SELECT $1::int", 1 << 40),
        ("SELECT $1::jsonb->>'a'", '{"a": "\\u0000"}'),
        ("SELECT $1::text::int", "many"),
    ],
)
async def test_a_value_that_no_store_can_hold_is_poison(pool: Pool, statement: str, value: object) -> None:
    with pytest.raises(PoisonError, match="can not hold"):
        async with transaction(pool) as connection:
            await connection.fetchval(statement, value)


async def test_a_statement_that_takes_too_long_is_transient(pool: Pool) -> None:
    with pytest.raises(TransientError):
        await _too_long(pool)


@pytest.mark.parametrize("state", ["53100", "53200", "58030"], ids=["disk full", "out of memory", "io error"])
async def test_a_server_without_room_is_unavailable(pool: Pool, state: str) -> None:
    raising = f"DO $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{state}'; END $$"
    with pytest.raises(UnavailableError, match="no room"):
        async with transaction(pool) as connection:
            await connection.execute(raising)
    async with transaction(pool) as connection:
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(UnavailableError):
        _ = await open_pool("postgresql://nobody@127.0.0.1:1/none", schema="gateway")


async def test_every_service_sees_its_own_schema_only(pool: Pool) -> None:
    assert await pool.fetchval("SELECT current_schema()") == "gateway"
    assert await pool.fetchval("SELECT current_setting('TimeZone')") == "UTC"
    with pytest.raises(Exception, match="permission denied for schema admission"):
        await pool.execute("SELECT FROM admission.effects")


async def test_a_plan_made_for_an_empty_table_uses_its_index(pool: Pool) -> None:
    plan = await pool.fetch("EXPLAIN SELECT position FROM outbox WHERE id = ANY($1::uuid[])", [])
    assert "outbox_id_key" in plan[0][0]


async def test_a_receipt_changes_its_row_in_place_and_touches_no_index(pool: Pool) -> None:
    messages = [Message(fact_id("a.fact.v1", "key", version), "s", "S", b"body" * 200) for version in range(50)]
    async with pool.acquire() as connection:
        await outbox.put(connection, messages)
        waiting = await outbox.unsent(connection, 100)
        assert [item.message.id for item in waiting] == [message.id for message in messages]
        await outbox.mark_sent(connection, [Sent(item.position, item.said, 7 + item.position) for item in waiting])
        assert await outbox.unsent(connection, 100) == []
        assert await outbox.last_sequence(connection, "S") == 7 + waiting[-1].position
        in_place = "SELECT pg_stat_get_xact_tuples_hot_updated('outbox'::regclass)"
        async with connection.transaction():
            before = await connection.fetchval(in_place)
            await outbox.doubt(connection, seconds=60.0, limit=100)
            changed = await connection.fetchval(in_place) - before
        assert changed == len(messages)
        assert await outbox.unsent(connection, 100) == [replace(item, sequence=7 + item.position) for item in waiting]


async def test_lists_and_tuples_are_arrays_and_nothing_else_is(pool: Pool) -> None:
    """That sets are refused shows that the driver does not ask whether each element can be iterated over."""
    async with transaction(pool) as connection:
        arrays = [["a", None, "{b}"], ("c", "d"), [["e"], ["f"]], []]
        assert [await connection.fetchval("SELECT $1::text[]", array) for array in arrays] == [*map(_listed, arrays)]
        assert await connection.fetchval("SELECT $1::jsonb[]", ['{"a": 1}']) == ['{"a": 1}']
    with pytest.raises(PoisonError, match="sized iterable container expected"):
        async with transaction(pool) as connection:
            await connection.fetchval("SELECT $1::text[]", {"a"})


def _listed(array: object) -> object:
    return [_listed(each) for each in array] if isinstance(array, list | tuple) else array


async def test_what_an_array_is_is_asked_once_a_process(real: RealWorld, pool: Pool) -> None:
    assert await pool.fetchval("SELECT cardinality($1::uuid[])", []) == 0
    asked: list[str] = []
    connection = await connect(dsn_of(real), schema="gateway")
    with connection.query_logger(lambda query: asked.append(query.query)):
        await connection.prepare(ARRAYS)
        assert await connection.fetchval("SELECT cardinality($1::uuid[])", []) == 0
    await connection.close()
    assert not [query for query in asked if "typeinfo" in query]


async def test_two_processes_migrate_at_once(real: RealWorld) -> None:
    await asyncio.gather(*(_migrate_in_a_process(dsn_of(real)) for _ in range(2)))
    connection = await real.servers.foundation.postgres.connect()
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'gateway' ORDER BY 1")
    await connection.close()
    assert [row["tablename"] for row in tables] == TABLES


async def test_of_two_rivals_one_takes_a_message(pool: Pool) -> None:
    ids = [fact_id("kind", str(number), 1) for number in range(50)]

    async def take() -> int:
        async with transaction(pool) as connection:
            return len(await inbox.unseen(connection, "durable", ids))

    assert sorted(await asyncio.gather(take(), take(), take())) == [0, 0, 50]


async def test_inbox_and_outbox_forget_what_nobody_can_say_again(pool: Pool) -> None:
    ids = [fact_id("kind", str(number), 1) for number in range(4)]
    async with transaction(pool) as connection:
        await inbox.unseen(connection, "placement-workload", ids)
        await inbox.unseen(connection, "placement-runtime", ids)
        await connection.execute("UPDATE inbox SET at = now() - interval '26 hours' WHERE id = ANY($1)", ids[:3])
        await connection.execute("UPDATE inbox SET at = now() - interval '181 days' WHERE id = $1", ids[0])
        assert await inbox.unseen(connection, "placement-workload", ids[1:2]) == set()
        messages = [Message(each, "dead.gateway.x", "DEAD", b"") for each in ids]
        await outbox.put(connection, messages)
        await connection.execute(
            "UPDATE outbox SET created_at = now() - interval '91 days' WHERE id = ANY($1)", ids[:3]
        )
        await connection.execute("UPDATE outbox SET sent_at = created_at WHERE id = ANY($1)", ids[:2])
        await connection.execute("UPDATE outbox SET sent_at = now() WHERE id = $1", ids[1])
    rows = {row.name: retention.inbox_seconds(row) for row in durables("placement")}
    async with transaction(pool) as connection:
        assert await retention.forget(connection, rows) is False
    left = await pool.fetch("SELECT durable, id FROM inbox")
    assert {(row["durable"], row["id"]) for row in left} == {
        *(("placement-workload", each) for each in ids[1:]),
        ("placement-runtime", ids[3]),
    }
    assert {row["id"] for row in await pool.fetch("SELECT id FROM outbox")} == set(ids[1:])


async def test_what_is_heard_again_is_remembered_anew(pool: Pool) -> None:
    ids = [fact_id("kind", "1", 1)]
    async with transaction(pool) as connection:
        assert await inbox.unseen(connection, "placement-workload", ids) == set(ids)
        await connection.execute("UPDATE inbox SET at = now() - interval '100 days'")
    async with transaction(pool) as connection:
        assert await inbox.unseen(connection, "placement-workload", ids) == set()
    assert await pool.fetchval("SELECT at > now() - interval '1 minute' FROM inbox")


async def _none(pool: Pool, query: str) -> bool:
    assert await pool.fetchval(query) == 0
    return True


async def _write(pool: Pool, committed: asyncio.Event) -> None:
    async with transaction(pool, committed.set) as connection:
        await connection.execute("INSERT INTO effects (what) VALUES ('one')")
    await asyncio.Event().wait()


async def _lock(pool: Pool, both: asyncio.Barrier, *names: str) -> None:
    async with transaction(pool) as connection:
        await connection.execute("SELECT FROM effects WHERE what = $1 FOR UPDATE", names[0])
        await both.wait()
        await connection.execute("SELECT FROM effects WHERE what = $1 FOR UPDATE", names[1])


async def _too_long(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute("SET LOCAL statement_timeout = '50ms'")
        await connection.execute("SELECT pg_sleep(5)")


async def _migrate_in_a_process(dsn: str) -> None:
    code = f"""
import asyncio, pathlib
from libs.pg import migrate
asyncio.run(migrate.upgrade({dsn!r}, "gateway", versions=pathlib.Path({str(REVISIONS)!r})))
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
    assert await process.wait() == 0
