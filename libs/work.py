"""Loops: work that is done at the start, every so often, and at once when it is woken."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final

from libs.errors import TransientError
from libs.log import get_logger
from libs.telemetry.telemetry import Telemetry, unread
from libs.telemetry.traces import Kind

CANCEL_SECONDS: Final = 0.2
FIRST_PAUSE_SECONDS: Final = 0.2
LAST_PAUSE_SECONDS: Final = 30.0
log = get_logger(__name__)


class Wake:
    """Wakes one loop, now or as soon as its present round is over. Calling it wakes too."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Let the loop's next round begin without waiting."""
        self._event.set()

    def __call__(self) -> None:
        """Wake."""
        self.wake()

    async def wait(self, seconds: float) -> None:
        """Wait until woken, or so many seconds; forget the wake-up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


async def cancelled(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel tasks until they have ended; what they end with is dropped.

    More than once: ``wait_for`` of Python 3.11 loses a cancellation that comes together with its result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_SECONDS)
        await asyncio.gather(*done, return_exceptions=True)


async def _round(work: Callable[[], Awaitable[None]]) -> None:
    await work()


async def repeat(
    name: str,
    work: Callable[[], Awaitable[None]],
    *,
    every: float,
    wake: Wake,
    telemetry: Telemetry | None = None,
) -> None:
    """Do the work for ever. A TransientError is tried again after a growing pause; anything else is raised."""
    pause, told = FIRST_PAUSE_SECONDS, telemetry or unread()
    seconds = told.meters.loop_seconds.labels(name)
    while True:
        try:
            with seconds.time(), told.tracer.activity(name, Kind.INTERNAL):
                await told.meters.spending(f"loop {name}", _round(work))
        except TransientError as error:
            log.warning("loop waits", loop=name, why=str(error), retry_seconds=min(pause, every))
            told.meters.loop_errors.labels(name).inc()
            await wake.wait(min(pause, every))
            pause = min(pause * 2, LAST_PAUSE_SECONDS)
        else:
            pause = FIRST_PAUSE_SECONDS
            await wake.wait(every)
