"""Nodes that move from one cluster to another."""

import secrets
from datetime import datetime
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query

from libs.client import moves as m
from libs.pg.pool import translated
from schemas.fleet import MoveInfo
from schemas.ids import ClusterId, MoveId, cluster_id
from schemas.lifecycle import MOVE_ENDS
from schemas.moves import MoveAnswer, MoveCancel, MoveStart
from schemas.reasons import Code
from services.gateway.core.access import Role
from services.gateway.core.moves import age_seconds, commands, told
from services.gateway.handlers.access import Asker, Gate, Gateway, expect_fleet, expect_id
from services.gateway.handlers.filters import Filter
from services.gateway.handlers.fleet import node_named
from services.gateway.handlers.problems import RESPONSES, ProblemError, conflict
from services.gateway.store import fleet as store

router = APIRouter(tags=["fleet"], responses=RESPONSES)
_SEE: Final = "see 'triplane moves' for what is under way"


@router.get("/v1/moves")
async def list_moves(
    gate: Gate,
    _: Asker,
    *,
    node: Annotated[Filter | None, Query(description="Only of this node, by id or name.")] = None,
    every: Annotated[bool, Query(alias="all", description="Also those that are over.")] = False,
) -> list[m.MoveLine]:
    """List the nodes that are on their way to another cluster, the newest first."""
    with translated():
        found = await store.moves(gate.pool, node=node, every=every)
    now = gate.service.clock.now()
    return [_line(info, now) for info in found]


@router.post("/v1/nodes/{reference}/moves", status_code=202)
async def start_move(
    gate: Gate,
    asker: Asker,
    reference: Annotated[str, Path(max_length=64, description="A node's id or name.")],
    wanted: m.MoveWish,
    cluster: Filter | None = None,
) -> m.MoveLine:
    """Let a node move to another cluster: nothing new is placed there, and when it is clear the other one owns it."""
    expect_fleet(asker, Role.OPERATOR)
    info = await node_named(gate, reference, cluster)
    asked = MoveStart(
        node=info.node,
        target=await _target(gate, wanted.to),
        owner=wanted.owner or asker.name,
        reason=wanted.reason,
        session=f"order_{secrets.token_hex(16)}",
        stop=wanted.stop,
    )
    return _answered(gate, await gate.ask("call.move.start", asked, MoveAnswer))


@router.post("/v1/moves/{move}/cancel", status_code=202)
async def cancel_move(
    gate: Gate, asker: Asker, move: Annotated[str, Path(max_length=64, description="A move's id.")], wanted: m.MoveEnd
) -> m.MoveLine:
    """Give a move up before the owner has changed; all it had taken is given back."""
    expect_fleet(asker, Role.OPERATOR)
    expect_id("move", move, _SEE)
    asked = MoveCancel(move=MoveId(move), owner=asker.name, reason=wanted.reason)
    return _answered(gate, await gate.ask("call.move.cancel", asked, MoveAnswer))


async def _target(gate: Gateway, name: str) -> ClusterId:
    with translated():
        names = await store.cluster_names(gate.pool)
    if name not in names:
        there = f"there are: {', '.join(names)}" if names else "declare one first"
        raise ProblemError(404, "not-found", f"there is no cluster {name}", field="to", remedy=there)
    return cluster_id(name)


def _answered(gate: Gateway, answer: MoveAnswer) -> m.MoveLine:
    if answer.reason is None:
        assert answer.move is not None, answer
        return _line(answer.move, gate.service.clock.now(), already=answer.already)
    if answer.reason.code in {Code.NODE_UNKNOWN, Code.DESTINATION_UNKNOWN, Code.MOVE_UNKNOWN}:
        raise ProblemError(404, "not-found", answer.reason.message, remedy=_SEE)
    raise conflict(answer.reason.message, _SEE)


def _line(info: MoveInfo, now: datetime, *, already: bool = False) -> m.MoveLine:
    over = info.state in MOVE_ENDS
    return m.MoveLine(
        id=info.move,
        node=info.node,
        node_name=info.node_name,
        source=info.source_name,
        target=info.target_name,
        owner_epoch=info.owner_epoch,
        state=info.state,
        told=told(info),
        code=info.waits.code if info.waits else None,
        owner=info.owner,
        reason=info.reason,
        stop=info.stop,
        requested_at=info.requested_at,
        since=info.since,
        age_seconds=age_seconds(info, now),
        escalated=info.escalated,
        commands=() if over else commands(info),
        already=already,
    )
