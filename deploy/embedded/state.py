"""The one directory that holds all a stack keeps: data, credentials, logs, and who is running."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.embedded.failures import AlreadyUpError, StateRefusedError
from deploy.embedded.files import write_private

FORMAT = 1  # raise it when an older release could not read what this one writes


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The paths inside a state directory. Making one touches nothing; `open_state` does."""

    root: Path

    @property
    def format_file(self) -> Path:
        """Holds the number of the format the directory was written in."""
        return self.root / "format"

    @property
    def lock_file(self) -> Path:
        """Locked, and holding a pid, while a stack runs."""
        return self.root / "lock"

    @property
    def credentials_file(self) -> Path:
        """All passwords and tokens, mode 0600."""
        return self.root / "credentials.json"

    @property
    def ports_file(self) -> Path:
        """The ports in use, so that a restart keeps them."""
        return self.root / "ports.json"

    @property
    def ready_file(self) -> Path:
        """There while the stack is up and ready; holds the gateway's address."""
        return self.root / "ready"

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.root / "logs"

    def log_file(self, component: str) -> Path:
        """The log of one component."""
        return self.logs / f"{component}.log"

    def end_of_log(self, component: str) -> str:
        """Return the last lines of a component's log, for a message; empty when there is none."""
        log = self.log_file(component)
        return log.read_bytes()[-600:].decode(errors="replace").strip() if log.exists() else ""

    def record_file(self, component: str) -> Path:
        """Which process runs the component."""
        return self.root / "run" / f"{component}.json"

    def furnish(self) -> None:
        """Have the folders of logs and records, also when somebody took them away. Raises OSError."""
        for name in ("logs", "run"):
            self.data(name)

    def data(self, component: str) -> Path:
        """The component's own folder; made when asked for."""
        folder = self.root / component
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def default_root() -> Path:
    """Return the state directory used when none is named: $TRIPLANE_STATE, else below $XDG_STATE_HOME."""
    if named := os.environ.get("TRIPLANE_STATE"):
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "triplane"


def is_state(root: Path) -> bool:
    """Return whether a stack was ever started on this directory."""
    return StateFolder(root.absolute()).format_file.exists()


def open_state(root: Path) -> StateFolder:
    """Make or check the directory: ours, closed to others, of a format we read. Raises StateRefusedError."""
    folder = StateFolder(root.absolute())
    try:
        folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_owner(folder.root)
        _check_format(folder)
        _close_to_others(folder.root)
        folder.furnish()
    except OSError as error:
        raise StateRefusedError(
            f"The state directory {root} cannot be used: {error.strerror}. Name another with --state."
        ) from error
    return folder


def _check_owner(root: Path) -> None:
    status = root.stat()
    if status.st_uid != os.geteuid():
        raise StateRefusedError(
            f"The state directory {root} belongs to user {status.st_uid}. Name another with --state."
        )


def _close_to_others(root: Path) -> None:
    """Only once it is known to be ours: any directory may be named by mistake."""
    if root.stat().st_mode & 0o066:
        root.chmod(0o700)


def _check_format(folder: StateFolder) -> None:
    if not folder.format_file.exists():
        if any(folder.root.iterdir()):
            raise StateRefusedError(
                f"{folder.root} is not empty and no state directory of Triplane. Name another with --state."
            )
        write_private(folder.format_file, f"{FORMAT}\n")
    text = folder.format_file.read_text().strip()
    if not text.isdecimal():
        raise StateRefusedError(f"{folder.format_file} holds {text[:20]!r} where a number belongs.")
    if int(text) > FORMAT:
        raise StateRefusedError(
            f"The state directory {folder.root} has format {text}; this release reads up to {FORMAT}. "
            "Install the newer release again, or name another directory with --state."
        )


@contextmanager
def held(folder: StateFolder) -> Iterator[None]:
    """Hold the directory for this process; the kernel lets go when the process ends. Raises AlreadyUpError."""
    descriptor = os.open(folder.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(folder, descriptor)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(folder: StateFolder, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.pread(descriptor, 20, 0).decode().strip()
        raise AlreadyUpError(
            f"A stack is already up on {folder.root} (process {pid}). Stop it with `triplane down`."
        ) from error


def holder(folder: StateFolder) -> int | None:
    """Return the pid of the process that holds the directory, or None."""
    if not folder.lock_file.exists():
        return None
    with folder.lock_file.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(file.read().strip() or 0) or None
    return None
