"""The public trace from start to end: a stack, the play, the picture, the checks."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deploy.embedded.demo import rest, screen, stage
from deploy.embedded.demo.checks import Verdict
from deploy.embedded.demo.openb import curve, documents, lists, play, record, report
from deploy.embedded.demo.openb.documents import Play
from deploy.embedded.gateway import access_of
from libs.client.client import AsyncClient


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for: where the lists are (None: the sample carried here), which one, how fast, the picture."""

    folder: Path | None
    variant: str
    seconds: float
    stretch: float
    picture: Path
    keep: bool
    apart: bool  # each service a process of its own


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was seen of a play."""

    played: play.Played
    jobs: Sequence[record.Done]
    holds: Sequence[record.Hold]
    broken: Sequence[str]


def run(console: Console, wanted: Wanted) -> bool:
    """Play it, show it, and return whether all was well. The stack is stopped afterwards. Raises StackError."""
    trace = lists.read(wanted.folder or lists.SAMPLE, wanted.variant)
    wishes = documents.plan(trace, seconds=wanted.seconds, stretch=wanted.stretch)
    _announce(console, trace, wishes, wanted)
    with stage.set_up_text(wishes.fleet, *(["--processes"] if wanted.apart else [])) as stack:
        seen = asyncio.run(_hold(console, stack, wishes, len(trace.nodes)))
    is_well = _show(console, seen, wishes, wanted.picture)
    if is_well and not wanted.keep:
        stage.remove(stack)
    else:
        console.print(f"State and logs are in {stack.folder.root}.", soft_wrap=True)
    console.print("All is well." if is_well else "[bold red]Something is wrong: see above.")
    return is_well


def _announce(console: Console, trace: lists.Trace, wishes: Play, wanted: Wanted) -> None:
    days, devices = trace.length / 86_400, sum(wishes.stock.values())
    console.print(
        f"openb ({wanted.folder or 'the sample carried here'}, list {wanted.variant}): {len(trace.nodes)} nodes with "
        f"{devices} GPUs of {len(wishes.stock)} models; {len(trace.pods)} of {trace.listed} pods ask for whole GPUs. "
        f"{days:.0f} days become {wanted.seconds:.0f} s; a run lasts {wanted.stretch:g} x its share of that. "
        f"Tenants stand for the qualities of service: {', '.join(wishes.tenants)}; a tenant's quota of each class is "
        "its share of the GPUs asked for.",
        soft_wrap=True,
    )


async def _hold(console: Console, stack: stage.Stage, wishes: Play, nodes: int) -> Seen:
    ledger = await stack.postgres().connect()
    try:
        async with AsyncClient(access_of(stack.address, stack.secret.admin_token)) as admin:
            await play.open_fleet(admin, ledger, wishes, nodes)
            console.print(f"{nodes} nodes are ready.")
            played = await play.perform(admin, ledger, wishes, lambda line: console.print(line, highlight=False))
        broken = await rest.broken_laws(stack)
        return Seen(played, await record.jobs(ledger), await record.holds(ledger), broken)
    finally:
        await ledger.close()


def _show(console: Console, seen: Seen, wishes: Play, picture: Path) -> bool:
    drawn = curve.curves(seen.holds, list(wishes.stock), seen.played.began)
    stock = {"all": sum(wishes.stock.values()), **wishes.stock}
    title = f"openb: devices allocated by class, {len(seen.jobs)} jobs, percent of {stock['all']}"
    picture.write_text(curve.svg(drawn, stock, seen.played.seconds, title))
    said = [
        f"Allocation over {seen.played.seconds:.0f} s, each line relative to its own peak:",
        *curve.text(drawn, stock, seen.played.seconds),
        f"The same as a picture: {picture.absolute()}",
        *report.summary(wishes, seen.played, seen.jobs, drawn),
    ]
    judged: list[Verdict] = report.verdicts(wishes, seen.jobs, _held(seen.holds), seen.broken)
    console.print("\n".join([*said, *screen.verdict_lines(judged)]), highlight=False, soft_wrap=True, markup=False)
    return not any(verdict.broken for verdict in judged)


def _held(holds: Sequence[record.Hold]) -> int:
    return sum(hold.devices for hold in holds if hold.released is None)
