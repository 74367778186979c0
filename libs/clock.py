"""Time as a value that is passed in, so that tests and simulations can hold it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What tells the time: a wall clock in aware UTC, and a counter that never goes back."""

    def now(self) -> datetime:
        """Return the wall clock, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since an unknown start; never goes back."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the machine's wall clock in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        assert start.tzinfo is not None, start
        self._start = start.astimezone(UTC)
        self._elapsed = 0.0

    def now(self) -> datetime:
        """Return the start plus what was advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds advanced since the start."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Go forward by so many seconds."""
        assert seconds >= 0, seconds
        self._elapsed += seconds
