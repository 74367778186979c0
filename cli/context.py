"""What every command needs: the flags in front, and a client when it is first asked for."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from cli import exits
from cli.exits import CommandError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from libs.client.client import Client

    M = TypeVar("M", bound=BaseModel)


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


def worded(kind: "type[M]", **said: str | bool | None) -> "M":
    """Return a wish of what the flags say. Raises CommandError naming the flags that hold no line of text."""
    from pydantic import ValidationError

    try:
        return kind.model_validate(said)
    except ValidationError as error:
        flags = sorted({f"--{fault['loc'][0]}" for fault in error.errors()})
        what = f"{' and '.join(flags)} {'is' if len(flags) == 1 else 'are'} empty or no line of text"
        raise CommandError(exits.BAD_INPUT, what, "write a line of at most 500 characters") from error
