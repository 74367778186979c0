"""The kill matrix: whatever is killed while jobs go through the stack, every job reaches its one right end."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from deploy.embedded.servers import SERVERS
from libs.client.client import AsyncClient
from schemas.catalog import SERVICES
from tests.support.batches import Batch
from tests.support.victims import Stack
from tests.support.work_log import doubled

pytestmark = [pytest.mark.kills, pytest.mark.timeout(400)]
CLASS, QUOTA = "h100", 10  # of 12 devices
AGENT = "agent-kills-n1"
JOBS_SECONDS, QUIET_SECONDS = 150, 40  # of a busy machine
GOES_ON_SECONDS = 15  # of a busy machine; a quiet one needs less than 5

Strike: TypeAlias = Callable[[Stack], Awaitable["Harm"]]


@dataclass(frozen=True)
class Harm:
    """When the harm was done and when what was hit was there again, in seconds since 1970."""

    done: float
    back: float


@dataclass(frozen=True)
class Blow:
    """What happens to a batch: strikes, each when such a share of its jobs has begun. ``victim``: who dies of it."""

    name: str
    jobs: int
    strikes: tuple[tuple[float, str, Strike], ...]
    victim: str = ""


def killed(victim: str) -> Blow:
    """Kill it once, and later twice in a row: the second time as soon as it is there again."""

    async def once(stack: Stack) -> Harm:
        before = stack.pids()[victim]
        done = stack.kill(victim)
        return Harm(done, await stack.back(victim, before))

    async def twice(stack: Stack) -> Harm:
        await once(stack)
        return await once(stack)

    return Blow(victim, 200, ((0.2, "killed", once), (0.55, "killed twice", twice)), victim)


def lost(name: str, *strikes: tuple[float, str, Callable[[Stack], Awaitable[float]]]) -> Blow:
    """Lose data of a server that lives."""

    def strike(lose: Callable[[Stack], Awaitable[float]]) -> Strike:
        async def struck(stack: Stack) -> Harm:
            done = await lose(stack)
            return Harm(done, done)

        return struck

    return Blow(name, 100, tuple((share, label, strike(lose)) for share, label, lose in strikes))


BLOWS = [
    *map(killed, (*SERVERS, *(name for name in SERVICES if name != "agent"), AGENT)),
    lost(
        "streams",
        (0.2, "WORKLOAD deleted", lambda stack: stack.delete_streams("WORKLOAD")),
        (0.5, "RUNTIME deleted", lambda stack: stack.delete_streams("RUNTIME")),
    ),
    lost("all-streams", (0.3, "all deleted", lambda stack: stack.delete_streams())),
    lost("leases", (0.2, "FLUSHALL", Stack.flush_redis), (0.5, "FLUSHALL", Stack.flush_redis)),
]


@pytest.mark.parametrize("blow", BLOWS, ids=lambda blow: blow.name)
async def test_every_job_reaches_its_one_right_end(stack: Stack, blow: Blow, table: list[str]) -> None:
    stack.expect_up()
    began, before = time.time(), stack.pids()
    async with AsyncClient(stack.access) as admin:
        batch = Batch(blow.name, blow.jobs, admin, stack.work_log)
        handing_in = asyncio.ensure_future(batch.hand_in(CLASS, QUOTA, JOBS_SECONDS))
        harms = [(label, await _struck(stack, batch, share, strike)) for share, label, strike in blow.strikes]
        await handing_in
        wrong = await batch.wrong(JOBS_SECONDS)
    ended = time.time()
    broken = [*await stack.breaches(batch.processes(), QUIET_SECONDS), *await stack.dead_letters(began)]
    waits = [await _goes_on(stack, blow, batch, harm) for _, harm in harms]
    table.extend(_rows(blow, harms, waits, ended - began, time.time() - ended))
    assert [*wrong, *broken, *doubled(batch.processes()), *_died_too(before, stack.pids(), blow)] == [], (
        await stack.whys(wrong)
    )
    assert max(map(max, waits)) < GOES_ON_SECONDS


async def _struck(stack: Stack, batch: Batch, share: float, strike: Strike) -> Harm:
    await batch.reached(share, JOBS_SECONDS)
    return await strike(stack)


async def _goes_on(stack: Stack, blow: Blow, batch: Batch, harm: Harm) -> tuple[float, float]:
    """Return how long after the return a job started, and the victim did something of its own."""
    starts = [process.begin for process in batch.processes()]
    own = await stack.turns(blow.victim) if blow.victim in SERVICES else starts
    if blow.victim == AGENT:
        devices = await stack.devices(blow.victim)
        own = [process.begin for process in batch.processes() if devices.intersection(process.devices)]
    return _after(starts, harm), _after(own, harm)


def _after(moments: list[float], harm: Harm) -> float:
    return min((moment for moment in moments if moment > harm.back), default=harm.back + JOBS_SECONDS) - harm.back


def _rows(
    blow: Blow, harms: list[tuple[str, Harm]], waits: list[tuple[float, float]], jobs: float, quiet: float
) -> Iterator[str]:
    for (label, harm), (start, own) in zip(harms, waits, strict=True):
        yield (
            f"{blow.name:<15} {label:<17} back after {harm.back - harm.done:4.1f} s, next start {start:5.2f} s, "
            f"own work {own:5.2f} s; {blow.jobs} jobs in {jobs:5.1f} s, quiet after {quiet:4.1f} s"
        )


def _died_too(before: dict[str, int], now: dict[str, int], blow: Blow) -> list[str]:
    return [f"{name} died too" for name in sorted(before) if name != blow.victim and now.get(name) != before[name]]
