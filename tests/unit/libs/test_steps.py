"""Processor time of work that takes turns with other work."""

import asyncio
import time

import pytest

from libs.telemetry.steps import Steps


def burn(seconds: float) -> None:
    """Use the processor of this thread for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def working(seconds: float, pauses: int = 1) -> str:
    for _ in range(pauses):
        burn(seconds / pauses)
        await asyncio.sleep(0)
    return "done"


async def test_only_the_steps_of_the_work_itself_count() -> None:
    steps = Steps(working(0.1, pauses=2_000))  # one in twenty is looked at: off by 10 % once in three times
    other = asyncio.ensure_future(working(0.4, pauses=2_000))
    assert await steps == "done"
    await other
    assert 0.05 < steps.seconds < 0.3


async def test_an_error_passes_and_what_was_spent_before_it_counts() -> None:
    async def failing() -> None:
        await working(0.1, pauses=2_000)
        raise KeyError("why")

    steps = Steps(failing())
    with pytest.raises(KeyError, match="why"):
        await steps
    assert steps.seconds > 0.03


async def test_a_cancellation_reaches_the_work() -> None:
    ended: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("yes")

    async def around() -> None:
        await Steps(waiting())

    task = asyncio.ensure_future(around())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["yes"]
