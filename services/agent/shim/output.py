"""What a replica writes, kept within bounds."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class Output:
    """The newest ``limit`` bytes of one output stream, in at most two files named by their first byte's offset."""

    def __init__(self, name: str, limit: int, owner: list[int] | None) -> None:
        self.name, self.half, self.offset, self.size = name, max(1, limit // 2), 0, 0
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        if owner:
            os.fchown(self.write_end, *owner)  # or the user could not open /dev/stdout
        self.open = True
        self.file = self._next_file()

    def pump(self) -> bool:
        """Move what is there into the file; False when there was nothing. Output that has no room is dropped."""
        try:
            data = os.read(self.read_end, 65536)
        except BlockingIOError:
            return False
        self.open = bool(data)
        self._write(data)
        return self.open

    def _write(self, data: bytes) -> None:
        try:
            if self.size >= self.half:
                self._rotate()
            self.size += os.write(self.file, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                raise

    def _rotate(self) -> None:
        os.close(self.file)
        for old in Path().glob(f"{self.name}.*"):
            if int(old.suffix[1:]) < self.offset:
                old.unlink()
        self.offset, self.size = self.offset + self.size, 0
        self.file = self._next_file()

    def _next_file(self) -> int:
        return os.open(f"{self.name}.{self.offset}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
