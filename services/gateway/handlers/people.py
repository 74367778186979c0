"""Tenants, tokens, and who asks."""

import secrets
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from fastapi import APIRouter, Path

from libs.client import models as m
from libs.pg.pool import translated
from services.gateway.core.access import FLEET, Role, Token, digest
from services.gateway.handlers.access import Asker, Gate, expect_fleet, expect_role
from services.gateway.handlers.problems import RESPONSES, conflict, denied, not_found
from services.gateway.store import people as store

router = APIRouter(tags=["people"], responses=RESPONSES)


def product_version() -> str:
    """Return the version of this installation."""
    try:
        return version("triplane")
    except PackageNotFoundError:
        return "0.0.0"


@router.get("/v1/me")
async def show_me(asker: Asker) -> m.Me:
    """Say who asks."""
    return m.Me(name=asker.name, role=asker.role.value, tenant=asker.tenant, version=product_version())


@router.get("/v1/tenants")
async def list_tenants(gate: Gate, asker: Asker) -> list[m.TenantLine]:
    """List the tenants that the asker belongs to."""
    with translated():
        rows = await store.tenants(gate.pool, asker.only_tenant)
    return [m.TenantLine(name=row.name, created_by=row.created_by, created_at=row.created_at) for row in rows]


@router.post("/v1/tenants", status_code=201)
async def create_tenant(gate: Gate, asker: Asker, wanted: m.NewTenant) -> m.TenantLine:
    """Create a tenant."""
    expect_fleet(asker, Role.ADMIN)
    async with gate.service.turn() as turn:
        if not await store.create_tenant(turn.connection, wanted.name, asker.name):
            raise conflict(f"there is a tenant {wanted.name} already", "use it, or choose another name")
    (row,) = await store.tenants(gate.pool, wanted.name)
    return m.TenantLine(name=row.name, created_by=row.created_by, created_at=row.created_at)


@router.get("/v1/tokens")
async def list_tokens(gate: Gate, asker: Asker) -> list[m.TokenLine]:
    """List tokens, without their secrets."""
    expect_role(asker, Role.ADMIN)
    with translated():
        return [_line(row) for row in await store.tokens(gate.pool, asker.only_tenant)]


@router.post("/v1/tokens", status_code=201)
async def create_token(gate: Gate, asker: Asker, wanted: m.NewToken) -> m.CreatedToken:
    """Create a token. Its secret is in this answer and nowhere else."""
    if not asker.may_give(Role(wanted.role), wanted.tenant):
        detail = f"token {asker.name} ({asker.role} of {asker.tenant}) can not give {wanted.role} of {wanted.tenant}"
        raise denied(detail, "ask an admin of that tenant")
    secret = f"tp_{secrets.token_urlsafe(32)}"
    async with gate.service.turn() as turn:
        known = await store.tenant_names(turn.connection)
        if wanted.tenant != FLEET and wanted.tenant not in known:
            raise not_found(f"tenant {wanted.tenant}", "create it first: 'triplane tenants create'")
        life = wanted.expires_in_seconds
        expires_at = turn.now + timedelta(seconds=life) if life is not None else None
        token = Token(f"token_{secrets.token_hex(8)}", wanted.name, Role(wanted.role), wanted.tenant, expires_at, None)
        row = await store.create_token(turn.connection, token, digest(secret), asker.name)
    return m.CreatedToken(**_line(row).model_dump(), secret=secret)


@router.delete("/v1/tokens/{token}")
async def revoke_token(gate: Gate, asker: Asker, token: Annotated[str, Path(max_length=64)]) -> m.TokenLine:
    """Revoke a token, at once and for ever."""
    expect_role(asker, Role.ADMIN)
    async with gate.service.turn() as turn:
        row = await store.revoke_token(turn.connection, token, asker.only_tenant, asker.name)
    if row is None:
        raise not_found(f"token {token}", "see 'triplane tokens list' for the ids")
    return _line(row)


def _line(row: store.TokenRow) -> m.TokenLine:
    token = row.token
    return m.TokenLine(
        id=token.id,
        name=token.name,
        role=token.role.value,
        tenant=token.tenant,
        created_by=row.created_by,
        created_at=row.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
    )
