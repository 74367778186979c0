"""What the whole stack holds in memory at rest and after many jobs, all services in one process as ``up`` has them."""

import asyncio

from benchmarks.pipeline.jobs import line
from benchmarks.pipeline.stack import Stack

SETTLE_SECONDS = 12.0  # two rounds of every loop but the sweeps


async def measure(stack: Stack, jobs: int, rounds: int) -> None:
    """Print the memory at rest and after each round of so many jobs, with its rate."""
    async with line(stack) as work:
        await work.through("warm", 50)
        await _show(stack, "at rest")
        for number in range(1, rounds + 1):
            seconds = await work.through(f"round{number}", jobs)
            await _show(stack, f"after {number * jobs} jobs, at {jobs / seconds:.0f} jobs/s")


async def _show(stack: Stack, when: str) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    found = stack.memory_mib()
    parts = ", ".join(f"{name} {mib:.0f}" for name, mib in sorted(found.items()))
    print(f"memory {when}: {sum(found.values()):.0f} MiB ({parts})", flush=True)
