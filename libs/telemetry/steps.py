"""Processor time of one piece of work among the tasks of a thread."""

import time
from collections.abc import Callable, Coroutine, Generator
from random import random
from typing import Any, Final, TypeVar

T = TypeVar("T")
LOOKED_AT: Final = 0.05  # of all steps, by chance: asking the clock twice takes longer than many a step


class Steps(Generator[Any, Any, T]):
    """Await it for what the work returns; ``seconds`` is the time of its own steps, not of what runs between them.

    One step in twenty is looked at and stands for all: right for many works of a kind together, not for one.
    What the work starts as tasks of their own is not counted.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.seconds = 0.0
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        """Be awaited."""
        return self

    def __next__(self) -> Any:
        """Let the work go on."""
        return self._step(self._work.send, None)

    def send(self, value: Any) -> Any:
        """Let the work go on."""
        return self._step(self._work.send, value)

    def throw(self, *error: Any) -> Any:
        """Let the work go on with an error."""
        return self._step(self._work.throw, error[0] if len(error) == 1 else error[1])

    def _step(self, go_on: Callable[[Any], Any], what: Any) -> Any:
        if random() >= LOOKED_AT:  # noqa: S311 - chance, not a secret
            return go_on(what)
        began = time.thread_time()
        try:
            return go_on(what)
        finally:
            self.seconds += (time.thread_time() - began) / LOOKED_AT
