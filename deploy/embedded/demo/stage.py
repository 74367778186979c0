"""A stack of the demonstration's own, in a temporary directory, started and stopped the way a person does it."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded import credentials, detached, ports
from deploy.embedded.children import leash
from deploy.embedded.credentials import OPERATOR, Credentials
from deploy.embedded.demo import diary
from deploy.embedded.down import down
from deploy.embedded.failures import StackError
from deploy.embedded.gateway import address_of
from deploy.embedded.runtime import remove_runtime_folder
from deploy.embedded.servers.identity import own_identity
from deploy.embedded.servers.postgres import PostgresServer
from deploy.embedded.state import StateFolder, open_state


@dataclass(frozen=True, slots=True)
class Stage:
    """A stack that is up, and the folder its jobs work in."""

    folder: StateFolder
    working_folder: Path
    secret: Credentials
    address: str

    def redis_url(self) -> str:
        """Return where the stack's leases are, for somebody who may read them all. It holds a password."""
        port = ports.saved(self.folder)["redis"]
        return f"redis://{OPERATOR}:{self.secret.redis[OPERATOR]}@127.0.0.1:{port}/0"

    def postgres(self) -> PostgresServer:
        """Return the stack's Postgres, to read the books."""
        return PostgresServer(self.folder, ports.saved(self.folder)["postgres"], self.secret, own_identity())


@contextmanager
def set_up_text(fleet: str, *arguments: str) -> Iterator[Stage]:
    """The same, of a fleet that is no file yet."""
    with tempfile.NamedTemporaryFile("w", prefix="triplane-fleet-", suffix=".yaml") as file:
        file.write(fleet)
        file.flush()
        with set_up(Path(file.name), *arguments) as stage:
            yield stage


@contextmanager
def set_up(fleet: Path, *arguments: str) -> Iterator[Stage]:
    """Have a stack with this fleet inside; it is stopped afterwards, and `remove` clears it away. Raises StackError.

    `arguments` are further ones of `up`.
    """
    above = Path(tempfile.mkdtemp(prefix="triplane-demo-"))
    above.chmod(0o711)  # jobs of a root's stack run as nobody
    folder, working_folder = open_state(above / "state"), above / "work"
    working_folder.mkdir()
    diary.lay_out(working_folder)
    try:
        _start(folder, fleet, above, arguments)
        yield _stage(folder, working_folder)
    except (KeyboardInterrupt, SystemExit):
        with suppress(StackError):  # a busy machine may need longer to stop it than we wait
            _stop(folder)
        shutil.rmtree(above, ignore_errors=True)
        raise
    finally:
        _stop(folder)


def remove(stage: Stage) -> None:
    """Remove everything a stopped stack has left."""
    shutil.rmtree(stage.folder.root.parent, ignore_errors=True)


def _stop(folder: StateFolder) -> None:
    if folder.root.exists():
        asyncio.run(down(folder))
    remove_runtime_folder(folder)


def _start(folder: StateFolder, fleet: Path, above: Path, further: Sequence[str]) -> None:
    """Start it so that it ends with us, and so that a person's own stack stays the newest one for commands."""
    environment = {**os.environ, "XDG_CONFIG_HOME": str(above / "config")}
    arguments = ["--fleet", str(fleet), "--state", str(folder.root), *further]
    detached.start(folder, arguments, prefix=leash(signal.SIGTERM), environment=environment)


def _stage(folder: StateFolder, working_folder: Path) -> Stage:
    secret = credentials.load(folder)
    assert secret is not None, "a stack that is up has credentials"
    return Stage(folder, working_folder, secret, address_of(ports.saved(folder)))
