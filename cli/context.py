"""What every command needs: the flags in front, and a client when it is first asked for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from libs.client.client import Client


@dataclass(frozen=True, slots=True)
class Flags:
    """--address and --token."""

    address: str | None = None
    token: str | None = None


def client(context: typer.Context) -> "Client":
    """Return a client of the gateway that is meant. Raises ConfigError. Imports late, so that others start fast."""
    from libs.client.client import Client
    from libs.client.config import find

    flags = context.obj
    assert isinstance(flags, Flags), flags
    return Client(find(flags.address, flags.token))
