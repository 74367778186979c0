"""What the play has shown, in lines; and what was promised, checked. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

from deploy.embedded.demo.checks import Verdict
from deploy.embedded.demo.openb.curve import Curve
from deploy.embedded.demo.openb.documents import Play
from deploy.embedded.demo.openb.play import Played
from deploy.embedded.demo.openb.record import Done

SHOWN = 10  # ways in which one promise was broken


def summary(play: Play, played: Played, done: Sequence[Done], drawn: Mapping[str, Curve]) -> list[str]:
    """Return counts, rates, waits and allocation."""
    total, tries = sum(play.stock.values()), sum(job.attempt for job in done)
    states = ", ".join(f"{count} {state}" for state, count in sorted(Counter(job.state for job in done).items()))
    mean = drawn["all"].mean(played.seconds)
    left_out = f"{len(play.impossible)} pods fit no node and were left out"
    rates = (
        f"{len(done) / played.seconds:.1f} jobs/s over {played.seconds:.1f} s, {played.peak_rate:.0f} in the best ten"
    )
    devices = sum(job.devices for job in done)
    return [
        f"jobs        {len(done)} of {devices} devices: {states}; {tries} attempts; {left_out}",
        f"speed       {rates}; handed in at most {played.late:.1f} s late",
        f"to devices  {_waits([(job.submitted, job.issued) for job in done])}  (taken by the gateway to granted)",
        f"to start    {_waits([(job.submitted, job.started) for job in done])}  (taken by the gateway to started)",
        f"allocation  {mean / total:.2%} on average, {drawn['all'].peak / total:.2%} at most, of {total} devices",
    ]


def verdicts(play: Play, done: Sequence[Done], held: int, broken: Iterable[str]) -> list[Verdict]:
    """Check ends, gangs and what the invariants say of the settled stack."""
    return [
        Verdict("one end: every pod's job ended once, as the list says", _few(_odd(play, done))),
        Verdict("everything given back: no device is held at the end", (f"{held} devices are held",) if held else ()),
        Verdict("the invariants I1 to I10 hold", _few(broken)),
    ]


def _odd(play: Play, done: Iterable[Done]) -> Iterator[str]:
    ended = {job.name: job.state for job in done}
    for wish in play.wishes:
        if ended.get(wish.name) != wish.ends:
            yield f"{wish.name} should have {wish.ends}, and is {ended.get(wish.name, 'unknown')}"


def _few(broken: Iterable[str]) -> tuple[str, ...]:
    found = list(broken)
    return (*found[:SHOWN], f"… {len(found) - SHOWN} more") if len(found) > SHOWN else tuple(found)


def _waits(pairs: Iterable[tuple[float, float | None]]) -> str:
    waits = sorted(until - since for since, until in pairs if until is not None)
    if not waits:
        return "nobody"
    p50, p99 = (waits[ceil(share * len(waits)) - 1] for share in (0.5, 0.99))
    return f"p50 {p50:6.2f} s   p99 {p99:6.2f} s   max {waits[-1]:6.2f} s"
