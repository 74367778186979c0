"""What a person sees while the demonstration runs, and at its end."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.embedded.demo.checks import Verdict
from deploy.embedded.demo.plan import ending
from libs.client.models import BillLine, Job, Node

STARTED = frozenset({"Running", "Recovering"})
MICROS = 1_000_000
BLOCK, SPACE = "█", "░"


def progress(jobs: Sequence[Job], nodes: Sequence[Node], seconds: float) -> RenderableType:
    """Return the picture of this moment: jobs by tenant, devices by node."""
    ended = sum(job.ended for job in jobs)
    head = Text(f"{seconds:5.1f} s   {ended} of {len(jobs)} jobs have ended", style="bold")
    return Group(head, _tenants(jobs), *(Text(_bar(node)) for node in nodes))


def jobs_table(jobs: Iterable[Job]) -> Table:
    """Return how every job ended, and whether it had to end so."""
    table = Table("job", "tenant", "gpus", "state", "try", "exit", "waited", "ran", "as planned")
    for job in jobs:
        told = (job.name, job.tenant, f"{job.devices}", job.state, f"{job.attempt}", _or_dash(job.exit_code))
        table.add_row(*told, *_times(job), "yes" if is_as_planned(job) else "NO")
    return table


def is_as_planned(job: Job) -> bool:
    """Return whether a job ended the way the plan says."""
    wanted = ending(job.name)
    return (job.state, job.attempt if job.state != "Cancelled" else 1, job.exit_code) == (
        wanted.state,
        wanted.attempt,
        wanted.exit_code,
    )


def bill_table(lines: Iterable[BillLine]) -> Table:
    """Return who owes what."""
    table = Table("account", "queue", "class", "device-seconds", "amount")
    for line in lines:
        amount = f"{line.amount_micros / MICROS:.4f} {line.currency}"
        table.add_row(line.account, line.queue, line.gpu_class, f"{line.device_seconds}", amount)
    return table


def verdict_lines(verdicts: Iterable[Verdict]) -> list[str]:
    """Return one line a promise, and below it every way in which it was broken."""
    return [line for verdict in verdicts for line in (_headline(verdict), *(f"     {why}" for why in verdict.broken))]


def summary_line(jobs: Sequence[Job], nodes: Sequence[Node], seconds: float) -> str:
    """Return the picture of this moment in one line, for where there is no terminal."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(Counter(job.state for job in jobs).items()))
    return f"{seconds:5.1f} s  devices {sum(node.reserved for node in nodes)} of {_total(nodes)}  {states}"


def _tenants(jobs: Iterable[Job]) -> Table:
    table = Table("tenant", "waiting", "on their way", "running", "ended", "devices")
    for tenant, counts in sorted(_counts(jobs).items()):
        table.add_row(tenant, *(f"{counts[key]}" for key in ("waiting", "coming", "running", "ended", "devices")))
    return table


def _counts(jobs: Iterable[Job]) -> Mapping[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        own = counts.setdefault(job.tenant, Counter())
        own[_stage(job)] += 1
        own["devices"] += job.devices if job.nodes and not job.ended else 0
    return counts


def _stage(job: Job) -> str:
    if job.ended:
        return "ended"
    return "waiting" if job.state == "Queued" else "running" if job.state in STARTED else "coming"


def _bar(node: Node) -> str:
    total = sum(node.devices.values())
    return f"{node.name}  {BLOCK * node.reserved}{SPACE * (total - node.reserved)}  {node.state}"


def _total(nodes: Iterable[Node]) -> int:
    return sum(sum(node.devices.values()) for node in nodes)


def _times(job: Job) -> tuple[str, str]:
    if job.started_at is None:
        return "-", "-"
    ran = f"{(job.ended_at - job.started_at).total_seconds():.1f} s" if job.ended_at else "-"
    return f"{(job.started_at - job.submitted_at).total_seconds():.1f} s", ran


def _headline(verdict: Verdict) -> str:
    return f"{'BROKEN' if verdict.broken else 'ok    '}  {verdict.promise}"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
