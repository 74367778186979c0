"""The lock of each device, and who has its file open: users' processes inherit it as a witness."""

import fcntl
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from schemas.ids import DeviceId
from services.agent.core.proofs import Look
from services.agent.store import holders
from services.agent.store.processes import stat_fields

CLOCK_STEP_SECONDS: Final = 60.0  # start times are counted from the boot, file times by the wall clock


class DeviceLocks:
    """The files ``devices/<id>`` of a runtime folder; only the agent's user can open them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def taken(self, devices: Sequence[DeviceId]) -> Look:
        """Try every lock for a moment."""
        try:
            return Look(busy=tuple(f"the lock of {device} is held" for device in devices if _held(self._file(device))))
        except OSError as error:
            return Look(unknown=(f"the device locks cannot be tried: {error}",))

    def open_elsewhere(self, devices: Sequence[DeviceId], *, owner: int | None = None) -> Look:
        """Look who has the files open. ``owner``: the process that must have all of them, and may."""
        try:
            seen, hidden = self._scan(devices)
        except OSError as error:
            return Look(unknown=(f"the device files cannot be looked at: {error}",))
        strangers = {device: pids - {owner} for device, pids in seen.items()}
        absent = [device for device, pids in seen.items() if owner is not None and owner not in pids]
        return Look(
            busy=tuple(f"process {min(pids)} holds {device}" for device, pids in strangers.items() if pids),
            unknown=(
                *(f"process {pid} cannot be looked into" for pid in sorted(hidden)),
                *(f"{device} is not locked by process {owner}, which says so" for device in absent),
            ),
        )

    def users(self, devices: Sequence[DeviceId]) -> Mapping[DeviceId, frozenset[int]]:
        """Return who has the files open, as far as can be seen; for reports, not for proofs."""
        try:
            return self._scan(devices)[0]
        except OSError:
            return {}

    def _scan(self, devices: Sequence[DeviceId]) -> tuple[dict[DeviceId, frozenset[int]], set[int]]:
        files = {self._file(device): device for device in devices}
        seen = holders.scan(list(files), maps=False)
        hidden = {pid for pid in seen.blind if _may_hold(pid, files)}
        return {device: seen.holders[path] for path, device in files.items()}, hidden

    def _file(self, device: DeviceId) -> Path:
        path = self._folder / device
        if not path.exists():
            path.touch(mode=0o600)
        return path


def _held(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _may_hold(pid: int, files: Iterable[Path]) -> bool:
    """Say whether a process that hides could have one of the files: only our user's, and only younger ones, can."""
    fields = stat_fields(pid)
    if fields is None or _real_uid(pid) != os.getuid():
        return False
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return started + CLOCK_STEP_SECONDS >= min(path.stat().st_ctime for path in files)


def _real_uid(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
