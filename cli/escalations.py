"""escalations: what is not known of devices, and how a person settles it."""

from typing import Annotated, Any

import typer

from cli.context import client, worded
from cli.output import Form, FormOption, show, span

escalations = typer.Typer(
    help="List devices of which something is not known, with what settles it.", invoke_without_command=True
)


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.add_typer(escalations, name="escalations")


@escalations.callback()
def list_escalations(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """List devices of which something is not known, the longest first; below each what settles it."""
    from libs.client import calls

    if context.invoked_subcommand is not None:
        return
    with client(context) as asking:
        found = asking.ask(calls.escalations())
    columns = ("state", "code", "age", "node", "devices", "owner", "grant", "evidence")
    show(output, found, columns, ((*_row(each),) for each in found))
    if output is Form.TABLE:
        _advise(found)


@escalations.command("settle")
def settle(
    context: typer.Context,
    grant: Annotated[str, typer.Argument(help="The grant's id.")],
    node: Annotated[str, typer.Argument(help="The node's id or name.")],
    reason: Annotated[str, typer.Option(help="What you saw, so that you know that nothing of it lives.")],
) -> None:
    """Release an escalated part on your word. Your name and reason are kept; only administrators of the fleet may."""
    from libs.client import calls
    from libs.client.models import Settlement

    wanted = worded(Settlement, reason=reason)
    with client(context) as asking:
        done = asking.ask(calls.settle(grant, node, wanted))
    print(f"released {len(done.devices)} devices of {done.grant} on the word of {done.person}")


def _row(each: Any) -> tuple[Any, ...]:
    owner = f"{each.tenant}/{each.job_name} attempt {each.attempt}" if each.job else None
    return (
        each.state,
        each.code,
        span(each.age_seconds),
        each.node_name or each.node,
        each.indexes,
        owner,
        each.grant,
        "; ".join((each.message, *each.evidence)),
    )


def _advise(found: list[Any]) -> None:
    for each in found:
        print(f"\n{each.node_name or each.subject} {each.code}" + (f" {each.grant}" if each.grant else ""))
        for command in each.commands:
            print(f"  {command}")
