"""Random users and passwords of one stack, made on its first start and kept in one file of mode 0600."""

import secrets
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.embedded.failures import StateRefusedError
from deploy.embedded.files import write_private
from deploy.embedded.state import StateFolder
from schemas.catalog import SERVICES

OPERATOR = "triplane"  # the user with all rights in NATS, Redis and Postgres: it furnishes them


class Credentials(BaseModel):
    """Passwords by user name, one set a server, and the token of the stack's administrator."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    nats: Mapping[str, str]
    redis: Mapping[str, str]
    postgres: Mapping[str, str]
    admin_token: str

    def __repr__(self) -> str:
        return "Credentials(hidden)"

    __str__ = __repr__


def kept_or_new(folder: StateFolder) -> Credentials:
    """Return the stack's credentials; users that had none get one. Raises StateRefusedError when the file is broken."""
    before = load(folder)
    credentials = Credentials(
        nats=_completed(before.nats if before else {}),
        redis=_completed(before.redis if before else {}),
        postgres=_completed(before.postgres if before else {}),
        admin_token=before.admin_token if before else secrets.token_urlsafe(32),
    )
    if credentials != before:
        write_private(folder.credentials_file, credentials.model_dump_json())
    return credentials


def load(folder: StateFolder) -> Credentials | None:
    """Return what was kept, or None before the first start. Raises StateRefusedError when the file is broken."""
    if not folder.credentials_file.exists():
        return None
    try:
        return Credentials.model_validate_json(folder.credentials_file.read_text())
    except ValidationError as error:
        raise StateRefusedError(f"{folder.credentials_file} is broken: {error.error_count()} errors.") from error


def _completed(before: Mapping[str, str]) -> dict[str, str]:
    return {user: before.get(user) or secrets.token_urlsafe(24) for user in (OPERATOR, *SERVICES)}
