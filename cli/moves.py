"""move and moves: nodes that go from one cluster to another."""

from typing import Annotated, Any

import typer

from cli.context import client, worded
from cli.fleet import Cluster, Owner
from cli.output import Form, FormOption, data, show, span

moves = typer.Typer(help="List the nodes that are on their way to another cluster.", invoke_without_command=True)


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.command(name="move")(move)
    commands.add_typer(moves, name="moves")


def move(
    context: typer.Context,
    nodes: Annotated[list[str], typer.Argument(metavar="NODE...", help="Nodes, by name or id.")],
    *,
    to: Annotated[str, typer.Option(help="The cluster that is to own them.")],
    reason: Annotated[str, typer.Option(help="Why; it stays with the move.")],
    owner: Owner = None,
    cluster: Cluster = None,
    stop: Annotated[bool, typer.Option("--stop", help="End what runs there; its jobs come back elsewhere.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """Let nodes move to another cluster. Nothing new is placed there; when a node is clear the other one owns it."""
    from libs.client import calls
    from libs.client.moves import MoveWish

    wanted = worded(MoveWish, to=to, reason=reason, owner=owner, stop=stop)
    wishes = [calls.start_move(node, wanted, cluster=cluster) for node in nodes]
    with client(context) as asking:
        taken = [asking.ask(wish) for wish in wishes]
    if output is not Form.TABLE:
        data(output, taken)
        return
    for line in taken:
        again = "is already on its way" if line.already else "is on its way"
        print(f"{line.node_name} {again} from {line.source} to {line.target} ({line.id}); see 'triplane moves'")


@moves.callback()
def list_moves(
    context: typer.Context,
    node: Annotated[str | None, typer.Option(help="Only of this node, by name or id.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    output: FormOption = Form.TABLE,
) -> None:
    """List the nodes that are on their way to another cluster; below each that has waited too long what settles it."""
    from libs.client import calls

    if context.invoked_subcommand is not None:
        return
    with client(context) as asking:
        found = asking.ask(calls.moves(node=node, every=every))
    columns = ("move", "node", "from", "to", "state", "since", "owner", "why", "what it waits for")
    show(output, found, columns, ((*_row(each),) for each in found))
    if output is Form.TABLE:
        _advise(found)


@moves.command("cancel")
def cancel(
    context: typer.Context,
    move: Annotated[str, typer.Argument(help="The move's id.")],
    reason: Annotated[str, typer.Option(help="Why; it stays with the move.")],
) -> None:
    """Give a move up before the owner has changed. What it had taken is given back."""
    from libs.client import calls
    from libs.client.moves import MoveEnd

    wanted = worded(MoveEnd, reason=reason)
    with client(context) as asking:
        line = asking.ask(calls.cancel_move(move, wanted))
    print(f"{line.node_name} stays with {line.source} ({line.id}): {line.told}")


def _row(each: Any) -> tuple[Any, ...]:
    state = f"{each.state} (escalated)" if each.escalated else each.state
    age = span(each.age_seconds)
    return each.id, each.node_name, each.source, each.target, state, age, each.owner, each.reason, each.told


def _advise(found: list[Any]) -> None:
    for each in found:
        if each.escalated:
            print(f"\n{each.node_name} {each.code} {each.id}")
            for command in each.commands:
                print(f"  {command}")
