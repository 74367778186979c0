"""Every law of the invariants is broken on purpose and must be found; a check that cannot fail is none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from libs.leases import Lease, Leases
from libs.pg.pool import Connection
from tests.support.builders import at
from tests.support.invariants import LAWS, Law, Stint, breaches, overlaps
from tests.support.servers import Servers

SCHEMAS = ("admission", "placement", "dispatch", "gateway", "billing", "health")
DEVICE = """
    INSERT INTO placement.devices (device, node, index, uuid, model, memory_mib, owner)
    VALUES ('d', 'n', 0, '', '', 0, '')
"""
LINE = """
    INSERT INTO placement.lines (grant_id, node, rank, device, span, live)
    SELECT '{}', 'n', 0, 'd', placement.whole(ordinal), {} FROM placement.devices
"""
GRANT = """
    INSERT INTO placement.grants (id, epoch, job, attempt, tenant, name, queue, cluster, gpu_class, work, issued_at,
                                  start_deadline, version, live)
    VALUES ('{0}', {1}, '{0}', 1, 'acme', '', 'main', 'c', 'h100', '{{}}', '2026-01-15 12:00Z', now(), 1, {2})
"""
PART = """
    INSERT INTO placement.parts (grant_id, node, node_name, state, cpu_milli, memory_mib, claimed_at, released_at,
                                 proof, version)
    VALUES ('{}', 'n', 'n', '{}', 0, 0, {}, {}, {}, 1)
"""
BILLED = """
    INSERT INTO billing.lines (usage, account, grant_id, node, device, started_at, ended_at, currency, micros_per_hour,
                               amount_micros)
    VALUES ('{0}', 'acme', '{0}', 'n', 'd', '2026-01-15 12:00Z', '2026-01-15 13:00Z', 'USD', 0, 0)
"""
QUEUE = "INSERT INTO admission.queues (tenant, name, nominal, generation) VALUES ('acme', 'main', '{\"h100\": 4}', 1)"
JOB = """
    INSERT INTO admission.jobs (job, tenant, queue, name, priority, demand, work, retries, queued_at, state, attempt,
                                failures, evictions, version, reason)
    VALUES ('j', 'acme', 'main', 'j', 0, '{{}}', '{{}}', 0, now(), '{}', {}, 0, 0, 1, {})
"""
CHARGE = """
    INSERT INTO admission.charges (job, attempt, tenant, queue, gpu_class, devices, booked, fact, account, granted,
                                   answered, over)
    VALUES ('j', 1, 'acme', 'main', 'h100', {0}, {0}, gen_random_uuid(), 'queue', false, false, false)
"""
SAID = """
    INSERT INTO {}.outbox (id, subject, stream, body, sent_at)
    VALUES (gen_random_uuid(), '', '', convert_to('{}', 'UTF8'), now())
"""
ATTEMPT = """
    INSERT INTO placement.attempts (job, attempt, state, tenant, demand)
    VALUES ('g1', 1, 'Granted', 'acme', '{"replicas": 2, "devices_per_replica": 1}')
