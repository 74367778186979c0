"""A stack of the demonstration's own, in a temporary directory, started and stopped the way a person does it."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded import credentials, ports
from deploy.embedded.credentials import Credentials
from deploy.embedded.demo import diary
from deploy.embedded.failures import StackError
from deploy.embedded.runtime import remove_runtime_folder
from deploy.embedded.servers.identity import own_identity
from deploy.embedded.servers.postgres import PostgresServer
from deploy.embedded.state import StateFolder


@dataclass(frozen=True, slots=True)
class Stage:
    """A stack that is up, and the folder its jobs work in."""

    folder: StateFolder
    working_folder: Path
    secret: Credentials
    address: str

    def postgres(self) -> PostgresServer:
        """Return the stack's Postgres, to read the books."""
        return PostgresServer(self.folder, ports.saved(self.folder)["postgres"], self.secret, own_identity())


@contextmanager
def set_up(fleet: Path, *, keep: bool) -> Iterator[Stage]:
    """Have a stack with this fleet inside and nothing of it afterwards; its state may be kept. Raises StackError."""
    above = Path(tempfile.mkdtemp(prefix="triplane-demo-"))
    above.chmod(0o711)  # jobs of a root's stack run as nobody
    folder, working_folder = StateFolder(above / "state"), above / "work"
    working_folder.mkdir()
    diary.lay_out(working_folder)
    try:
        _embedded("up", "--detach", "--fleet", str(fleet), "--state", str(folder.root))
        yield _stage(folder, working_folder)
    finally:
        _embedded("down", "--state", str(folder.root))
        remove_runtime_folder(folder)
        if not keep:
            shutil.rmtree(above, ignore_errors=True)


def _stage(folder: StateFolder, working_folder: Path) -> Stage:
    secret = credentials.load(folder)
    assert secret is not None, "a stack that is up has credentials"
    return Stage(folder, working_folder, secret, f"http://127.0.0.1:{ports.saved(folder)['gateway']}")


def _embedded(*arguments: str) -> None:
    command = [sys.executable, "-m", "deploy.embedded", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StackError((done.stderr or done.stdout).strip())
