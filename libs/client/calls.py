"""The gateway's calls as values: what to ask and what comes back. A client of either kind sends them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter

from libs.client import models as m
from libs.client.errors import ArgumentError
from libs.client.moves import MoveEnd, MoveLine, MoveWish
from schemas.calls import AuditPage

T = TypeVar("T")
Query = Mapping[str, str | int | bool]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the type of its answer."""

    method: str
    path: str
    answer: TypeAdapter[T]
    query: Query = field(default_factory=dict)
    body: bytes | None = None
    media_type: str = "application/json"


def _query(**values: str | int | bool | datetime | None) -> Query:
    """Return what is set; a time as text, a truth as ``true``."""
    texts = {name: v.isoformat() if isinstance(v, datetime) else v for name, v in values.items()}
    return {name: value for name, value in texts.items() if value is not None and value is not False}


def _body(model: BaseModel) -> bytes:
    return model.model_dump_json().encode()


def _named(kind: str, name: str) -> str:
    """Return a name or id as one part of a path. Raises ArgumentError for what is none: blank, or a way elsewhere."""
    if not name.strip():
        raise ArgumentError(f"the {kind} is missing", f"name a {kind}")
    if name in (".", ".."):
        raise ArgumentError(f"{name} is no {kind}", f"name a {kind}")
    return quote(name, safe="")


def submit(text: bytes, *, dry_run: bool = False, again: bool = False) -> Call[m.DocumentsAnswer]:
    """Submit documents."""
    query = _query(dry_run=dry_run, again=again)
    return Call("POST", "/v1/documents", TypeAdapter(m.DocumentsAnswer), query, text, "application/yaml")


