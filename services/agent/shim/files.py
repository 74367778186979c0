"""The JSON files of a run folder, and the time of day in them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

TYPE_CHECKING = False  # typing costs 5 ms at every start
if TYPE_CHECKING:
    from typing import Any


def read(path: str | Path) -> Any:
    """Return a JSON file. Raises OSError, ValueError."""
    return json.loads(Path(path).read_bytes())


def write(path: str | Path, value: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all, only for its owner; of several writers the last wins. Raises OSError."""
    temporary = Path(path).with_name(f".{Path(path).name}.{os.urandom(8).hex()}")  # its own, whoever else is writing
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def timestamp() -> str:
    """Return the time of day, UTC, to the microsecond."""
    now = time.time_ns()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now // 10**9))}.{now // 1000 % 10**6:06d}Z"
