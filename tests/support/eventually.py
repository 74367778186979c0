"""Waiting for the outside world in tests: a deadline instead of a sleep."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast, overload

T = TypeVar("T")

LOOK_SECONDS = 0.02


@overload
async def eventually(check: Callable[[], Awaitable[T]], seconds: float = 30, *, every: float = LOOK_SECONDS) -> T: ...
@overload
async def eventually(check: Callable[[], T], seconds: float = 30, *, every: float = LOOK_SECONDS) -> T: ...
async def eventually(check: Callable[[], object], seconds: float = 30, *, every: float = LOOK_SECONDS) -> object:
    """Call `check`, plain or async, until it returns something true, and return that; `every` spares what it asks.

    An AssertionError inside it means "not yet". After `seconds` the last one is raised, or one that shows the value.
    """
    deadline = time.monotonic() + seconds
    while True:
        late = time.monotonic() >= deadline
        try:
            found = check()
            value = await cast("Awaitable[object]", found) if inspect.isawaitable(found) else found
            assert value or not late, f"still {value!r} after {seconds} s"
            if value:
                return value
        except AssertionError:
            if late:
                raise
        await asyncio.sleep(every)
