"""The lock of each device, and who has its file open: users' processes inherit it as a witness.

A process that cannot be looked into is no blind spot here. Only the agent's user can open these files, so a stranger
has none of them; of the agent's own only runs inherit them, and a shim ends its whole tree, seen or not. What a killed
shim leaves is looked for by its control group, or is unknown. Real devices are another matter: see ``nvml``.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.ids import DeviceId
from services.agent.core.proofs import Look
from services.agent.store import holders
from services.agent.store.holders import Scan


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

    def glance(self) -> Scan | None:
        """Look once who has the files of any device open; None when that cannot be seen."""
        try:
            return holders.scan(sorted(self._folder.iterdir()), maps=False)
        except OSError:
            return None

    def open_elsewhere(
        self, devices: Sequence[DeviceId], *, owner: int | None = None, glance: Scan | None = None
    ) -> Look:
        """Look who has the files open. ``owner``: the process that must have all of them, and may.

        ``glance``: what was seen already, after this look was asked for.
        """
        try:
            seen = self._scan(devices, glance)
        except OSError as error:
            return Look(unknown=(f"the device files cannot be looked at: {error}",))
        strangers = {device: pids - {owner} for device, pids in seen.items()}
        absent = [device for device, pids in seen.items() if owner is not None and owner not in pids]
        return Look(
            busy=tuple(f"process {min(pids)} holds {device}" for device, pids in strangers.items() if pids),
            unknown=tuple(f"{device} is not locked by process {owner}, which says so" for device in absent),
        )

    def users(self, devices: Sequence[DeviceId]) -> Mapping[DeviceId, frozenset[int]]:
        """Return who has the files open, as far as can be seen; for reports, not for proofs."""
        try:
            return self._scan(devices)
        except OSError:
            return {}

    def _scan(self, devices: Sequence[DeviceId], glance: Scan | None = None) -> dict[DeviceId, frozenset[int]]:
        files = {self._file(device): device for device in devices}
        seen = glance if glance and files.keys() <= glance.holders.keys() else holders.scan(list(files), maps=False)
        return {device: seen.holders[path] for path, device in files.items()}

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
