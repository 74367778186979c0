"""A tree that is hard to end: so many children, half of them daemons by double fork, a third deaf to SIGTERM.

``python -m`` is not needed: run it as a file with the number, and ``forever`` to go on forking.
"""

import contextlib
import os
import signal
import sys


def grow(count: int, *, forever: bool) -> None:
    """Fork the children and say so; then wait to be ended, or go on forking."""
    for number in range(count):
        if os.fork() == 0:
            _child(number)
    os.write(1, b"ready\n")
    while forever:
        if os.fork() == 0:
            _child(1)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    signal.pause()


def _child(number: int) -> None:
    if number % 3 == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if number % 2 == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
    while True:
        signal.pause()


if __name__ == "__main__":
    grow(int(sys.argv[1]), forever="forever" in sys.argv)
