"""``python -m benchmarks.pipeline``: submit jobs of one device each and watch them go all the way.

Prints jobs a second, submit to placed at rest and under load, processor milliseconds a job by component, and the raw
message rate of the same machine in the same run.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from statistics import median, quantiles

import asyncpg

from benchmarks.pipeline import anchor
from benchmarks.pipeline.stack import QUEUE, Stack, standing
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.config import Access
from libs.pg.pool import Connection

CHUNK = 500
WAITED = """
    WITH submitted AS (
        SELECT convert_from(body, 'UTF8')::jsonb #>> '{data,job}' AS job, created_at FROM gateway.outbox
        WHERE subject LIKE 'workload.request.submitted.%'
    ), placed AS (
        SELECT convert_from(body, 'UTF8')::jsonb #>> '{data,job}' AS job, created_at FROM dispatch.outbox
        WHERE subject LIKE 'workload.run.accepted.%'
    )
    SELECT extract(epoch FROM p.created_at - s.created_at) * 1000 AS ms FROM submitted s JOIN placed p USING (job)
    JOIN admission.jobs j USING (job) WHERE j.name LIKE $1
"""
ENDED = "SELECT count(*) FROM admission.jobs WHERE name LIKE $1 AND state NOT IN ('Queued', 'Admitted')"


def documents(tag: str, jobs: int) -> Iterator[bytes]:
    """Yield the submissions in pieces."""
    for first in range(0, jobs, CHUNK):
        numbers = range(first, min(first + CHUNK, jobs))
        yield "\n---\n".join(
            f"apiVersion: triplane/v1\nkind: Job\nmetadata: {{name: {tag}-{number}, tenant: bench}}\n"
            "spec: {queue: main, devicesPerReplica: 1, command: [done]}"
            for number in numbers
        ).encode()


async def through(client: AsyncClient, postgres: Connection, tag: str, jobs: int) -> float:
    """Submit jobs and return the seconds until the last has its end."""
    started = time.perf_counter()
    for text in documents(tag, jobs):
        answer = await client.ask(calls.submit(text))
        assert all(result.outcome == "created" for result in answer.results), answer.results[0]
    await _until_ended(postgres, f"{tag}-%", jobs)
    return time.perf_counter() - started


async def _until_ended(postgres: Connection, pattern: str, jobs: int) -> None:
    ended = 0
    while ended < jobs:
        ended = await postgres.fetchval(ENDED, pattern)
        await asyncio.sleep(0.02)


async def measure(stack: Stack, jobs: int, alone: int) -> None:
    """Run and print."""
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
        await through(client, postgres, "warm", 50)
        for number in range(alone):
            await through(client, postgres, f"alone{number}", 1)
        before = stack.processor_seconds()
        seconds = await through(client, postgres, "load", jobs)
        after = stack.processor_seconds()
    report(jobs, seconds, {name: after[name] - before[name] for name in before})
    await waits(postgres, "at rest", "alone%")
    await waits(postgres, "under load", "load%")
    memory = stack.resident_mib()
    print(f"memory {sum(memory.values()):.0f} MiB: " + ", ".join(f"{n} {m:.0f}" for n, m in sorted(memory.items())))
    raw = await anchor.rate(stack)
    print(f"anchor: {raw:.0f} raw messages/s published and consumed; {raw / (jobs / seconds):.0f} for each job")
    await postgres.close()


def report(jobs: int, seconds: float, spent: dict[str, float]) -> None:
    """Print the rate and where the processor time went."""
    print(f"{jobs / seconds:.0f} jobs/s  ({jobs} jobs of one device in {seconds:.1f} s)")
    total = sum(spent.values())
    print(f"processor: {total / jobs * 1_000:.2f} ms a job")
    for name, share in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {name:<16} {share / jobs * 1_000:6.2f} ms  {share / total:4.0%}")


async def waits(postgres: Connection, when: str, pattern: str) -> None:
    """Print how long it took from submitted to placed."""
    found = sorted(float(row["ms"]) for row in await postgres.fetch(WAITED, pattern))
    if len(found) > 1:
        print(f"submit to placed {when}: p50 {median(found):.0f} ms, p99 {quantiles(found, n=100)[98]:.0f} ms")


def main() -> None:
    """Parse, set up, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--alone", type=int, default=30, help="jobs sent one after the other on the idle stack")
    options = parser.parse_args()
    with standing() as stack:
        asyncio.run(measure(stack, options.jobs, options.alone))


if __name__ == "__main__":
    main()
