"""jobs, job, explain, cancel and logs."""

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli import exits
from cli.context import client
from cli.output import Form, FormOption, age, data, show, table, words
from cli.trace import drawn, what

if TYPE_CHECKING:
    from libs.client.calls import Call
    from libs.client.client import Client
    from libs.client.models import Explanation, Job, JobDetail, JobTrace, LogPiece

COLUMNS: Final = ("name", "tenant", "queue", "state", "reason", "#gpus", "class", "nodes", "#attempt", "age")
_WATCH_SECONDS: Final = 2.0
_FOLLOW_SECONDS: Final = 1.0
_PAGE: Final = 500
_SHOWN_NODES: Final = 3

Reference = Annotated[str, typer.Argument(metavar="JOB", help="A job's name or id.")]
Tenant = Annotated[str | None, typer.Option(help="The job's tenant.")]


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.command(name="jobs")(jobs)
    commands.command(name="job")(job)
    commands.command(name="explain")(explain)
    commands.command(name="cancel")(cancel)
    commands.command(name="logs")(logs)


def jobs(
    context: typer.Context,
    *,
    tenant: Tenant = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.")] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state, such as Queued.")] = None,
    name: Annotated[str | None, typer.Option(help="Only of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 100,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show again every 2 s until Ctrl-C.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """List jobs, newest first."""
    with client(context) as asking:
        while True:
            found = _newest(asking, limit, tenant=tenant, queue=queue, state=state, name=name)
            if watch and output is Form.TABLE and sys.stdout.isatty():
                print("\x1b[2J\x1b[H", end="")  # clear the window and go to its corner
            show(output, found, COLUMNS, (row(job, datetime.now(UTC)) for job in found))
            if not watch:
                return
            sys.stdout.flush()
            time.sleep(_WATCH_SECONDS)


def _newest(asking: "Client", limit: int, **wanted: str | None) -> "list[Job]":
    from libs.client import calls

    found: list[Job] = []
    cursor: str | None = None
    while len(found) < limit:
        page = asking.ask(calls.jobs(cursor=cursor, limit=min(limit - len(found), _PAGE), **wanted))
        found += page.items
        if (cursor := page.next) is None:
            break
    return found


def row(job: "Job", now: datetime) -> Sequence[Any]:
    """Return a job's row of the table."""
    more = len(job.nodes) - _SHOWN_NODES
    nodes = (*job.nodes[:_SHOWN_NODES], *([f"+{more}"] if more > 0 else []))
    return (
        job.name,
        job.tenant,
        job.queue,
        job.state,
        job.reason,
        job.devices,
        job.gpu_class,
        nodes,
        job.attempt,
        age(job.submitted_at, now),
    )


def job(
    context: typer.Context,
    reference: Reference,
    *,
    tenant: Tenant = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show its life fact by fact, and where it waited.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Show one job."""
    from libs.client import calls

    with client(context) as asking:
        if trace:
            _trace(asking.ask(calls.trace(reference, tenant=tenant)), output)
            return
        found = asking.ask(calls.job(reference, tenant=tenant))
    if output is not Form.TABLE:
        data(output, found)
        return
    for name, value in _facts(found):
        print(f"{name:<12} {words(value)}")


def _trace(found: "JobTrace", output: Form) -> None:
    if output is not Form.TABLE:
        data(output, found)
        return
    for line in drawn(found):
        print(line)


def _facts(job: "JobDetail") -> list[tuple[str, Any]]:
    said = [("why", f"{job.said.code}: {job.said.message}" if job.said.message else job.said.code)] if job.said else []
    spec = job.document["spec"]
    return [
        ("id", job.id),
        ("name", job.name),
        ("tenant", job.tenant),
        ("queue", job.queue),
        ("state", job.state),
        *said,
        ("attempt", job.attempt),
        ("gpus", f"{job.devices} ({job.replicas} x {spec['devicesPerReplica']})"),
        ("class", job.gpu_class),
        ("nodes", job.nodes),
        ("submitted", f"{words(job.submitted_at)} by {job.submitted_by}"),
        ("started", job.started_at),
        ("ended", job.ended_at),
        ("exit code", job.exit_code),
        ("command", " ".join(spec["command"])),
    ]


def explain(
    context: typer.Context, reference: Reference, tenant: Tenant = None, output: FormOption = Form.TABLE
) -> None:
    """Say why a job is where it is, with numbers counted now, and what happened before."""
    from libs.client import calls

    with client(context) as asking:
        told = asking.ask(calls.explain(reference, tenant=tenant))
    if output is not Form.TABLE:
        data(output, told)
        return
    for line in explained(told, datetime.now(UTC)):
        print(line)
    print()
    table(
        ("at", "#attempt", "what", "why"),
        ((entry.at, entry.attempt, what(entry.type), _why(entry.code, entry.message)) for entry in told.history),
    )


def explained(told: "Explanation", now: datetime) -> list[str]:
    """Return the lines that say why."""
    lines = [f"{told.name} is {told.state} (attempt {told.attempt})", f"{told.code}: {told.message}"]
    if told.numbers:
        lines.append("  " + ", ".join(f"{name} {value}" for name, value in told.numbers.items()))
    if told.since:
        lines.append(f"  since {words(told.since)} ({age(told.since, now)})")
    if told.retry_after_seconds is not None:
        lines.append(f"  tried again after {told.retry_after_seconds} s")
    return lines


def _why(code: str | None, message: str) -> str:
    return ": ".join(part for part in (code, message) if part)


def cancel(
    context: typer.Context,
    references: Annotated[list[str], typer.Argument(metavar="JOB...", help="Names or ids.")],
    *,
    tenant: Tenant = None,
    message: Annotated[str, typer.Option("--message", "-m", help="Why.")] = "",
) -> None:
    """Cancel jobs. Their processes get their grace, then they are killed."""
    from libs.client import calls
    from libs.client.errors import ArgumentError, ProblemError

    codes = []
    with client(context) as asking:
        for reference in references:
            try:
                found = asking.ask(calls.cancel(reference, tenant=tenant, message=message))
            except (ArgumentError, ProblemError) as error:
                codes.append(exits.explained(error))
            else:
                over = found.state == "Cancelled"
                print(f"{found.name} ({found.id}) is cancelled" if over else f"cancelling {found.name} ({found.id})")
    if codes:
        raise typer.Exit(codes[0])


def logs(
    context: typer.Context,
    reference: Reference,
    *,
    tenant: Tenant = None,
    rank: Annotated[int, typer.Option(min=0, help="Which replica.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Which attempt; the newest, if left out.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the output ends.")] = False,
) -> None:
    """Print a replica's output."""
    from libs.client import calls

    offset, shown_attempt = 0, attempt
    with client(context) as asking:
        while True:
            call = calls.logs(reference, tenant=tenant, rank=rank, attempt=attempt, offset=offset)
            piece = _patiently(asking, call) if follow else asking.ask(call)
            if follow and shown_attempt is not None and piece.attempt != shown_attempt:
                print(f"triplane: attempt {piece.attempt} goes on", file=sys.stderr)
                offset, shown_attempt = 0, piece.attempt
                continue
            shown_attempt = piece.attempt
            sys.stdout.write(piece.text)
            sys.stdout.flush()
            has_more, offset = piece.next_offset > offset, piece.next_offset
            if not has_more and (piece.ended or not follow):
                break
            if not has_more:
                time.sleep(_FOLLOW_SECONDS)
    if not piece.known:
        exits.say(f"{reference} has no output yet", f"see 'triplane explain {reference}'")


def _patiently(asking: "Client", call: "Call[LogPiece]") -> "LogPiece":
    """Ask until there is an answer: an agent or a gateway may start anew meanwhile."""
    from libs.client.errors import UnreachableError

    while True:
        try:
            return asking.ask(call)
        except UnreachableError as error:
            exits.say(error.message, "trying again")
            time.sleep(_FOLLOW_SECONDS)
