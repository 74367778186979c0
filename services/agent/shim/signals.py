"""Waiting for files and signals together."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False  # typing costs 5 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType


class Signals:
    """SIGTERM and SIGCHLD as things to wait for."""

    def __init__(self) -> None:
        self.stop = False
        self.fd, write = os.pipe()
        for end in (self.fd, write):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGCHLD, _on_child)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.stop = True

    def wait(self, seconds: float | None, fds: Iterable[int] = ()) -> list[int]:
        """Return those of the fds that can be read; earlier with none after a signal, at the latest after seconds."""
        poll = select.poll()
        for fd in (self.fd, *fds):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(None if seconds is None else max(0.0, seconds) * 1000)]
        if self.fd in ready:
            os.read(self.fd, 4096)
        return [fd for fd in ready if fd != self.fd]


def _on_child(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: the wake-up is what counts."""
