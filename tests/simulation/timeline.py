"""Virtual time: what is to happen, and when. Nothing waits, and the same seed tells the same story."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Final

START: Final = datetime(2026, 3, 1, tzinfo=UTC)
Action = Callable[[], bool]
"""Does something; False: there was nothing to do any more, and it counts as no step."""


class Timeline:
    """The world's time in seconds, known to nobody in it."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Action]] = []
        self._numbers = count()

    def at(self, time: float, action: Action) -> None:
        """Do something at a time, or now if that is past."""
        heapq.heappush(self._due, (max(time, self.now), next(self._numbers), action))

    def after(self, seconds: float, action: Action) -> None:
        """Do something so many seconds from now."""
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), action))

    def step(self) -> bool:
        """Go to the next thing and do it. Return whether it was a step."""
        self.now, _, action = heapq.heappop(self._due)
        return action()


class SkewedClock:
    """The clock of one machine: as fast as the world's, but not set to it."""

    def __init__(self, timeline: Timeline, skew_seconds: float) -> None:
        self._timeline = timeline
        self._start = START + timedelta(seconds=skew_seconds)

    def now(self) -> datetime:
        """Return what the machine's clock says."""
        return self._start + timedelta(seconds=self._timeline.now)

    def monotonic(self) -> float:
        """Return seconds that pass alike everywhere."""
        return self._timeline.now
