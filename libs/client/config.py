"""Where the gateway is and with which token to ask: flags, environment, files, in this order.

1. what is given; 2. ``$TRIPLANE_ADDRESS`` and ``$TRIPLANE_TOKEN``; 3. the file ``$TRIPLANE_CONFIG``;
4. ``client.yaml`` of the stack in ``$TRIPLANE_STATE``; 5. ``~/.config/triplane/config.yaml``;
6. ``client.yaml`` of the stack that was last brought up here. Address and token come from one place, unless both are
given one by one.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml

from libs.client.errors import ConfigError
from schemas.trace import parse

CLIENT_FILE: Final = "client.yaml"
_HOW: Final = "start a stack with 'triplane up', or set --address and --token"


@dataclass(frozen=True, slots=True)
class Access:
    """Where and as whom to ask. ``source`` says where it was found; ``traceparent`` is of the asker's own trace."""

    address: str
    token: str
    source: str
    traceparent: str | None = None

    def __repr__(self) -> str:
        return f"Access(address={self.address!r}, token=hidden, source={self.source!r})"


def find(address: str | None, token: str | None, environment: Mapping[str, str] = os.environ) -> Access:
    """Return where and as whom to ask. Raises ConfigError."""
    address = _given("--address", address) or environment.get("TRIPLANE_ADDRESS")
    token = _given("--token", token) or environment.get("TRIPLANE_TOKEN")
    within = parse(environment.get("TRACEPARENT"))
    traceparent = within.traceparent if within else None
    if address and token:
        return Access(_checked(address), _sayable(token), "flags and environment", traceparent)
    path = next((path for path in _files(environment) if path.exists()), None)
    if path is None:
        missing = "address" if not address else "token"
        raise ConfigError(f"no {missing} of a gateway is set", _HOW)
    kept = read(path)
    return Access(_checked(address or kept.address), _sayable(token or kept.token), str(path), traceparent)


def _given(flag: str, said: str | None) -> str | None:
    if said == "":
        raise ConfigError(f"{flag} is empty", "leave it out to ask as the one whom the configuration names")
    return said


def _checked(address: str) -> str:
    if not address.startswith(("http://", "https://")) or not _has_place(address):
        raise ConfigError(f"{address} is no address of a gateway", "write it such as http://127.0.0.1:8080")
    return address.rstrip("/")


def _has_place(address: str) -> bool:
    try:
        place = urlsplit(address)
        return bool(place.hostname) and place.port != 0
    except ValueError:  # of the port, or of brackets
        return False


def _sayable(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise ConfigError("the token holds a character that no token has", "copy it again, without quotes or line ends")
    return token


def read(path: Path) -> Access:
    """Return what a file says. Raises ConfigError when it is broken, or others may read its token."""
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"others can read the token in {path}", f"chmod 600 {path}")
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} can not be read ({type(error).__name__})", "mend it or take it away") from error
    fields = values if isinstance(values, dict) else {}
    address, token = fields.get("address"), fields.get("token")
    if not isinstance(address, str) or not isinstance(token, str):
        raise ConfigError(f"{path} lacks address or token", "write 'address: http://…' and 'token: …'")
    return Access(address, token, str(path))


def remember_state(state: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Note which stack was brought up here last, so that the client finds it. Raises OSError."""
    pointer = _pointer(environment)
    pointer.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    pointer.write_text(f"{state.absolute()}\n")


def _files(environment: Mapping[str, str]) -> Iterator[Path]:
    if named := environment.get("TRIPLANE_CONFIG"):
        yield _existing(Path(named))
    if state := environment.get("TRIPLANE_STATE"):
        yield Path(state) / CLIENT_FILE
    yield _home(environment, "XDG_CONFIG_HOME", ".config") / "triplane" / "config.yaml"
    pointer = _pointer(environment)
    if pointer.exists():
        yield Path(pointer.read_text().strip()) / CLIENT_FILE
    yield _home(environment, "XDG_STATE_HOME", ".local/state") / "triplane" / CLIENT_FILE


def _existing(path: Path) -> Path:
    if not path.exists():
        raise ConfigError(f"$TRIPLANE_CONFIG names {path}, which is not there", "unset it or write the file")
    return path


def _pointer(environment: Mapping[str, str]) -> Path:
    return _home(environment, "XDG_CONFIG_HOME", ".config") / "triplane" / "last-state"


def _home(environment: Mapping[str, str], variable: str, default: str) -> Path:
    return Path(environment.get(variable) or Path(environment.get("HOME") or Path.home()) / default)
