"""Room on the disk."""

import shutil
from pathlib import Path
from typing import Final

LEAST_BYTES: Final = 32 << 20  # a segment of Postgres' log, and as much again


def has_room(path: Path) -> bool:
    """Return whether a server could write there."""
    try:
        return shutil.disk_usage(path).free >= LEAST_BYTES
    except FileNotFoundError:
        return False
