"""The demonstration from start to end."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deploy.embedded.demo import acts, checks, diary, plan, rest, screen, stage, timeline
from deploy.embedded.demo.books import Books
from deploy.embedded.gateway import access_of
from libs.client import calls
from libs.client.client import AsyncClient
from libs.client.models import BillLine, Explanation, Job
from schemas.spec.job import Job as JobDocument


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the demonstration has seen."""

    jobs: tuple[Job, ...]
    bill: tuple[BillLine, ...]
    told: tuple[Explanation, ...]
    books: Books
    diary: tuple[diary.Entry, ...]
    broken: tuple[str, ...]


def run(console: Console, picture: Path, *, keep: bool) -> bool:
    """Hold it, show it, and return whether all was well. The stack is stopped afterwards. Raises StackError.

    Its state and logs are removed, unless they are to be kept or something was wrong.
    """
    began = time.monotonic()
    console.print("Starting a stack: NATS, Redis, Postgres, 8 services and the agents of 4 nodes with 8 devices each.")
    with stage.set_up(plan.FLEET) as stack:
        documents = plan.jobs(stack.working_folder)
        console.print(f"It is up after {time.monotonic() - began:.1f} s. Three tenants submit {len(documents)} jobs.")
        seen = asyncio.run(_hold(console, stack, documents))
    is_well = _show(console, seen, documents, picture)
    if is_well and not keep:
        stage.remove(stack)
    else:
        console.print(f"State and logs are in {stack.folder.root}.", soft_wrap=True)
    seconds = time.monotonic() - began
    console.print(f"All is well, after {seconds:.0f} s." if is_well else "[bold red]Something is wrong: see above.")
    return is_well


async def _hold(console: Console, stack: stage.Stage, documents: Sequence[JobDocument]) -> Seen:
    async with AsyncClient(access_of(stack.address, stack.secret.admin_token)) as admin:
        tokens = await acts.open_fleet(admin)
        await acts.submit(stack, tokens, documents)
        jobs = await acts.watch(console, admin)
        told = [await admin.ask(calls.explain(job.id)) for job in jobs]
        kept = await acts.read_books(stack)
        bill = await admin.ask(calls.bill())
        written = diary.read(stack.working_folder)
        broken = await rest.broken_laws(stack, written)
    return Seen(tuple(jobs), tuple(bill), tuple(told), kept, tuple(written), tuple(broken))


def _show(console: Console, seen: Seen, documents: Sequence[JobDocument], picture: Path) -> bool:
    spans = _spans(seen.books)
    devices = sorted({span.device for span in spans})
    picture.write_text(timeline.svg(spans, devices))
    console.print(screen.jobs_table(seen.jobs))
    console.print(
        "\n".join(["Who had which device when:", *timeline.text(spans, devices)]), highlight=False, soft_wrap=True
    )
    console.print(f"The same as a picture: {picture.absolute()}", soft_wrap=True)
    console.print(screen.bill_table(seen.bill))
    verdicts = _verdicts(seen, documents)
    console.print("\n".join(screen.verdict_lines(verdicts)), highlight=False, soft_wrap=True)
    return not any(verdict.broken for verdict in verdicts)


def _verdicts(seen: Seen, documents: Sequence[JobDocument]) -> list[checks.Verdict]:
    gangs = {job.metadata.name: job.spec.replicas * job.spec.devices_per_replica for job in documents}
    recorded = checks.all_verdicts(seen.books, seen.diary, quota=plan.quotas(), gangs=gangs)
    odd = [f"{job.name} ended {job.state}" for job in seen.jobs if not screen.is_as_planned(job)]
    missing = sorted(gangs.keys() - {job.name for job in seen.jobs})
    return [
        checks.Verdict("one end: every job ended, once, as planned", (*odd, *missing)),
        checks.Verdict("reasons: who waits is told why", tuple(_silent(seen.told))),
        *recorded,
        checks.Verdict("the invariants I1 to I10, by ledger, leases and what the jobs wrote down", seen.broken),
    ]


def _silent(told: Iterable[Explanation]) -> Iterator[str]:
    codes = {job.name: {line.code for line in job.history} for job in told}
    if plan.TOO_LARGE_CODE not in codes.get(plan.TOO_LARGE, set()):
        yield f"{plan.TOO_LARGE} was never told {plan.TOO_LARGE_CODE}"
    waited = [job.name for job in told if job.state == "Succeeded" and plan.WAITS_CODE in codes[job.name]]
    if not waited:
        yield f"no job waited with {plan.WAITS_CODE} and ran later"


def _spans(kept: Books) -> list[timeline.Span]:
    start = min((hold.issued for hold in kept.holds), default=0.0)
    return [
        timeline.Span(hold.label, hold.job, hold.tenant, hold.issued - start, (hold.released or hold.issued) - start)
        for hold in kept.holds
    ]
