"""Random passwords of one installation, kept in its folder, so that writing again changes none."""

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.compose import folder
from schemas.catalog import SERVICES

OPERATOR: Final = "triplane"  # may do everything in NATS, Redis and Postgres; for people, not for services
STORED: Final = tuple(service for service in SERVICES if service != "agent")  # an agent remembers on its node
LEASING: Final = ("placement",)  # only the owner of grants touches leases
FILE: Final = "credentials.json"


class KeptCredentialsError(Exception):
    """The folder's credentials cannot be read; new ones would lock everybody out of what already stands."""


class Credentials(BaseModel):
    """Passwords by user, one set a server, and the administrator's token for the gateway."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    nats: Mapping[str, str]
    redis: Mapping[str, str]
    postgres: Mapping[str, str]
    admin_token: str

    def __repr__(self) -> str:
        return "Credentials(hidden)"

    __str__ = __repr__


def kept_or_new(root: Path) -> Credentials:
    """Return the folder's credentials; who had none gets one. Raises KeptCredentialsError, OSError."""
    before = _kept(root / FILE)
    credentials = Credentials(
        nats=_completed(SERVICES, before.nats if before else {}),
        redis=_completed(LEASING, before.redis if before else {}),
        postgres=_completed(STORED, before.postgres if before else {}),
        admin_token=before.admin_token if before else secrets.token_urlsafe(32),
    )
    if credentials != before:
        folder.write(root / FILE, credentials.model_dump_json(indent=1), folder.PRIVATE)
    return credentials


def _kept(file: Path) -> Credentials | None:
    if not file.exists():
        return None
    try:
        return Credentials.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise KeptCredentialsError(f"{file} is broken: {error.error_count()} errors") from error


def _completed(services: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    return {user: before.get(user) or secrets.token_urlsafe(24) for user in (OPERATOR, *services)}
