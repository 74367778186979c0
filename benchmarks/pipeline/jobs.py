"""Jobs of one device each: submitted in pieces, and waited for until the last has its end."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median, quantiles

import asyncpg

from benchmarks.pipeline.stack import QUEUE, Stack
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import Access
from libs.pg.pool import Connection

CHUNK = 500
LOOK_SECONDS = 0.2  # of many jobs; looking costs processor time, too
LOOK_CLOSELY_SECONDS = 0.02
WAITED = """
    WITH submitted AS (
        SELECT convert_from(body, 'UTF8')::jsonb #>> '{data,job}' AS job, created_at FROM gateway.outbox
        WHERE subject LIKE 'workload.request.submitted.%'
    ), placed AS (
        SELECT convert_from(body, 'UTF8')::jsonb #>> '{data,job}' AS job, created_at FROM placement.outbox
        WHERE subject LIKE 'workload.grant.issued.%'
    ), accepted AS (
        SELECT convert_from(body, 'UTF8')::jsonb #>> '{data,job}' AS job, created_at FROM dispatch.outbox
        WHERE subject LIKE 'workload.run.accepted.%'
    )
    SELECT extract(epoch FROM p.created_at - s.created_at) * 1000 AS placed,
           extract(epoch FROM a.created_at - s.created_at) * 1000 AS accepted
    FROM submitted s JOIN placed p USING (job) JOIN accepted a USING (job)
    JOIN admission.jobs j USING (job) WHERE j.name LIKE $1
"""
ENDED = "SELECT count(*) FROM admission.jobs WHERE name LIKE $1 AND state NOT IN ('Queued', 'Admitted')"


@dataclass(frozen=True, slots=True)
class Line:
    """A stack with a queue, as a user and as its operator."""

    client: AsyncClient
    postgres: Connection

    async def through(self, tag: str, jobs: int) -> float:
        """Submit jobs and return the seconds until the last has its end."""
        started = time.perf_counter()
        for text in documents(tag, jobs):
            answer = await self.client.ask(calls.submit(text))
            assert all(result.outcome == "created" for result in answer.results), answer.results[0]
        pause = LOOK_SECONDS if jobs > 1 else LOOK_CLOSELY_SECONDS
        ended = 0
        while ended < jobs:
            ended = await self.postgres.fetchval(ENDED, f"{tag}-%")
            await asyncio.sleep(pause)
        return time.perf_counter() - started

    async def waits(self, when: str, pattern: str) -> None:
        """Print how long it took from submitted until devices were granted, and until their node had taken the run."""
        await self.postgres.execute("ANALYZE")
        rows = await self.postgres.fetch(WAITED, pattern)
        for until in ("placed", "accepted"):
            found = [float(row[until]) for row in rows]
            if len(found) > 1:
                print(f"submit to {until} {when}: p50 {median(found):.0f} ms, p99 {quantiles(found, n=100)[98]:.0f} ms")


@asynccontextmanager
async def line(stack: Stack) -> AsyncIterator[Line]:
    """Be connected inside, with a tenant and a queue there."""
    users, token = stack.secrets["postgres"], stack.secrets["admin_token"]
    assert isinstance(users, dict)
    assert isinstance(token, str)
    postgres = await asyncpg.connect(
        host="127.0.0.1", port=stack.ports["postgres"], user="triplane", password=users["triplane"], database="triplane"
    )
    access = Access(address=f"http://127.0.0.1:{stack.ports['gateway']}", token=token, source="the stack itself")
    async with AsyncClient(access) as client:
        await client.ask(calls.create_tenant("bench"))
        await client.ask(calls.submit(QUEUE.encode()))
        yield Line(client, postgres)
    await postgres.close()


def documents(tag: str, jobs: int) -> Iterator[bytes]:
    """Yield the submissions in pieces."""
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(first + CHUNK, jobs))
        yield "\n---\n".join(
            f"apiVersion: triplane/v1\nkind: Job\nmetadata: {{name: {tag}-{number}, tenant: bench}}\n"
            "spec: {queue: main, devicesPerReplica: 1, command: [done]}"
            for number in numbers
        ).encode()
