"""fleet, nodes, queues, and cordon, drain, uncordon."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.context import client, worded
from cli.output import Form, FormOption, counts, show

if TYPE_CHECKING:
    from libs.client.client import Client

Node = Annotated[str, typer.Argument(metavar="NODE", help="A node's name or id.")]
Why = Annotated[str, typer.Option(help="Why; it stays with the node.")]
Cluster = Annotated[str | None, typer.Option(help="The node's cluster.")]
Owner = Annotated[str | None, typer.Option(help="Who stands for it; the token's name, if left out.")]


def register(commands: typer.Typer) -> None:
    """Add these commands."""
    commands.command(name="fleet")(fleet)
    commands.command(name="nodes")(nodes)
    commands.command(name="queues")(queues)
    commands.command(name="cordon")(cordon)
    commands.command(name="drain")(drain)
    commands.command(name="uncordon")(uncordon)


def fleet(context: typer.Context, output: FormOption = Form.TABLE) -> None:
    """Count the GPUs by cluster and class. Held and silent ones are neither allocatable nor idle."""
    from libs.client import calls

    with client(context) as asking:
        lines = asking.ask(calls.fleet())
        doubts = _doubts(asking) if output is Form.TABLE else ""
    columns = ("cluster", "class", "#total", "#allocatable", "#reserved", "#idle", "#held", "#silent")
    rows = ((n.cluster, n.gpu_class, n.total, n.allocatable, n.reserved, n.idle, n.held, n.unknown) for n in lines)
    show(output, lines, columns, rows)
    if doubts:
        print(doubts, file=sys.stderr)


def _doubts(asking: "Client") -> str:
    """Return how much is not known of devices, in a line; the numbers stand without it when nobody answers."""
    from libs.client import calls
    from libs.client.errors import ClientError

    try:
        found = asking.ask(calls.escalations())
    except ClientError:
        return ""
    drifts = sum(each.subject == "drift" for each in found)
    waiting = sum(each.waits_for_person for each in found)
    told = f"{len(found) - drifts} in doubt, {drifts} records that differ; {waiting} wait for a person"
    return f"{told}: see 'triplane escalations'" if found else ""


def nodes(context: typer.Context, cluster: Cluster = None, output: FormOption = Form.TABLE) -> None:
    """List the nodes."""
    from libs.client import calls

    found: list[Any] = []
    cursor: str | None = None
    with client(context) as asking:
        while True:
            page = asking.ask(calls.nodes(cluster=cluster, cursor=cursor, limit=1_000))
            found += page.items
            if (cursor := page.next) is None:
                break
    columns = ("name", "cluster", "state", "gpus", "#reserved", "place", "why")
    show(output, found, columns, ((*_node(node),) for node in found))


def _node(node: Any) -> tuple[Any, ...]:
    place = tuple(f"{level}={name}" for level, name in node.place.items())
    marks = [f"{mark.reason} ({mark.owner})" for mark in node.marks]
    why = "; ".join([*marks, *(f"{incident.code}: {incident.message}" for incident in node.incidents)])
    return node.name, node.cluster, node.state, counts(node.devices), node.reserved, place, why


def queues(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.")] = None,
    output: FormOption = Form.TABLE,
) -> None:
    """Show quota and use by queue and class, how many jobs wait, and whether jobs preempt others of their queue."""
    from libs.client import calls

    with client(context) as asking:
        lines = asking.ask(calls.queues(tenant=tenant))
    columns = ("queue", "tenant", "class", "#quota", "#used", "#waiting", "#admitted", "order", "preempts", "warning")
    rows = (
        (
            *(q.queue, q.tenant, q.gpu_class, q.nominal, q.used, q.waiting, q.admitted),
            *(q.order, q.preemption, q.warning),
        )
        for q in lines
    )
    show(output, lines, columns, rows)


def cordon(context: typer.Context, node: Node, reason: Why, owner: Owner = None, cluster: Cluster = None) -> None:
    """Give a node no new work."""
    _order(context, node, "cordon", reason=reason, owner=owner, cluster=cluster)


def drain(context: typer.Context, node: Node, reason: Why, owner: Owner = None, cluster: Cluster = None) -> None:
    """Give a node no new work and end what runs there; the jobs come back elsewhere."""
    _order(context, node, "drain", reason=reason, owner=owner, cluster=cluster)


def uncordon(context: typer.Context, node: Node, reason: Why, owner: Owner = None, cluster: Cluster = None) -> None:
    """Take a node back into service."""
    _order(context, node, "uncordon", reason=reason, owner=owner, cluster=cluster)


def _order(
    context: typer.Context, node: str, verb: str, *, reason: str, owner: str | None, cluster: str | None
) -> None:
    from libs.client import calls
    from libs.client.models import NodeOrder

    wanted = worded(NodeOrder, order=verb, reason=reason, owner=owner)
    with client(context) as asking:
        taken = asking.ask(calls.order(node, wanted, cluster=cluster))
    print(f"{taken.order} of {node} is ordered ({taken.id})")
