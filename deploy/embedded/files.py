"""Small files that must never be half written or readable by others."""

import os
from pathlib import Path
from typing import BinaryIO


def write_private(path: Path, text: str) -> None:
    """Replace `path` by `text` in one step, mode 0600 from its first byte on. Raises OSError."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending, mode 0600 when it is new. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
