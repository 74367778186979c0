"""Waiting for the outside world, never longer than said."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable

LOOK_SECONDS = 0.02  # between two looks


async def within(seconds: float, true: Callable[[], bool]) -> bool:
    """Look until `true()` or until the seconds are over; return what was seen last."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


async def ended(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a child of ours without polling; return its exit code."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await _readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


async def _readable(descriptor: int) -> None:
    loop, seen = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, seen.set)
    try:
        await seen.wait()
    finally:
        loop.remove_reader(descriptor)
