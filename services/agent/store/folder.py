"""The runtime folder of a node and the folders of its runs."""

import fcntl
import os
import shutil
import time
from collections.abc import Collection, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from pydantic import ValidationError

from schemas.calls import LaunchOrder
from schemas.ids import GrantId, RunName
from schemas.workload import ExitRecord
from services.agent.core.orders import Owner
from services.agent.core.runs import Evidence, Instance
from services.agent.shim.files import read, write
from services.agent.store import processes

HIDDEN: Final = "."  # what is being made or dropped has a name that begins so


class FolderTakenError(Exception):
    """Another agent works on this runtime folder."""


class RuntimeFolder:
    """On the disk: locks ``devices/<id>``, ``runs/<run>-e<epoch>/``, ``scratch/``, ``agent.lock``, ``agent.sock``.

    ``fresh``: made in this boot, and the ledger has not yet said that it knows no earlier claim of this boot (G6).
    """

    def __init__(self, path: Path, boot: str, *, scratch: Path | None = None) -> None:
        self.path, self.boot = path, boot
        self.devices, self.runs = path / "devices", path / "runs"
        self.scratch = scratch or path / "scratch"
        self.socket = path / "agent.sock"
        self._identity: dict[str, Any] = {}
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder, or take it over. Raises FolderTakenError, OSError."""
        self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._take()
        for folder, mode in ((self.devices, 0o700), (self.runs, 0o700), (self.scratch, 0o711)):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
            folder.chmod(mode)
        for left in self.runs.glob(f"{HIDDEN}*"):  # by an agent that was killed
            shutil.rmtree(left, ignore_errors=True)
        self._identity = self._known() or self._new()

    def close(self) -> None:
        """Let go; another agent may take over."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def mark(self, grant: GrantId) -> str:
        """Return what tells processes of a grant from those of an agent beside this one, which has its own folder."""
        return f"{sha256(os.fsencode(self.path.resolve())).hexdigest()[:16]}/{grant}"

    @property
    def fresh(self) -> bool:
        """Whether starts of this boot could be hidden from this folder."""
        return not self._identity["confirmed"]

    @property
    def id(self) -> str:
        """The name this folder was given when it was made."""
        return str(self._identity["id"])

    @property
    def blind(self) -> bool:
        """Whether the ledger knows more of this boot than this folder, or the folder was taken away."""
        return bool(self._identity["blind"]) or not self._intact()

    def confirm(self, *, blind: bool) -> None:
        """Keep what the ledger said of this boot."""
        self._identity |= {"confirmed": True, "blind": blind}
        write(self.path / "identity.json", self._identity)

    def all_runs(self, besides: Collection[str] = ()) -> Iterator["RunFolder"]:
        """Yield every run's folder, besides those of these names; what is being made or dropped is no run."""
        for name in self._names():
            if name not in besides and (self.runs / name / "order.json").exists():
                yield RunFolder(self.runs / name)

    def unrecorded(self) -> Iterator["RunFolder"]:
        """Yield the folders of runs whose end is not recorded. Looks once at each of the others: there may be many."""
        for name in self._names():
            run = f"{self.runs}/{name}"
            if not os.access(f"{run}/exit.json", os.F_OK) and os.access(f"{run}/order.json", os.F_OK):
                yield RunFolder(self.runs / name)

    def of_run(self, run: RunName) -> list["RunFolder"]:
        """Return the folders of a run, the newest grant last."""
        prefix = f"{run}-e"
        paths = [path for path in self.runs.glob(f"{prefix}*") if path.name[len(prefix) :].isdecimal()]
        return [RunFolder(path) for path in sorted(paths, key=lambda path: int(path.name[len(prefix) :]))]

    def of_grant(self, run: RunName, epoch: int) -> "RunFolder | None":
        """Return the folder of one grant's run."""
        folder = RunFolder(self.runs / f"{run}-e{epoch}")
        return folder if folder.path.is_dir() else None

    def create(self, name: str, order: dict[str, Any]) -> "RunFolder":
        """Make a run's folder with its order in it, whole or not at all. Raises FileExistsError, OSError."""
        temporary = self.runs / f"{HIDDEN}{uuid4().hex}"
        temporary.mkdir(mode=0o700)
        write(temporary / "order.json", order)
        try:
            temporary.rename(self.runs / name)
        except OSError as error:
            shutil.rmtree(temporary)
            raise FileExistsError(name) from error
        return RunFolder(self.runs / name)

    def make_scratch(self, name: str, owner: Owner | None) -> Path:
        """Make a run's private working folder."""
        path = self.scratch / name
        path.mkdir(mode=0o700, exist_ok=True)
        if owner:
            os.chown(path, owner.uid, owner.gid)
        return path

    def drop(self, folder: "RunFolder") -> None:
        """Remove an ended run's folders: at once for who looks, so that nobody sees half of it. Raises OSError."""
        shutil.rmtree(self.scratch / folder.path.name, ignore_errors=True)
        gone = self.runs / f"{HIDDEN}{uuid4().hex}"
        folder.path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _names(self) -> list[str]:
        with os.scandir(self.runs) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith(HIDDEN))

    def _take(self) -> None:
        self._lock = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise FolderTakenError(f"another agent holds {self.path / 'agent.lock'}") from error

    def _known(self) -> dict[str, Any] | None:
        try:
            identity = read(self.path / "identity.json")
        except (OSError, ValueError):
            return None
        return dict(identity) if identity.get("boot") == self.boot else None

    def _new(self) -> dict[str, Any]:
        identity = {"id": uuid4().hex, "boot": self.boot, "confirmed": False, "blind": False}
        write(self.path / "identity.json", identity)
        return identity

    def _intact(self) -> bool:
        known = self._known()
        return known is not None and known["id"] == self._identity["id"]


