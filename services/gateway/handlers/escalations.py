"""What is not known of devices, and a named person's word about it."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path

from libs.client import models as m
from libs.pg.pool import translated
from schemas.calls import Escalation, EscalationsPage, EscalationsQuery, Override, OverrideAnswer
from schemas.fleet import MoveInfo
from schemas.ids import GrantId, NodeId, TenantId
from schemas.lifecycle import DeviceState
from schemas.reasons import Code, Layer, reason
from services.gateway.core.access import Role
from services.gateway.core.escalations import commands, evidence
from services.gateway.core.moves import age_seconds, told
from services.gateway.core.moves import commands as move_commands
from services.gateway.handlers.access import Asker, Gate, Gateway, expect_fleet, expect_id
from services.gateway.handlers.problems import RESPONSES, ProblemError, conflict
from services.gateway.store import fleet as store

router = APIRouter(tags=["fleet"], responses=RESPONSES)
_SEE = "see 'triplane escalations' for what waits for a person"


@router.get("/v1/escalations")
async def list_escalations(gate: Gate, asker: Asker) -> list[m.Escalation]:
    """List devices of which something is not known, the longest first, with evidence and the commands that settle it.

    Who asks for one tenant sees what its own jobs hold.
    """
    tenant = asker.only_tenant
    query = EscalationsQuery(tenant=TenantId(tenant) if tenant is not None else None)
    page = await gate.ask("call.grant.escalations", query, EscalationsPage)
    lines = [_line(item, page) for item in page.items]
    if tenant is None:
        with translated():
            lines += [_of_move(info, page.now) for info in await store.moves(gate.pool, node=None) if info.escalated]
    return sorted(lines, key=lambda line: line.since)


@router.post("/v1/escalations/{grant}/{node}/settle")
async def settle(
    gate: Gate,
    asker: Asker,
    grant: Annotated[str, Path(max_length=64, description="A grant's id.")],
    node: Annotated[str, Path(max_length=64, description="A node's id or name.")],
    wanted: m.Settlement,
) -> m.Settled:
    """Release an escalated part without proof, on your word that nothing of it lives. It is audited with your name."""
    expect_fleet(asker, Role.ADMIN)
    expect_id("grant", grant, _SEE)
    identity = await _node(gate, node)
    expect_id("node", identity, _SEE)
    asked = Override(grant=GrantId(grant), node=identity, person=asker.name, reason=wanted.reason)
    answer = await gate.ask("call.grant.override", asked, OverrideAnswer)
    if answer.done:
        return m.Settled(grant=grant, node=identity, devices=answer.devices, person=asker.name)
    assert answer.reason is not None, answer
    if answer.reason.code is Code.GRANT_UNKNOWN:
        raise ProblemError(404, "not-found", f"there is no grant {grant} on node {node}", field="grant", remedy=_SEE)
    raise ProblemError(409, "conflict", answer.reason.message, field="grant", remedy=_SEE)


async def _node(gate: Gateway, reference: str) -> NodeId:
    """Return the id of a node by its id or name; one that is not known stands for itself."""
    with translated():
        rows = await store.nodes(gate.pool, cluster=None, reference=reference, after="", limit=2)
    if len(rows) > 1:
        raise conflict(f"several clusters have a node {reference}", "give the node's id")
    return rows[0].view.node if rows else NodeId(reference)


def _of_move(info: MoveInfo, now: datetime) -> m.Escalation:
    """Return that a node is held for a move that does not go on."""
    why = info.waits or reason(Layer.FLEET, Code.UNKNOWN)
    asked = f"asked for at {info.requested_at:%Y-%m-%d %H:%M} by {info.owner}: {info.reason}"
    return m.Escalation(
        subject="move",
        state=DeviceState.RESERVED.value,
        code=why.code,
        message=f"the move to {info.target_name} {told(info)}",
        since=info.since,
        age_seconds=age_seconds(info, now),
        waits_for_person=True,
        tenant=None,
        job=None,
        job_name=None,
        attempt=None,
        grant=None,
        epoch=None,
        node=info.node,
        node_name=info.node_name,
        devices=(),
        indexes=(),
        evidence=(asked, f"owner epoch {info.owner_epoch}"),
        commands=move_commands(info),
    )


def _line(item: Escalation, page: EscalationsPage) -> m.Escalation:
    return m.Escalation(
        subject=item.subject.value,
        state=item.state.value,
        code=item.reason.code.value,
        message=item.reason.message,
        since=item.since,
        age_seconds=max(int((page.now - item.since).total_seconds()), 0),
        waits_for_person=item.waits_for_person,
        tenant=item.tenant,
        job=item.job,
        job_name=item.job_name,
        attempt=item.attempt,
        grant=item.grant,
        epoch=item.epoch,
        node=item.node,
        node_name=item.node_name,
        devices=item.devices,
        indexes=item.indexes,
        evidence=evidence(item, page.now),
        commands=commands(item),
    )
