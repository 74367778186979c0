"""``python -m benchmarks.leases``: devices a second through the lease scripts on a Redis of its own.

Prints a gang of 8 a round trip, gangs pipelined, and the rebuild of 100,000 leases; beside them, in the same run, SETs
with a ttl of the same client, alone and pipelined.
"""

import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import uvloop
from redis.asyncio import Redis

from libs.leases import Lease, Leases
from tests.support.lease_servers import binaries, running

GANG: Final = 8
ALONE: Final = 3_000  # gangs, one after the other
TOGETHER: Final = 4_000  # gangs in one call: as placement's cycle takes them
REBUILT: Final = 100_000
ROUNDS: Final = 5  # the best counts: others use the machine, too


async def measure(url: str) -> None:
    """Run and print."""
    leases, plain = Leases(url), Redis.from_url(url, decode_responses=True)
    try:
        await leases.acquire_many({"warm": ["warm"]})
        await _print("gang of 8 a round trip", lambda: _alone(leases, plain), ALONE * GANG)
        await _print("gangs of 8 pipelined", lambda: _together(leases, plain), TOGETHER * GANG)
        await _print("SETs a round trip", lambda: _sets(plain), ALONE)
        await _print("SETs pipelined by 512", lambda: _piped(plain), REBUILT)
        seconds = await _rebuilt(leases, plain)
        print(f"rebuild of {REBUILT:,} leases: {seconds:.2f} s")
    finally:
        await leases.close()
        await plain.aclose()


async def _print(what: str, work: Callable[[], Awaitable[float]], devices: int) -> None:
    best = min([await work() for _ in range(ROUNDS)])
    print(f"{what}: {devices / best:,.0f} devices/s")


async def _alone(leases: Leases, plain: Redis) -> float:
    await plain.flushdb()
    gangs = [{f"grant_{n}": _devices(n)} for n in range(ALONE)]
    began = time.perf_counter()
    for gang in gangs:
        await leases.acquire_many(gang)
    return time.perf_counter() - began


async def _together(leases: Leases, plain: Redis) -> float:
    await plain.flushdb()
    gangs = {f"grant_{n}": _devices(n) for n in range(TOGETHER)}
    began = time.perf_counter()
    await leases.acquire_many(gangs)
    return time.perf_counter() - began


async def _sets(plain: Redis) -> float:
    keys = [f"dev:{n}" for n in range(ALONE)]
    began = time.perf_counter()
    for key in keys:
        await plain.set(key, "value", px=30_000)
    return time.perf_counter() - began


async def _piped(plain: Redis) -> float:
    keys = [f"dev:{n}" for n in range(REBUILT)]
    began = time.perf_counter()
    for start in range(0, len(keys), 512):
        async with plain.pipeline(transaction=False) as pipeline:
            for key in keys[start : start + 512]:
                _ = pipeline.set(key, "value", px=30_000)
            await pipeline.execute()
    return time.perf_counter() - began


async def _rebuilt(leases: Leases, plain: Redis) -> float:
    await plain.flushdb()
    live = [Lease(f"dev_{n:032x}", f"grant_{n // GANG:032x}", n + 1) for n in range(REBUILT)]
    began = time.perf_counter()
    raised = await leases.rebuild(live)
    assert len(raised.missing) == REBUILT, len(raised.missing)
    return time.perf_counter() - began


def _devices(gang: int) -> list[str]:
    return [f"dev_{gang * GANG + place:032x}" for place in range(GANG)]


def main() -> None:
    """Measure on the first server that this machine has."""
    found = binaries()
    if not found:
        sys.exit("no Redis or Valkey: `make venv` brings one")
    name, binary = next(iter(found.items()))
    load = Path("/proc/loadavg").read_text("ascii").split()[0]
    print(f"{name}, load {load}")
    with tempfile.TemporaryDirectory() as folder, running(binary, Path(folder)) as url:
        uvloop.run(measure(url))


if __name__ == "__main__":
    main()