class RunFolder:
    """One grant's run on this node. Every method raises OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def order(self) -> LaunchOrder:
        """The ledger's order. Raises ValueError when the file is not one."""
        return LaunchOrder.model_validate(self.shim_order["order"])

    @property
    def shim_order(self) -> dict[str, Any]:
        """What the shim was told."""
        return dict(read(self.path / "order.json"))

    @property
    def instance(self) -> Instance | None:
        """The shim that has, or last had, this run."""
        try:
            shim = read(self.path / "shim.pid")
            return Instance(pid=shim["pid"], start=shim["start"], boot=shim["boot"], id=shim["instance"])
        except (OSError, ValueError, KeyError):
            return None

    @property
    def started(self) -> bool:
        """Whether a process of the user's may exist or have existed."""
        return (self.path / "started.json").exists()

    def evidence(self, boot: str) -> Evidence:
        """Look at the folder and the shim. The record is read last: a shim writes it before it ends."""
        instance = self.instance
        alive = instance is not None and instance.boot == boot and processes.lives(instance)
        alive = alive or (instance is None and self._guarded())
        return Evidence(order=self.order, instance=instance, alive=alive, started=self.started, exit=self._exit())

    def ask_stop(self, grace_seconds: int, *, cancelled_by: str | None = None) -> None:
        """Leave the grace, and who asks past Triplane, for the shim, which reads it on SIGTERM."""
        write(self.path / "stop.json", {"grace_seconds": grace_seconds, "cancelled_by": cancelled_by})

    def told(self, what: str) -> bool:
        """Whether this was said of this run; or it was dropped, as only what was told is."""
        return (self.path / f"told-{what}").exists() or not self.path.exists()

    def note_told(self, what: str) -> None:
        """Remember that this was said of this run; saying it again would do no harm."""
        if self.path.is_dir():
            (self.path / f"told-{what}").touch()

    def age_seconds(self) -> float:
        """Seconds since anything was written here."""
        return time.time() - self.path.stat().st_mtime

    def _exit(self) -> ExitRecord | None:
        try:
            return ExitRecord.model_validate(read(self.path / "exit.json"))
        except (OSError, ValidationError, ValueError):
            return None

    def _guarded(self) -> bool:
        """Whether a shim that has not yet said who it is holds this run."""
        try:
            fd = os.open(self.path / "run.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def folder_name(run: RunName, epoch: int) -> str:
    """Return the name of the folder of one grant's run."""
    return f"{run}-e{epoch}"
