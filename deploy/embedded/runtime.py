"""Where agents keep what must end with the boot: outside the state directory, since runs' users pass through it."""

import hashlib
import os
import shutil
import stat
from pathlib import Path

from deploy.embedded.children import boot_id
from deploy.embedded.failures import StackError
from deploy.embedded.state import StateFolder

SHARED = Path("/tmp")  # noqa: S108 (ours is checked to be ours)


def runtime_folder(folder: StateFolder) -> Path:
    """Return the folder of this stack and boot; nothing is made."""
    stack = hashlib.sha256(f"{folder.root} {boot_id()}".encode()).hexdigest()[:12]
    return _own() / stack


def make_runtime_folder(folder: StateFolder) -> None:
    """Make it, passable for others. Raises StackError when somebody else was there first."""
    own = _own()
    own.mkdir(mode=0o711, exist_ok=True)
    status = own.lstat()
    if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
        raise StackError(f"{own} belongs to user {status.st_uid}. Set XDG_RUNTIME_DIR to a folder of your own.")
    runtime_folder(folder).mkdir(mode=0o711, exist_ok=True)


def remove_runtime_folder(folder: StateFolder) -> None:
    """Remove it with all that ended runs have left in it."""
    shutil.rmtree(runtime_folder(folder), ignore_errors=True)


def going_on(folder: StateFolder) -> str:
    """Return a sentence on the runs that have outlived their stack; empty when there are none."""
    own = f"{runtime_folder(folder)}/".encode()
    processes = Path("/proc").glob("[0-9]*")
    count = len({word for words in map(_words, processes) for word in words if word.startswith(own)})
    what = "1 run goes on" if count == 1 else f"{count} runs go on"
    return f"{what}; the next `triplane up` takes up what still runs." if count else ""


def _words(process: Path) -> list[bytes]:
    try:
        return (process / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended meanwhile
        return []


def _own() -> Path:
    return _base() / f"triplane-{os.geteuid()}"


def _base() -> Path:
    if os.geteuid() == 0:
        return Path("/run") if os.access("/run", os.W_OK) else SHARED
    named = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(named) if named and os.access(named, os.W_OK) else SHARED
