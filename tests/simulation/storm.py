"""One storm: so many steps in bad weather, then calm, until every job has come to its end."""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from schemas.base import Envelope
from tests.simulation.ending import check_end, unfinished
from tests.simulation.store import BreachError
from tests.simulation.weather import KINDS
from tests.simulation.world import PLACEMENT, Rules, World

CALM_SECONDS: Final = 900.0
LOOK_STEPS: Final = 100
TELLING: Final = {"attempt", "grant", "node", "nodes", "proof", "reason", "instance", "boot", "outcome"}


@dataclass(frozen=True, slots=True)
class Told:
    """How a storm went. ``breach`` None: every promise held. ``struck`` counts faults; ``facts`` are the last ones."""

    seed: str
    steps: int
    calm_steps: int
    jobs: int
    seconds: float
    breach: str | None
    struck: Counter[str]
    facts: tuple[str, ...]


def storm(seed: str, steps: int, *, kinds: Collection[str] = KINDS, rules: Rules | None = None) -> Told:
    """Play one storm and tell how it went."""
    return asyncio.run(_storm(seed, steps, kinds, rules))


def kinds_needed(seed: str, steps: int, breach: str) -> tuple[str, ...]:
    """Return the kinds of faults that a breach of the same invariant needs: without one of them it does not come."""
    needed = list(KINDS)
    for kind in KINDS:
        fewer = [each for each in needed if each != kind]
        found = storm(seed, steps, kinds=fewer).breach
        if found is not None and found.split(" ")[:2] == breach.split(" ")[:2]:
            needed = fewer
    return tuple(needed)


@dataclass(slots=True)
class Count:
    """How far a storm has come."""

    steps: int = 0
    calm: int = 0


async def _storm(seed: str, steps: int, kinds: Collection[str], rules: Rules | None) -> Told:
    world = World(seed, kinds, rules)
    count = Count()
    play = asyncio.ensure_future(_play(world, steps, count))
    await asyncio.wait([play])
    error = play.exception()
    await world.end()
    return Told(
        seed,
        count.steps,
        count.calm,
        len(world.admission_view.jobs),
        world.ground.timeline.now,
        f"{type(error).__name__}: {error}" if error else None,
        world.ground.weather.struck,
        tuple(_line(at, envelope) for at, envelope in world.judge.last) if error else (),
    )


def _line(at: float, envelope: Envelope) -> str:
    what = envelope.data.model_dump(mode="json", exclude_none=True, include=TELLING)
    return f"{at:9.3f} s  {envelope.type} {envelope.key} v{envelope.version} {what}"


async def _play(world: World, steps: int, count: Count) -> None:
    """Play a storm. Raises BreachError, or whatever a core breaks on."""
    for count.steps in range(1, steps + 1):
        await _step(world, count.steps)
    await _calm(world, count)


async def _step(world: World, number: int) -> None:
    await world.step()
    world.judge.step()
    if number % LOOK_STEPS == 0:
        world.judge.all()


async def _calm(world: World, count: Count) -> None:
    """Let time pass without faults, until nothing is under way. Raises BreachError when something is stuck."""
    world.faults.end()
    timeline = world.ground.timeline
    until = timeline.now + CALM_SECONDS
    while open_ := unfinished(world):
        if timeline.now > until:
            raise BreachError(f"stuck {CALM_SECONDS:.0f} s after the last fault: {'; '.join(open_[:6])}")
        for _ in range(20):
            count.calm += 1
            await _step(world, count.calm)
    until = timeline.now + PLACEMENT.lease_seconds
    while timeline.now < until:
        count.calm += 1
        await _step(world, count.calm)
    world.judge.all()
    check_end(world)
