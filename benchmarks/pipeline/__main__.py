"""``python -m benchmarks.pipeline``: submit jobs of one device each and watch them go all the way.

Prints jobs a second, submit to placed at rest and under load, processor milliseconds a job by component and by hop,
memory, and the raw message rate of the same machine in the same run. ``--memory`` prints what grows with jobs instead.
"""

import argparse
import asyncio
from collections.abc import Mapping
from typing import TypeVar

from benchmarks.pipeline import anchor, memory
from benchmarks.pipeline.jobs import line
from benchmarks.pipeline.profile import sampled
from benchmarks.pipeline.stack import Hop, Stack, standing

K = TypeVar("K", str, Hop)
LEAST_MS = 0.02  # a hop that takes less of a job is not shown


async def measure(stack: Stack, jobs: int, alone: int, profiler: str | None) -> None:
    """Run and print."""
    async with line(stack) as work:
        await work.through("warm", 50)
        idle = stack.processor_seconds()
        for number in range(alone):
            await work.through(f"alone{number}", 1)
        rested = sum(_since(idle, stack.processor_seconds(), alone).values())
        spent, hops, turns = stack.processor_seconds(), stack.spent(), stack.turns()
        with sampled(stack.pids, profiler):
            seconds = await work.through("load", jobs)
        print(f"{jobs / seconds:.0f} jobs/s  ({jobs} jobs of one device in {seconds:.1f} s)")
        print(f"processor of a job that is alone: {rested:.0f} ms")
        by_component(_since(spent, stack.processor_seconds(), jobs))
        by_hop(_since(hops, stack.spent(), jobs))
        by_durable(turns, stack.turns())
        await work.waits("at rest", "alone%")
        await work.waits("under load", "load%")
    held = stack.memory_mib()
    print(f"memory {sum(held.values()):.0f} MiB: " + ", ".join(f"{n} {m:.0f}" for n, m in sorted(held.items())))
    raw = await anchor.rate(stack)
    print(f"anchor: {raw:.0f} raw messages/s published and consumed; {raw / (jobs / seconds):.0f} for each job")


def _since(before: Mapping[K, float], after: Mapping[K, float], jobs: int) -> dict[K, float]:
    return {key: (after[key] - before.get(key, 0.0)) / jobs * 1_000 for key in after}


def by_component(milliseconds: Mapping[str, float]) -> None:
    """Print the processor milliseconds a job of every process."""
    total = sum(milliseconds.values())
    print(f"processor: {total:.2f} ms a job")
    for name, share in sorted(milliseconds.items(), key=lambda item: -item[1]):
        print(f"  {name:<16} {share:6.2f} ms  {share / total:4.0%}")


def by_hop(milliseconds: Mapping[Hop, float]) -> None:
    """Print the processor milliseconds a job of every hop of the services, as they count it themselves."""
    print("by hop:")
    for (service, hop), share in sorted(milliseconds.items(), key=lambda item: -item[1]):
        if share >= LEAST_MS:
            print(f"  {service:<12} {hop:<28} {share:6.2f} ms")


def by_durable(before: Mapping[str, tuple[float, float]], after: Mapping[str, tuple[float, float]]) -> None:
    """Print how many messages a turn of each durable took: the more, the cheaper each is."""
    print("messages a turn:")
    for durable, (messages, turns) in sorted(after.items()):
        earlier, turns_before = before.get(durable, (0.0, 0.0))
        if turns > turns_before:
            print(f"  {durable:<22} {(messages - earlier) / (turns - turns_before):6.1f} in {turns - turns_before:.0f}")


def main() -> None:
    """Parse, set up, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000)
    parser.add_argument("--alone", type=int, default=100, help="jobs sent one after the other on the idle stack")
    parser.add_argument("--py-spy", metavar="PROGRAM", help="sample the services' stacks under load with this py-spy")
    parser.add_argument("--memory", type=int, metavar="JOBS", help="memory after each round of so many jobs")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of --memory")
    options = parser.parse_args()
    with standing(apart=options.memory is None) as stack:
        if options.memory is not None:
            asyncio.run(memory.measure(stack, options.memory, options.rounds))
        else:
            asyncio.run(measure(stack, options.jobs, options.alone, options.py_spy))


if __name__ == "__main__":
    main()
