"""The same world against real servers: everything that can strike a stack strikes it, and every job ends right."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from libs.client.client import AsyncClient
from tests.e2e.chaos.conftest import Field
from tests.support.batches import DONE, UNWANTED, Batch, Kind
from tests.support.strikes import deal
from tests.support.striking import Striker
from tests.support.work_log import doubled

SEED, MINUTES = os.environ.get("CHAOS_SEED", "1"), float(os.environ.get("CHAOS_MINUTES", "0"))
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(int(MINUTES * 60) + 1_200)]
JOBS, QUOTA = 60, 10  # of 12 devices
HELD = Kind("held", DONE, arguments=("2",))
BURST, BURST_QUOTA = 200, 200  # of 160 devices
JOBS_SECONDS, QUIET_SECONDS = 500, 120  # of a busy machine, after the last fault


@dataclass
class Told:
    """What is told of a run, line by line."""

    began: float = field(default_factory=time.time)
    lines: list[str] = field(default_factory=list)
    strikes: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    wrong: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)  # noqa: T201

    def table(self) -> Iterator[str]:
        yield f"{'strikes':<20}{self.strikes.total():>6}"
        yield from (f"  {kind:<18}{count:>6}" for kind, count in sorted(self.strikes.items()))
        yield f"{'jobs':<20}{self.jobs:>6}"
        yield f"{'wrong':<20}{len(self.wrong):>6}"
        yield f"in {time.time() - self.began:.0f} s; once more: make chaos SEED={SEED} MINUTES={MINUTES:g}"


async def test_every_job_reaches_its_one_right_end_and_no_device_serves_two(chaos: Field) -> None:
    told, rounds = Told(), 0
    try:
        while not told.wrong and (rounds == 0 or time.time() - told.began < MINUTES * 60):
            told.say(f"round {rounds}, seed {SEED}")
            told.wrong += await _round(chaos, told, rounds)
            rounds += 1
    finally:
        for line in told.table():
            told.say(line)
    assert told.wrong == [], "\n".join(["", *told.lines])


async def _round(chaos: Field, told: Told, number: int) -> list[str]:
    began = time.time()
    async with AsyncClient(chaos.stack.access) as admin:
        flow = Flow(chaos, admin, f"r{number}")
        striker = Striker(
            chaos.stack,
            chaos.links,
            chaos.disk,
            lambda line: told.say(f"{line:<60}{flow.begun():>6} jobs begun"),
            flow.burst,
        )
        flowing = asyncio.ensure_future(flow.run())
        try:
            await striker.strike_all(deal(f"{SEED} {number}", chaos.scene))
            flow.over = True
            await flowing
            wrong = await flow.wrong()
        finally:
            flowing.cancel()
            told.strikes += striker.tally
            told.jobs += sum(batch.count for batch in flow.batches)
    told.say(f"         {len(wrong)} wrong ends after {time.time() - began:.0f} s")
    for job in {word for line in wrong for word in line.replace(",", " ").split() if word.startswith("job_")}:
        for line in await chaos.stack.story(job):
            told.say(line)
    processes = [process for batch in flow.batches for process in batch.processes()]
    broken = [*await chaos.stack.breaches(processes, QUIET_SECONDS), *await chaos.stack.dead_letters(began)]
    told.say(f"         {len(broken)} breaches after {time.time() - began:.0f} s")
    return [*wrong, *broken, *doubled(processes)]


@dataclass
class Flow:
    """Batches of jobs, one after the other until it is over, and a burst beside them."""

    place: Field
    admin: AsyncClient
    name: str
    batches: list[Batch] = field(default_factory=list)
    over: bool = False
    _bursting: "list[asyncio.Task[None]]" = field(default_factory=list)

    async def run(self) -> None:
        """Hand in."""
        while not self.over:
            batch = self._batch(JOBS)
            await batch.hand_in("h100", QUOTA, JOBS_SECONDS)
        for bursting in self._bursting:
            await bursting

    def burst(self) -> None:
        """Hand in more jobs at once than there are devices, a quarter of them unwanted."""
        batch = self._batch(BURST, mix=(HELD, HELD, UNWANTED, HELD), at_once=BURST)
        self._bursting.append(asyncio.ensure_future(batch.hand_in("a100", BURST_QUOTA, JOBS_SECONDS)))

    async def wrong(self) -> list[str]:
        """Return every job that does not come to its one right end."""
        return [wrong for batch in self.batches for wrong in await batch.wrong(JOBS_SECONDS)]

    def begun(self) -> int:
        """Return how many jobs have begun."""
        return sum(len(batch.begun()) for batch in self.batches)

    def _batch(self, count: int, **how: Any) -> Batch:
        batch = Batch(f"{self.name}b{len(self.batches)}", count, self.admin, self.place.stack.work_log, **how)
        self.batches.append(batch)
        return batch
