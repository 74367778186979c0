"""A stop reaches a process before what that process waits for."""

import os
import signal
import subprocess
from pathlib import Path

from services.agent.shim import tree


def test_the_order_of_the_tree_stays_whatever_the_numbers() -> None:
    assert tree.in_order([907, 64, 12, 33], [12, 5, 907]) == [907, 64, 12, 33, 5]


def test_descendants_come_after_their_parents() -> None:
    script = "sh -c 'sleep 60 & echo; wait' & wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as run:
        assert run.stdout
        run.stdout.readline()
        found = tree.descendants()
        line = found[found.index(run.pid) :]
        parents = [tree.parent(Path("/proc") / str(pid)) for pid in line]
        os.killpg(run.pid, signal.SIGKILL)
    assert len(line) >= 3
    assert {parent in {os.getpid(), *line[:place]} for place, parent in enumerate(parents)} == {True}
