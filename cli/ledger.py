"""bill, audit and events: what was used, said and heard."""

import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cli import exits
from cli.context import client
from cli.exits import CommandError
from cli.output import Form, FormOption, data, money, show, span

if TYPE_CHECKING:
    from libs.client.models import Event

_AGAIN_SECONDS: Final = 1.0
Tenant = Annotated[str | None, typer.Option(help="Only of this tenant.")]
Since = Annotated[str | None, typer.Option(help="From this time on, such as 2026-01-31 or 2026-01-31T08:00:00Z.")]
Until = Annotated[str | None, typer.Option(help="Before this time.")]


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.command(name="bill")(bill)
    commands.command(name="audit")(audit)
    commands.command(name="events")(events)


def bill(
    context: typer.Context,
    *,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Sum what was used by account, queue and class, over intervals that ended in the given time."""
    from libs.client import calls

    with client(context) as asking:
        lines = asking.ask(calls.bill(tenant=tenant, since=_moment("since", since), until=_moment("until", until)))
    rows = (
        (b.account, b.queue, b.gpu_class, span(b.device_seconds), money(b.amount_micros, b.currency)) for b in lines
    )
    show(output, lines, ("account", "queue", "class", "#gpu time", "#amount"), rows)
    if not lines and output is Form.TABLE:
        print("triplane: nothing is billed yet; what has ended is within some ten seconds", file=sys.stderr)


def audit(
    context: typer.Context,
    *,
    entity: Annotated[str | None, typer.Option(help="Only about this job, grant, node, … (an id).")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="How types begin, such as workload.grant.")] = None,
    tenant: Tenant = None,
    since: Since = None,
    until: Until = None,
    after: Annotated[int, typer.Option(min=0, help="Behind this entry.")] = 0,
    limit: Annotated[int, typer.Option(min=1, max=1_000)] = 200,
    verify: Annotated[bool, typer.Option("--verify", help="Check the whole chain of hashes.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Read the audit, oldest first. With --verify exit code 1 means that an entry was changed."""
    from libs.client import calls

    call = calls.audit(
        tenant=tenant,
        entity=entity,
        type_prefix=kind,
        since=_moment("since", since),
        until=_moment("until", until),
        after=after,
        limit=limit,
        verify=verify,
    )
    with client(context) as asking:
        page = asking.ask(call)
    columns = ("#entry", "heard", "what", "scope", "key", "hash")
    rows = ((e.sequence, e.heard_at, e.type, e.scope, e.key, e.hash[:12]) for e in page.entries)
    if output is Form.TABLE:
        show(output, list(page.entries), columns, rows)
    else:
        data(output, page)
    if len(page.entries) == limit:
        print(f"there may be more: --after {page.entries[-1].sequence}", file=sys.stderr)
    if verify and not page.intact:
        raise CommandError(exits.FAILED, f"the chain is broken at entry {page.broken_at}", "the audit was changed")
    if verify:
        print("the chain of hashes is intact", file=sys.stderr)


def events(
    context: typer.Context,
    *,
    job: Annotated[str | None, typer.Option(help="Only about this job (a name or id).")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="How types begin, such as workload.job.")] = None,
    tenant: Tenant = None,
    after: Annotated[int | None, typer.Option(min=0, help="From behind this event; 0: all that is kept.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Come back when the stream ends.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Show facts as they are heard, until Ctrl-C or the end of the stream."""
    from libs.client.errors import UnreachableError

    last = after
    with client(context) as asking:
        while True:
            try:
                for event in asking.events(tenant=tenant, job=job, type_prefix=kind, after=last):
                    last = event.position
                    print(_told(output, event), flush=True)
            except UnreachableError as error:
                if not follow:
                    raise
                exits.say(error.message, "trying again")
            if not follow:
                return
            time.sleep(_AGAIN_SECONDS)


def _told(output: Form, event: "Event") -> str:
    """Return an event as one line, or in YAML as one document: JSON is YAML, too."""
    if output is Form.TABLE:
        return _line(event)
    return ("--- " if output is Form.YAML else "") + json.dumps(event.model_dump())


def _line(event: "Event") -> str:
    fact = event.fact
    told = fact["data"]
    about = told.get("name") or fact["subject"]
    why = (told.get("reason") or {}).get("code", "") if isinstance(told.get("reason"), dict) else ""
    kind = " ".join(event.type.split(".")[1:3]).replace("_", " ")
    return f"{event.position:>8} {fact['time'][:19]} {kind:<22} {about} {why}".rstrip()


def _moment(name: str, text: str | None) -> datetime | None:
    """Return a time that was given; without a zone it is UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        remedy = "write 2026-01-31 or 2026-01-31T08:00:00Z"
        raise CommandError(exits.BAD_INPUT, f"--{name} {text} is not a time", remedy) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
