"""One storm: so many steps in bad weather, then calm, until every job has come to its end."""

import asyncio
import gc
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from schemas.base import Envelope
from tests.simulation.ending import check_end, differing, unfinished
from tests.simulation.probe import Probe
from tests.simulation.store import BreachError
from tests.simulation.weather import KINDS
from tests.simulation.world import PLACEMENT, Rules, World

CALM_SECONDS: Final = 900.0
LOOK_STEPS: Final = 100
PROBED: Final = 0.2  # of the storms: they end with a difference that somebody makes
TELLING: Final = {"attempt", "grant", "node", "nodes", "proof", "reason", "instance", "boot", "outcome"}


@dataclass(frozen=True, slots=True)
class Told:
    """How a storm went. ``breach`` None: every promise held. ``struck`` counts faults; ``facts`` are the last ones.

    ``parts_alone`` counts parts that were proved free before the rest of their gang.
    """

    seed: str
    steps: int
    calm_steps: int
    jobs: int
    seconds: float
    breach: str | None
    struck: Counter[str]
    facts: tuple[str, ...]
    parts_alone: int = 0


def storm(seed: str, steps: int, *, kinds: Collection[str] = KINDS, rules: Rules | None = None) -> Told:
    """Play one storm and tell how it went."""
    gc.disable()  # a world lives for seconds, and what it drops has no cycles worth looking for meanwhile
    try:
        return asyncio.run(_storm(seed, steps, kinds, rules))
    finally:
        gc.enable()


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
        world.judge.parts_alone,
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
    asleep = max(process.away_until for process in world.processes) - timeline.now
    await _rest(world, count, max(asleep, 0.0) + 1.0 + PLACEMENT.lease_seconds)  # who wakes may still renew once
    world.judge.all()
    check_end(world)
    await _settle_drifts(world, count)
    if world.dice.random() < PROBED:
        await _probe(world, count)


async def _rest(world: World, count: Count, seconds: float) -> None:
    until = world.ground.timeline.now + seconds
    while world.ground.timeline.now < until:
        count.calm += 1
        await _step(world, count.calm)


async def _settle_drifts(world: World, count: Count) -> None:
    """Let the reconciler see that records do not differ. Raises BreachError when they do, or it tells so."""
    until = world.ground.timeline.now + 4 * PLACEMENT.drift_after_seconds
    while left := differing(world):
        if world.ground.timeline.now > until:
            raise BreachError(f"records differ at rest: {'; '.join(left[:6])}")
        await _rest(world, count, PLACEMENT.reconcile_seconds)


async def _probe(world: World, count: Count) -> None:
    """Make records differ for long. Raises BreachError when nobody tells of it, or of its end."""
    probe = Probe(world)
    seconds = PLACEMENT.drift_after_seconds + 3 * PLACEMENT.reconcile_seconds
    until = world.ground.timeline.now + seconds
    while world.ground.timeline.now < until:
        probe.keep()
        await _rest(world, count, 2.0)
    probe.check_told()
    probe.end()
    await _settle_drifts(world, count)
    probe.check_cleared()
