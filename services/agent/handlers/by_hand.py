"""What a person does on a node, past Triplane and without its agent: cancel a run."""

import os
import pwd
from collections.abc import Sequence
from typing import NamedTuple

from schemas.ids import RunName
from services.agent.settings import Settings
from services.agent.store.devices import DeclaredDevices
from services.agent.store.folder import RuntimeFolder
from services.agent.store.node import Node

USAGE = "usage: python -m services.agent cancel RUN   (RUN is the run's TRIPLANE_RUN)"


class Outcome(NamedTuple):
    """What to tell the person, and the exit code: 1 when no such run lives here, 2 for words that mean nothing."""

    text: str
    code: int


def by_hand(words: Sequence[str], settings: Settings) -> Outcome:
    """Do what the words ask for, with the rights of the node's agent. Raises OSError."""
    match words:
        case ["-h" | "--help", *_] | ["cancel", "-h" | "--help", *_]:
            return Outcome(USAGE, 0)
        case ["cancel", name]:
            return _cancel(RunName(name), settings)
        case _:
            return Outcome(USAGE, 2)


def person() -> str:
    """Return who asks: who became root to do so, where that is known."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def _cancel(name: RunName, settings: Settings) -> Outcome:
    boot = settings.boot_id_file.read_text(encoding="ascii").strip()
    folder = RuntimeFolder(settings.runtime_dir, boot)
    node = Node(folder, DeclaredDevices(()), None)
    told = [run.path.name for run in folder.of_run(name) if node.cancel(run, person())]
    return Outcome(f"told to end: {', '.join(told)}", 0) if told else Outcome(f"no run {name} lives here", 1)
