"""Under which user PostgreSQL runs: it refuses to be root."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from deploy.embedded.children import NOBODY, Program, user_arguments
from deploy.embedded.failures import StackError

MAPPED = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--")


class Kind(Enum):
    """How a program becomes somebody who is not root."""

    SELF = "self"  # we are an ordinary user already
    MAPPED = "mapped"  # nobody inside a user namespace; files stay ours, folders stay 0700
    NOBODY = "nobody"  # the real user nobody; the folders above must let it pass


@dataclass(frozen=True, slots=True)
class Identity:
    """Runs programs, and hands over files, as its kind says."""

    kind: Kind

    def program(
        self, arguments: Sequence[str], *, working_folder: Path, stop_signal: signal.Signals = signal.SIGTERM
    ) -> Program:
        """Return how to run the arguments."""
        prefix = MAPPED if self.kind is Kind.MAPPED else ()
        user = NOBODY if self.kind is Kind.NOBODY else None
        return Program([*prefix, *arguments], user=user, stop_signal=stop_signal, working_folder=working_folder)

    async def output_of(self, program: Program) -> tuple[int, str]:
        """Run it to its end; return exit code and output."""
        return await asyncio.to_thread(_output_of, program)

    def open_path(self, root: Path) -> None:
        """Let the user pass through the state directory. Raises StackError when a folder above is closed."""
        if self.kind is not Kind.NOBODY:
            return
        root.chmod(0o711)
        closed = next((folder for folder in root.parents if not folder.stat().st_mode & 0o001), None)
        if closed:
            raise StackError(
                f"User nobody cannot pass through {closed}. Name a state directory elsewhere with --state."
            )

    def own(self, path: Path) -> None:
        """Give the path, and all below it, to the user that will use it."""
        user = NOBODY if self.kind is Kind.NOBODY else os.geteuid()
        if path.stat().st_uid == user:
            return
        for each in (path, *path.rglob("*")):
            os.chown(each, user, user, follow_symlinks=False)


def own_identity() -> Identity:
    """Return the best kind this machine allows."""
    if os.geteuid() != 0:
        return Identity(Kind.SELF)
    return Identity(Kind.MAPPED if user_namespaces_work() else Kind.NOBODY)


def user_namespaces_work() -> bool:
    """Return whether a program can be run as nobody in a user namespace here."""
    if shutil.which(MAPPED[0]) is None:
        return False
    return subprocess.run([*MAPPED, "true"], capture_output=True, check=False).returncode == 0


def _output_of(program: Program) -> tuple[int, str]:
    done = subprocess.run(
        list(program.arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=program.working_folder,
        text=True,
        check=False,
        **user_arguments(program.user),
    )
    return done.returncode, done.stdout
