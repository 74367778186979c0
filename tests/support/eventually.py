"""Waiting for the outside world in tests: a deadline instead of a sleep."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_SECONDS = 0.02


async def eventually(check: Callable[[], T | Awaitable[T]], seconds: float = 10) -> T:
    """Call `check` until it returns something true and return that.

    An AssertionError inside it means "not yet". After `seconds` the last AssertionError is raised, or one that shows
    the last value.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() >= deadline
        try:
            value = check()
            value = await value if inspect.isawaitable(value) else value
        except AssertionError:
            if late:
                raise
        else:
            if value or late:
                assert value, f"still {value!r} after {seconds} s"
                return value
        await asyncio.sleep(LOOK_SECONDS)
