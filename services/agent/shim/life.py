"""A run from its first process until no descendant is left."""

from __future__ import annotations

import os
import signal
import time

from services.agent.shim.files import read
from services.agent.shim.output import Output
from services.agent.shim.tree import become, populated, signal_tree

TYPE_CHECKING = False  # typing costs 5 ms at every start
if TYPE_CHECKING:
    from typing import Any

    from services.agent.shim.signals import Signals

LEFTOVER_SECONDS = 2.0  # daemons that a finished command leaves behind get this long after SIGTERM
KILL_SECONDS = 0.02  # between two rounds of SIGKILL, doubled up to a second: something in state D may take for ever


class Life:
    """The processes of one run. ``failure`` says why a command could not be started."""

    def __init__(self, order: dict[str, Any], signals: Signals) -> None:
        self.order, self.signals = order, signals
        self.timed_out = self.stopped = self.ending = False
        self.failure: str | None = None
        self.cancelled_by: str | None = None
        self.ranks: dict[int, int] = {}
        self.exits: dict[int, int] = {}
        self.outputs: list[Output] = []
        self.starting: list[int] = []
        self.started = time.monotonic()
        self.kill_at, self.pause = 0.0, KILL_SECONDS

    def live(self, witnesses: list[int]) -> None:
        """Start every replica and return when the last descendant is reaped."""
        self.started = time.monotonic()
        for replica in self.order["replicas"]:
            self._start(replica, witnesses)
        while not self._over():
            self._advance(time.monotonic())
            self._hear(self._until_next())
        for fd in list(self.starting):
            self._hear_start(fd)
        for output in self.outputs:
            while output.pump():
                pass

    def record(self) -> list[dict[str, int | None]]:
        """Return how each replica ended, by rank."""
        ended = ((rank, self.exits.get(pid)) for pid, rank in self.ranks.items())
        return [
            {"rank": rank, "exit_code": code, "signal": None}
            if code is None or code >= 0
            else {"rank": rank, "exit_code": None, "signal": -code}
            for rank, code in sorted(ended)
        ]

    def _start(self, replica: dict[str, Any], witnesses: list[int]) -> None:
        output = Output(f"output-{replica['rank']}", self.order["log_bytes"], self.order["owner"])
        failed, tell = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a child must not lose one to our handler
        pid = os.fork()
        if pid == 0:
            become(self.order, replica, output.write_end, witnesses, tell)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        for end in (tell, output.write_end):
            os.close(end)
        self.outputs.append(output)
        self.starting.append(failed)
        self.ranks[pid] = replica["rank"]

    def _hear_start(self, fd: int) -> None:
        """Learn why a command could not be started; the end of the pipe alone means that it was."""
        self.failure = os.read(fd, 1000).decode(errors="replace") or self.failure
        self.starting.remove(fd)
        os.close(fd)

    def _over(self) -> bool:
        """Reap what ended; True when no child is left and the control group is empty."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid in self.ranks:  # the first of this pid: an orphan may get the same one later
                    self.exits.setdefault(pid, os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            return not populated(self.order["cgroup"])

    def _advance(self, now: float) -> None:
        if not self.ending:
            self._look_for_an_end(now)
        elif now >= self.kill_at:
            signal_tree(signal.SIGKILL, self.order["cgroup"])
            self.kill_at, self.pause = now + self.pause, min(1.0, self.pause * 2)

    def _look_for_an_end(self, now: float) -> None:
        grace, limit = float(self.order["grace_seconds"]), self.order["time_limit_seconds"]
        if len(self.exits) == len(self.ranks):
            self._end(now, LEFTOVER_SECONDS)
        elif self.failure or any(self.exits.values()):
            self._end(now, grace)
        elif self.signals.stop:
            asked = asked_stop()
            self.stopped, self.cancelled_by = True, asked.get("cancelled_by")
            self._end(now, float(asked.get("grace_seconds", grace)))
        elif limit and now - self.started >= limit:
            self.timed_out = True
            self._end(now, grace)

    def _end(self, now: float, grace: float) -> None:
        self.ending, self.kill_at = True, now + grace
        signal_tree(signal.SIGTERM, self.order["cgroup"])

    def _until_next(self) -> float | None:
        limit = self.order["time_limit_seconds"]
        if self.ending:
            return min(1.0, self.kill_at - time.monotonic())
        return self.started + limit - time.monotonic() if limit else None

    def _hear(self, seconds: float | None) -> None:
        outputs = {output.read_end: output for output in self.outputs if output.open}
        for fd in self.signals.wait(seconds, [*outputs, *self.starting]):
            if fd in outputs:
                outputs[fd].pump()
            else:
                self._hear_start(fd)


def asked_stop() -> dict[str, Any]:
    """Return what came with the stop; nothing when that cannot be read."""
    try:
        return dict(read("stop.json"))
    except (OSError, ValueError, TypeError):
        return {}
