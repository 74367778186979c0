"""Questions and answers between services and nodes: each way may be lost, late or doubled; who asks stops waiting."""

from collections.abc import Callable
from typing import Generic, TypeVar

from tests.simulation.timeline import Timeline
from tests.simulation.weather import Weather

A = TypeVar("A")
Reply = Callable[[A], None]


class _Question(Generic[A]):
    """A question that waits for its first answer."""

    def __init__(self, done: Callable[[A | None], None]) -> None:
        self._done: Callable[[A | None], None] | None = done

    def settle(self, answer: A | None) -> bool:
        """Take an answer, or None: there was none in time. Later ones change nothing."""
        done, self._done = self._done, None
        if done is not None:
            done(answer)
        return done is not None


class Network:
    """Carries questions."""

    def __init__(self, timeline: Timeline, weather: Weather, is_up: Callable[[], bool]) -> None:
        self._timeline, self._weather, self._is_up = timeline, weather, is_up

    def ask(
        self,
        answer: Callable[[Reply[A]], None],
        done: Callable[[A | None], None],
        *,
        timeout_seconds: float,
        slow: float = 0.02,
    ) -> None:
        """Bring a question to ``answer`` and what it replies to ``done``; None: no answer came in time, or none at all.

        ``slow``: how often a question or its answer is late.
        """
        question = _Question(done)

        def reply(said: A) -> None:
            if self._weather.strikes("garbage", 0.01):
                self._timeline.after(self._seconds(), lambda: question.settle(None))
            elif self._is_up() and not self._weather.strikes("call", 0.02):
                self._timeline.after(self._seconds(slow), lambda: question.settle(said))

        def arrive() -> bool:
            if self._is_up():
                answer(reply)
            return True

        if not self._weather.strikes("call", 0.02):
            self._timeline.after(self._seconds(slow), arrive)
        if self._weather.strikes("call", 0.03):
            self._timeline.after(self._seconds(slow), arrive)
        self._timeline.after(timeout_seconds, lambda: question.settle(None))

    def _seconds(self, slow: float = 0.02) -> float:
        if self._weather.strikes("call", slow):
            return self._weather.dice_of("call").choice((1.0, 4.0, 6.0, 20.0, 60.0))
        return 0.001 + 0.01 * self._weather.dice.random()
