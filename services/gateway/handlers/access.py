"""Who asks: a bearer token, looked up on every call."""

from dataclasses import dataclass
from typing import Annotated, TypeVar, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel

from libs import questions
from libs.pg.pool import Pool, translated
from libs.service import Service
from schemas.ids import is_token
from services.gateway.core.access import Principal, Role, digest
from services.gateway.handlers.events import Hub
from services.gateway.handlers.problems import ProblemError, denied, not_found
from services.gateway.settings import Settings
from services.gateway.store import people

A = TypeVar("A", bound=BaseModel)
_LOG_IN = "set a token: --token, $TRIPLANE_TOKEN or the config file"


@dataclass(frozen=True, slots=True)
class Gateway:
    """What every request works with."""

    service: Service
    settings: Settings
    hub: Hub

    @property
    def pool(self) -> Pool:
        """The gateway's tables."""
        return self.service.pool

    async def ask(self, subject: str, question: BaseModel, answer: type[A]) -> A:
        """Return what another service says. Raises UnavailableError also for what is no answer, and RefusedError."""
        body = await self.service.call(subject, question, timeout=self.settings.call_seconds)
        return questions.answer(answer, body, subject)


def gateway(request: Request) -> Gateway:
    """Return the gateway that serves this request."""
    return cast("Gateway", request.app.state.gateway)


Gate = Annotated[Gateway, Depends(gateway)]
_bearer = HTTPBearer(auto_error=False, description="A token, as `triplane tokens create` shows it once.")


async def asker(
    request: Request, gate: Gate, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """Return who asks. Raises the problem of a token that opens nothing, or of a NUL in the address."""
    if any("\x00" in text for text in (*request.path_params.values(), *request.query_params.values())):
        raise ProblemError(422, "bad-input", "the address holds a NUL character", remedy="take it out")
    if credentials is None:
        raise ProblemError(401, "no-token", "this call needs a bearer token", remedy=_LOG_IN)
    with translated():
        found = await people.holder(gate.pool, digest(credentials.credentials))
    if found is None:
        raise ProblemError(401, "unknown-token", "nobody has this token", remedy=_LOG_IN)
    token, now = found
    principal = token.principal(now)
    if principal is None:
        raise ProblemError(401, "dead-token", f"token {token.name} is revoked or expired", remedy="ask for a new one")
    return principal


Asker = Annotated[Principal, Depends(asker)]


def expect_role(principal: Principal, role: Role) -> None:
    """Raise the problem of an asker below this role."""
    if not principal.is_at_least(role):
        detail = f"token {principal.name} is a {principal.role}; this needs {role} or more"
        raise denied(detail, f"use a token with role {role}")


def expect_fleet(principal: Principal, role: Role) -> None:
    """Raise the problem of an asker below this role, or whose token is of one tenant alone."""
    expect_role(principal, role)
    if not principal.is_fleet_wide:
        detail = f"token {principal.name} is of tenant {principal.tenant}; this concerns the whole fleet"
        raise denied(detail, "use a fleet-wide token (tenant *)")


def expect_id(what: str, text: str, remedy: str) -> None:
    """Raise the problem of something that can not be there, since this is no id."""
    if not is_token(text):
        raise not_found(f"{what} {text}", remedy)


def tenant_asked(principal: Principal, asked: str | None) -> str | None:
    """Return whose things to show: the asker's own tenant, the one asked for, or all (None). Raises ProblemError."""
    if asked is not None and not is_token(asked):
        raise ProblemError(422, "bad-input", "this names no tenant", field="tenant", remedy="see 'triplane tenants'")
    if asked is not None and not principal.reaches(asked):
        raise denied(f"token {principal.name} is of tenant {principal.tenant}, not {asked}", "leave the tenant out")
    return asked if asked is not None else principal.only_tenant
