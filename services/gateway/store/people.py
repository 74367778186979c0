"""Tenants and tokens."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from libs.pg.pool import Connection, Pool, Record
from services.gateway.core.access import FLEET, Role, Token


@dataclass(frozen=True, slots=True)
class TenantRow:
    """A tenant."""

    name: str
    created_by: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token and its story."""

    token: Token
    created_by: str
    created_at: datetime
    revoked_by: str | None


async def holder(pool: Pool, digest: bytes) -> tuple[Token, datetime] | None:
    """Return the token with this digest and the database's time, or None."""
    row = await pool.fetchrow(_HOLDER, digest)
    return (_token(row), row["now"]) if row else None


async def create_tenant(connection: Connection, name: str, created_by: str) -> bool:
    """Add a tenant; return whether it is new."""
    return await connection.fetchval(_ADD_TENANT, name, created_by) is not None


async def tenants(pool: Pool, only: str | None) -> list[TenantRow]:
    """Return the tenants by name; ``only``: just this one."""
    return [TenantRow(**row) for row in await pool.fetch(_TENANTS, only)]


async def tenant_names(connection: Connection) -> frozenset[str]:
    """Return the names of all tenants."""
    return frozenset(row["name"] for row in await connection.fetch("SELECT name FROM tenant"))


async def create_token(connection: Connection, token: Token, digest: bytes, created_by: str) -> TokenRow:
    """Keep a token by the digest of its secret."""
    row = await connection.fetchrow(
        _ADD, token.id, digest, token.name, token.role, token.tenant, created_by, token.expires_at
    )
    assert row is not None, token.id
    return _token_row(row)


async def tokens(pool: Pool, tenant: str | None) -> list[TokenRow]:
    """Return the tokens of a tenant (None: all), newest first, at most 1,000."""
    return [_token_row(row) for row in await pool.fetch(_TOKENS, tenant)]


async def revoke_token(connection: Connection, token: str, tenant: str | None, revoked_by: str) -> TokenRow | None:
    """Revoke a token for ever; revoking it again changes nothing. None: there is no such token of that tenant."""
    row = await connection.fetchrow(_REVOKE, token, tenant, revoked_by)
    return _token_row(row) if row else None


async def ensure_administrator(connection: Connection, token: str, digest: bytes, tenant: str) -> None:
    """Let the installation's own token stand, alone, with all rights, and the default tenant be there."""
    await connection.execute(_ADMINISTRATOR, token, digest, Role.ADMIN, FLEET)
    await create_tenant(connection, tenant, token)


def _token(row: Record) -> Token:
    return Token(row["id"], row["name"], Role(row["role"]), row["tenant"], row["expires_at"], row["revoked_at"])


def _token_row(row: Record) -> TokenRow:
    return TokenRow(_token(row), row["created_by"], row["created_at"], row["revoked_by"])


_HOLDER: Final = """
SELECT id, name, role, tenant, expires_at, revoked_at, now() AS now FROM token WHERE digest = $1
"""
_ADD_TENANT: Final = """
INSERT INTO tenant (name, created_by) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING RETURNING name
"""
_TENANTS: Final = """
SELECT name, created_by, created_at FROM tenant WHERE $1::text IS NULL OR name = $1 ORDER BY name
"""
_ADD: Final = """
INSERT INTO token (id, digest, name, role, tenant, created_by, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING id, name, role, tenant, created_by, created_at, expires_at, revoked_at, revoked_by
"""
_TOKENS: Final = """
SELECT id, name, role, tenant, created_by, created_at, expires_at, revoked_at, revoked_by FROM token
WHERE $1::text IS NULL OR tenant = $1 ORDER BY created_at DESC, id LIMIT 1000
"""
_REVOKE: Final = """
UPDATE token SET revoked_at = coalesce(revoked_at, now()), revoked_by = coalesce(revoked_by, $3)
WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)
RETURNING id, name, role, tenant, created_by, created_at, expires_at, revoked_at, revoked_by
"""
_ADMINISTRATOR: Final = """
INSERT INTO token (id, digest, name, role, tenant, created_by) VALUES ($1, $2, $1, $3, $4, $1)
ON CONFLICT (id) DO UPDATE SET digest = excluded.digest, revoked_at = NULL, revoked_by = NULL
"""
