"""Who may do what: four roles, each with all of the ones before it, on one tenant or on the whole fleet."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

FLEET: Final = "*"


class Role(StrEnum):
    """From the least to the most."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"


_RANK: Final = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: a token's id and name, its role, and its tenant (``*``: the whole fleet)."""

    token: str
    name: str
    role: Role
    tenant: str

    @property
    def is_fleet_wide(self) -> bool:
        """Every tenant is theirs."""
        return self.tenant == FLEET

    @property
    def only_tenant(self) -> str | None:
        """The one tenant whose things they see; None: all."""
        return None if self.is_fleet_wide else self.tenant

    def is_at_least(self, role: Role) -> bool:
        """The role is theirs or below theirs."""
        return _RANK[self.role] >= _RANK[role]

    def reaches(self, tenant: str) -> bool:
        """The tenant is theirs."""
        return self.is_fleet_wide or self.tenant == tenant

    def may_give(self, role: Role, tenant: str) -> bool:
        """Nobody gives more than they have."""
        return self.is_at_least(Role.ADMIN) and self.is_at_least(role) and self.reaches(tenant)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept: its secret only as a digest."""

    id: str
    name: str
    role: Role
    tenant: str
    expires_at: datetime | None
    revoked_at: datetime | None

    def principal(self, now: datetime) -> Principal | None:
        """Return who holds it; None when it is revoked or expired."""
        if self.revoked_at is not None or (self.expires_at is not None and self.expires_at <= now):
            return None
        return Principal(self.id, self.name, self.role, self.tenant)


def digest(secret: str) -> bytes:
    """Return what is kept of a secret. Secrets are 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()