"""


def said(kind: str, version: int = 1, attempt: int = 1) -> str:
    return f'{{"type": "{kind}", "entityversion": {version}, "data": {{"job": "j", "run": "r", "attempt": {attempt}}}}}'


def tenure(grant: str, epoch: int) -> list[str]:
    claimed = PART.format(grant, "Released", "'2026-01-15 12:00Z'", "'2026-01-15 13:00Z'", "'Seal'")
    return [GRANT.format(grant, epoch, "false"), claimed, LINE.format(grant, "false")]


BREAKS = {
    "two live lines of one device overlap": [
        "ALTER TABLE placement.lines DROP CONSTRAINT one_owner",
        *(DEVICE, LINE.format("g1", "true"), LINE.format("g2", "true")),
    ],
    "two claims of one device overlap in time": [DEVICE, *tenure("g1", 1), *tenure("g2", 2)],
    "a live part without a live line on each of its devices, or a line of a part that is over": [
        *(DEVICE, GRANT.format("g1", 1, "true"), PART.format("g1", "Claimed", "now()", "NULL", "NULL")),
        LINE.format("g1", "false"),
    ],
    "a queue is charged over its quota": [QUEUE, JOB.format("Admitted", 1, "NULL"), CHARGE.format(5)],
    "a live grant that is not charged for all that it holds": [
        *(DEVICE, GRANT.format("g1", 1, "true"), PART.format("g1", "Claimed", "now()", "NULL", "NULL")),
        LINE.format("g1", "true"),
    ],
    "a charge of an attempt that is over and holds nothing": [
        QUEUE,
        JOB.format("Cancelled", 1, "NULL"),
        CHARGE.format(1),
    ],
    "an attempt is admitted beside one of the same job that is not proved over": [
        QUEUE,
        JOB.format("Admitted", 2, "NULL"),
        CHARGE.format(1),
    ],
    "a gang holds some of its devices and not all, and did not give the others back": [
        *(DEVICE, ATTEMPT, GRANT.format("g1", 1, "true"), PART.format("g1", "Claimed", "now()", "NULL", "NULL")),
        LINE.format("g1", "true"),
    ],
    "a transition of an attempt was said twice": [
        SAID.format("admission", said("workload.job.admitted.v1", 2)),
        SAID.format("admission", said("workload.job.admitted.v1", 3)),
    ],
    "a run has two results": [
        SAID.format("dispatch", said("workload.run.failed.v1", 4)),
        SAID.format("dispatch", said("workload.run.lost.v1", 5)),
    ],
    "a job has two ends, or something was said of it after its end": [
        SAID.format("admission", said("workload.job.cancelled.v1", 4)),
        SAID.format("admission", said("workload.job.held.v1", 5)),
    ],
    "admission's row and what was said of the job's end differ": [
        *(QUEUE, JOB.format("Admitted", 1, "NULL")),
        SAID.format("admission", said("workload.job.finished.v1", 4)),
    ],
    "billed time of one device overlaps or is negative": [
        "ALTER TABLE billing.lines DROP CONSTRAINT billed_once",
        *(BILLED.format(grant) for grant in ("g1", "g2")),
    ],
    "granted time and billed time differ": [DEVICE, *tenure("g1", 1)],
    "a part was released without proof, or as never claimed although it was": [
        GRANT.format("g1", 1, "false"),
        PART.format("g1", "Released", "now()", "now()", "'NeverClaimed'"),
    ],
    "a drain without owner, reason or session": [
        SAID.format(
            "health",
            '{"type": "fleet.drain.requested.v1", "data": {"owner": "ops", "reason": "", "session": "s"}}',
        )
    ],
    "a job holds room in a queue and does not wait there, or in one whose jobs do not preempt": [
        *(QUEUE, JOB.format("Queued", 1, "NULL")),
        "UPDATE admission.jobs SET held_since = now(), preemption = '{}'",
    ],
    "room in a queue is held for a job that has ended": [
        *(QUEUE, JOB.format("Cancelled", 1, "NULL")),
        "UPDATE admission.jobs SET recovery = '{}'",
    ],
    "room is held for a grant that has not ended, or for longer than its job wishes": [
        *(ATTEMPT, GRANT.format("g1", 1, "true")),
        "INSERT INTO placement.comebacks VALUES ('j', 'g1', 60, now())",
    ],
    "a job waits without a reason": [QUEUE, JOB.format("Queued", 1, "NULL")],
    "a job waits for quota with a quota that is not its queue's": [
        QUEUE,
        JOB.format("Queued", 1, '\'{"code": "WaitingForQuota", "numbers": {"nominal": 8}}\''),
    ],
    "a fact was never sent": [
        "INSERT INTO admission.outbox (id, subject, stream, body) VALUES (gen_random_uuid(), 's', '', '{}')"
    ],
}


@asynccontextmanager
async def undone(servers: Servers) -> AsyncIterator[Connection]:
    """A connection that may do anything, and none of it stays."""
    connection = await servers.foundation.postgres.connect()
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("SET LOCAL session_replication_role = replica")
    try:
        yield connection
    finally:
        await transaction.rollback()
        await connection.close()


@pytest.fixture
async def leases(servers: Servers) -> AsyncIterator[Leases]:
    for schema in SCHEMAS:
        await servers.infrastructure(schema)
    opened = Leases(servers.operator_redis_url)
    yield opened
    await opened.close()


def test_every_law_is_broken_here() -> None:
    assert {law.says for law in LAWS} == set(BREAKS)


async def test_an_empty_house_keeps_every_law(servers: Servers, leases: Leases) -> None:
    async with undone(servers) as connection:
        assert await breaches(connection, leases, settled=True) == []


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{law.name} {law.says}")
async def test_a_broken_law_is_found(servers: Servers, leases: Leases, law: Law) -> None:
    async with undone(servers) as connection:
        for statement in BREAKS[law.says]:
            await connection.execute(statement)
        found = await breaches(connection, leases, settled=law.settled)
        assert any(breach.startswith(f"{law.name}: {law.says}: ") for breach in found), found


async def test_a_lease_above_the_ledger_and_a_line_without_its_lease_are_found(
    servers: Servers, leases: Leases
) -> None:
    async with undone(servers) as connection:
        for statement in (DEVICE, GRANT.format("g1", 3, "true"), LINE.format("g1", "true")):
            await connection.execute(statement)
        missing = await breaches(connection, leases, settled=True)
        assert any(breach.startswith("I10: a live line without its lease") for breach in missing)
        await leases.raise_many([Lease("d", "g9", 9)])
        above = await breaches(connection, leases, settled=False)
        assert any(breach.startswith("I10: a lease stands above the ledger") for breach in above)


def test_processes_that_say_they_shared_a_device_are_found() -> None:
    one = Stint("j1", 1, "d", at(0), at(10))
    other = Stint("j2", 1, "d", at(9), None)
    assert overlaps([one, other]) == ["I1: d served j1 attempt 1 and j2 attempt 1 at once"]
    assert overlaps([one, Stint("j2", 1, "d", at(10), None)]) == []
