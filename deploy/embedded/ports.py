"""Loopback ports: chosen once, kept across restarts, so that clients find their server again."""

import json
import secrets
import socket
from collections.abc import Iterable, Mapping

from deploy.embedded.failures import StackError
from deploy.embedded.files import write_private
from deploy.embedded.state import StateFolder

LOWEST, HIGHEST = 20_000, 32_000  # below the range from which the kernel takes ports of outgoing connections
TRIES = 200
HEALTH = "-health"  # the port of a service's health endpoints is settled under its name and this


def is_free(port: int) -> bool:
    """Return whether a server could listen on 127.0.0.1:port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def settle(folder: StateFolder, names: Iterable[str], fixed: Mapping[str, int]) -> dict[str, int]:
    """Give each name its port: the fixed one, else the one it had, else a free one; and remember these alone.

    Raises StackError when a fixed port is taken.
    """
    before = saved(folder)
    ports: dict[str, int] = {}
    for name in names:
        ports[name] = fixed[name] if name in fixed else _kept_or_new(before.get(name), ports.values())
        if name in fixed and not is_free(fixed[name]):
            raise StackError(f"Port {fixed[name]} for {name} is taken. Name another with --port-{name}.")
    write_private(folder.ports_file, json.dumps(ports))
    return ports


def saved(folder: StateFolder) -> dict[str, int]:
    """Return the ports that were settled before, by name."""
    if not folder.ports_file.exists():
        return {}
    ports: dict[str, int] = json.loads(folder.ports_file.read_text())
    return ports


def _kept_or_new(kept: int | None, taken: Iterable[int]) -> int:
    if kept is not None and kept not in taken and is_free(kept):
        return kept
    return _new(set(taken))


def _new(taken: set[int]) -> int:
    for _ in range(TRIES):
        port = secrets.choice(range(LOWEST, HIGHEST))
        if port not in taken and is_free(port):
            return port
    raise StackError(f"No free port between {LOWEST} and {HIGHEST} on 127.0.0.1 after {TRIES} tries.")
