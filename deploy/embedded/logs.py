"""Logs that do not fill the disk: what grows too large is copied aside and emptied in place."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

KEPT = 2  # older pieces: .1 is the newest of them


def rotate(path: Path, most_bytes: int) -> bool:
    """Put a log that has grown beyond `most_bytes` aside; its writers append and notice nothing.

    Lines written during the copy may be lost. Returns whether it was done. Raises OSError.
    """
    if path.stat().st_size <= most_bytes:
        return False
    for number in range(KEPT, 1, -1):
        younger = _piece(path, number - 1)
        if younger.exists():
            younger.replace(_piece(path, number))
    shutil.copy2(path, _piece(path, 1))
    with path.open("r+b") as file:
        file.truncate(0)
    return True


async def rotate_all(folder: Path, most_bytes: int, look_seconds: float) -> None:
    """Keep the logs of a folder below their bound, for ever."""
    while True:
        for path in folder.glob("*.log"):
            with suppress(OSError):  # no room for the copy: it stays as it is until there is
                rotate(path, most_bytes)
        await asyncio.sleep(look_seconds)


def _piece(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
