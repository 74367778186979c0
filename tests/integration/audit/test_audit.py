"""Audit on real NATS and Postgres: every fact once, in a chain that shows whoever touched it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from libs.bus.calls import MALFORMED
from libs.bus.jetstream import ERROR
from libs.config import Infrastructure
from libs.pg.pool import Connection, connect
from schemas.base import Envelope
from schemas.calls import AuditPage, AuditQuery
from schemas.codec import decode
from schemas.ids import TenantId
from services.audit.app import build
from services.audit.settings import Settings
from tests.support.builders import a_grant, a_job_id, a_part, a_submission, an_envelope, at, released
from tests.support.eventually import eventually
from tests.support.servers import Servers
from tests.support.wire import Wire

GRANT = a_grant("train", a_part("n1", 2))
ROOT = Path(__file__).resolve().parents[3]
RIVAL = TenantId("rival")
FACTS = [
    an_envelope(a_submission("train"), key=a_job_id("train")),
    an_envelope(GRANT, key=GRANT.grant),
    an_envelope(released(GRANT), key=GRANT.grant, version=2),
    an_envelope(a_submission("other", tenant="rival"), key=a_job_id("other", "rival"), scope="rival"),
]


@asynccontextmanager
async def audit(infrastructure: Infrastructure) -> AsyncIterator[None]:
    service = build(infrastructure, Settings())
    await service.start()
    try:
        yield
    finally:
        await service.stop()


@pytest.fixture
async def surroundings(servers: Servers) -> Infrastructure:
    return await servers.infrastructure("audit")


@pytest.fixture
async def connection(surroundings: Infrastructure) -> AsyncIterator[Connection]:
    opened = await connect(surroundings.postgres_dsn.get_secret_value(), schema="audit")
    yield opened
    await opened.close()


@pytest.fixture
async def heard(surroundings: Infrastructure, line: Wire) -> AsyncIterator[Wire]:
    async with audit(surroundings):
        await line.say(*FACTS)
        await eventually(lambda: has(line, len(FACTS)))
        yield line


async def ask(line: Wire, question: AuditQuery) -> AuditPage:
    answer = await line.connection.request("call.audit.query", question.model_dump_json().encode(), timeout=30)
    return AuditPage.model_validate_json(answer.data)


async def has(line: Wire, count: int) -> bool:
    return len((await ask(line, AuditQuery())).entries) == count


def an_example(name: str) -> Envelope:
    return decode((ROOT / "schemas" / "examples" / f"{name}.v1.json").read_bytes())


def keys(page: AuditPage) -> list[tuple[str, str]]:
    return [(entry.type, entry.key) for entry in page.entries]


def named(*facts: Envelope) -> list[tuple[str, str]]:
    return [(fact.type, fact.key) for fact in facts]


async def test_every_plane_is_heard(surroundings: Infrastructure, line: Wire) -> None:
    examples = [
        an_example(name) for name in ("workload.job.queued", "runtime.observation.noticed", "fleet.node.retired")
    ]
    async with audit(surroundings):
        await line.say(*examples, an_example("ledger.usage.rated"))
        await eventually(lambda: has(line, 4))
        page = await ask(line, AuditQuery(verify=True))
    assert {entry.type.partition(".")[0] for entry in page.entries} == {"workload", "runtime", "fleet", "ledger"}
    assert (page.intact, page.broken_at) == (True, None)


async def test_a_fact_said_again_is_one_entry(heard: Wire) -> None:
    await heard.say(*FACTS, again=".again")
    late = an_envelope(a_submission("late"), key=a_job_id("late"))
    await heard.say(late)
    await eventually(lambda: has(heard, len(FACTS) + 1))
    page = await ask(heard, AuditQuery(verify=True))
    assert (sorted(keys(page)), page.intact) == (sorted(named(*FACTS, late)), True)


async def test_questions_by_entity_type_tenant_and_time(heard: Wire) -> None:
    device = GRANT.parts[0].devices[0].device
    assert keys(await ask(heard, AuditQuery(entity=device))) == named(*FACTS[1:3])
    assert keys(await ask(heard, AuditQuery(entity=GRANT.job))) == named(*FACTS[:3])
    assert keys(await ask(heard, AuditQuery(type_prefix="workload.grant."))) == named(*FACTS[1:3])
    assert keys(await ask(heard, AuditQuery(tenant=RIVAL))) == named(FACTS[3])
    assert keys(await ask(heard, AuditQuery(entity=GRANT.job, type_prefix="workload.request."))) == named(FACTS[0])
    assert keys(await ask(heard, AuditQuery(until=at(0)))) == []
    assert len((await ask(heard, AuditQuery(since=at(0)))).entries) == len(FACTS)


async def test_pages_follow_each_other(heard: Wire) -> None:
    first = await ask(heard, AuditQuery(limit=3))
    rest = await ask(heard, AuditQuery(after=first.entries[-1].sequence))
    assert [entry.sequence for entry in (*first.entries, *rest.entries)] == [1, 2, 3, 4]
    assert first.intact is None


async def test_a_question_that_cannot_be_read_is_refused(heard: Wire) -> None:
    answer = await heard.connection.request("call.audit.query", b'{"limit": "many"}', timeout=30)
    assert list((answer.headers or {}).values()) == ["Malformed"]
    assert await has(heard, len(FACTS))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET tenant = 'rival'",
        "DELETE FROM entries WHERE sequence = 2",
        "TRUNCATE entries",
        "DELETE FROM head",
    ],
)
async def test_the_database_refuses_to_change_what_was_written(
    heard: Wire, connection: Connection, statement: str
) -> None:
    with pytest.raises(asyncpg.RestrictViolationError, match="the audit trail only grows"):
        await connection.execute(statement)
    assert (await ask(heard, AuditQuery(verify=True))).intact


@pytest.mark.usefixtures("heard")
async def test_the_head_never_goes_back(connection: Connection) -> None:
    with pytest.raises(asyncpg.RestrictViolationError, match="UPDATE of head refused"):
        await connection.execute("UPDATE head SET sequence = 3")


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE entries SET body = body || convert_to(' ', 'UTF8') WHERE sequence = 2", 2),
        ("UPDATE entries SET body = convert_to('{', 'UTF8') WHERE sequence = 2", 2),
        ("UPDATE entries SET tenant = 'rival' WHERE sequence = 1", 1),
        ("UPDATE entries SET heard_at = heard_at - interval '1 hour' WHERE sequence = 3", 3),
        ("DELETE FROM entries WHERE sequence = 2", 2),
        ("DELETE FROM entries WHERE sequence = 4", 4),
        ("DELETE FROM entries", 1),
    ],
)
async def test_tampering_behind_the_triggers_is_found(
    heard: Wire, connection: Connection, statement: str, broken_at: int
) -> None:
    await connection.execute("ALTER TABLE entries DISABLE TRIGGER USER")
    try:
        await connection.execute(statement)
    finally:
        await connection.execute("ALTER TABLE entries ENABLE TRIGGER USER")
    page = await ask(heard, AuditQuery(verify=True))
    assert (page.intact, page.broken_at) == (False, broken_at)


async def test_a_question_out_of_range_is_refused_and_the_next_is_answered(heard: Wire) -> None:
    body = AuditQuery(after=1 << 63).model_dump_json().encode()
    refusal = await heard.connection.request("call.audit.query", body, timeout=30)
    assert refusal.headers == {ERROR: MALFORMED}
    assert await has(heard, len(FACTS))
