"""A clock that a test can put forward and back, for programs that ask the C library (Go asks the kernel)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
MISSING = "libfaketime is missing (apt-get install -y libfaketime)"


@dataclass(frozen=True)
class FakeClock:
    """The clock of all programs that are started with its environment; it goes at the true speed."""

    file: Path

    def environment(self) -> Mapping[str, str]:
        """Return what puts a program, and those it starts, under this clock."""
        self.ahead(0)
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def ahead(self, seconds: int) -> None:
        """Let it be so far ahead of the true time, or behind it."""
        self.file.write_text(f"{seconds:+d}\n", encoding="ascii")
        self.file.chmod(0o644)