def jobs(
    *,
    tenant: str | None = None,
    queue: str | None = None,
    state: str | None = None,
    name: str | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[m.JobPage]:
    """List jobs, newest first."""
    query = _query(tenant=tenant, queue=queue, state=state, name=name, cursor=cursor, limit=limit)
    return Call("GET", "/v1/jobs", TypeAdapter(m.JobPage), query)


def job(reference: str, *, tenant: str | None = None) -> Call[m.JobDetail]:
    """Show one job, by id or name."""
    return Call("GET", f"/v1/jobs/{_named('job', reference)}", TypeAdapter(m.JobDetail), _query(tenant=tenant))


def explain(reference: str, *, tenant: str | None = None) -> Call[m.Explanation]:
    """Say why a job is where it is."""
    path = f"/v1/jobs/{_named('job', reference)}/explain"
    return Call("GET", path, TypeAdapter(m.Explanation), _query(tenant=tenant))


def trace(reference: str, *, tenant: str | None = None) -> Call[m.JobTrace]:
    """Show a job's life fact by fact."""
    path = f"/v1/jobs/{_named('job', reference)}/trace"
    return Call("GET", path, TypeAdapter(m.JobTrace), _query(tenant=tenant))


def cancel(reference: str, *, tenant: str | None = None, message: str = "") -> Call[m.Job]:
    """Wish a job away."""
    query = _query(tenant=tenant, message=message)
    return Call("DELETE", f"/v1/jobs/{_named('job', reference)}", TypeAdapter(m.Job), query)


def logs(
    reference: str, *, tenant: str | None = None, rank: int = 0, attempt: int | None = None, offset: int = 0
) -> Call[m.LogPiece]:
    """Read a piece of a replica's output."""
    query = _query(tenant=tenant, rank=rank, attempt=attempt, offset=offset)
    return Call("GET", f"/v1/jobs/{_named('job', reference)}/logs", TypeAdapter(m.LogPiece), query)


def fleet() -> Call[list[m.FleetLine]]:
    """Count the devices."""
    return Call("GET", "/v1/fleet", TypeAdapter(list[m.FleetLine]))


def nodes(*, cluster: str | None = None, cursor: str | None = None, limit: int | None = None) -> Call[m.NodePage]:
    """List nodes."""
    query = _query(cluster=cluster, cursor=cursor, limit=limit)
    return Call("GET", "/v1/nodes", TypeAdapter(m.NodePage), query)


def order(reference: str, wanted: m.NodeOrder, *, cluster: str | None = None) -> Call[m.OrderAnswer]:
    """Order a node out of service or back into it."""
    path = f"/v1/nodes/{_named('node', reference)}/orders"
    return Call("POST", path, TypeAdapter(m.OrderAnswer), _query(cluster=cluster), _body(wanted))


def moves(*, node: str | None = None, every: bool = False) -> Call[list[MoveLine]]:
    """List the nodes that move."""
    query = _query(node=node, all="true" if every else None)
    return Call("GET", "/v1/moves", TypeAdapter(list[MoveLine]), query)


def start_move(reference: str, wanted: MoveWish, *, cluster: str | None = None) -> Call[MoveLine]:
    """Let a node move to another cluster."""
    path = f"/v1/nodes/{_named('node', reference)}/moves"
    return Call("POST", path, TypeAdapter(MoveLine), _query(cluster=cluster), _body(wanted))


def cancel_move(move: str, wanted: MoveEnd) -> Call[MoveLine]:
    """Give a move up."""
    return Call("POST", f"/v1/moves/{_named('move', move)}/cancel", TypeAdapter(MoveLine), body=_body(wanted))


def queues(*, tenant: str | None = None) -> Call[list[m.QueueLine]]:
    """Show queues."""
    return Call("GET", "/v1/queues", TypeAdapter(list[m.QueueLine]), _query(tenant=tenant))


def escalations() -> Call[list[m.Escalation]]:
    """List what is not known of devices."""
    return Call("GET", "/v1/escalations", TypeAdapter(list[m.Escalation]))


def settle(grant: str, node: str, wanted: m.Settlement) -> Call[m.Settled]:
    """Release an escalated part without proof."""
    path = f"/v1/escalations/{_named('grant', grant)}/{_named('node', node)}/settle"
    return Call("POST", path, TypeAdapter(m.Settled), body=_body(wanted))


def bill(
    *, tenant: str | None = None, since: datetime | None = None, until: datetime | None = None
) -> Call[list[m.BillLine]]:
    """Sum what was used."""
    query = _query(tenant=tenant, since=since, until=until)
    return Call("GET", "/v1/bill", TypeAdapter(list[m.BillLine]), query)


def audit(
    *,
    tenant: str | None = None,
    entity: str | None = None,
    type_prefix: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    after: int | None = None,
    limit: int | None = None,
    verify: bool = False,
) -> Call[AuditPage]:
    """Read the audit."""
    query = _query(
        tenant=tenant,
        entity=entity,
        type_prefix=type_prefix,
        since=since,
        until=until,
        after=after,
        limit=limit,
        verify=verify,
    )
    return Call("GET", "/v1/audit", TypeAdapter(AuditPage), query)


def me() -> Call[m.Me]:
    """Say who asks, and the gateway's version."""
    return Call("GET", "/v1/me", TypeAdapter(m.Me))


def tenants() -> Call[list[m.TenantLine]]:
    """List tenants."""
    return Call("GET", "/v1/tenants", TypeAdapter(list[m.TenantLine]))


def create_tenant(name: str) -> Call[m.TenantLine]:
    """Create a tenant."""
    return Call("POST", "/v1/tenants", TypeAdapter(m.TenantLine), body=_body(m.NewTenant(name=name)))


def tokens() -> Call[list[m.TokenLine]]:
    """List tokens."""
    return Call("GET", "/v1/tokens", TypeAdapter(list[m.TokenLine]))


def create_token(wanted: m.NewToken) -> Call[m.CreatedToken]:
    """Create a token."""
    return Call("POST", "/v1/tokens", TypeAdapter(m.CreatedToken), body=_body(wanted))


def revoke_token(token: str) -> Call[m.TokenLine]:
    """Revoke a token."""
    return Call("DELETE", f"/v1/tokens/{_named('token', token)}", TypeAdapter(m.TokenLine))
