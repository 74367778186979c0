"""Small files that must never be half written or readable by others."""

import os
from contextlib import suppress
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


class LogReader:
    """Looks at what is new in a log that is appended to, and emptied at times."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: int | None = None

    def has_new(self, words: bytes) -> bool:
        """Return whether the words were written since the last look; the first look sees nothing."""
        with suppress(FileNotFoundError), self._path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            start, self._read = end if self._read is None else min(self._read, end), end
            log.seek(start)
            return words in log.read(end - start)
        return False


def open_log(path: Path) -> BinaryIO:
    """Open a log for appending, mode 0600 when it is new. Raises OSError."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
