"""Real devices, by NVIDIA's library. Keyed by uuid: indices move when a device falls off the bus."""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from schemas.ids import DeviceId, NodeId, device_id
from schemas.runtime import ObservedDevice
from services.agent.core.proofs import Look
from services.agent.store import holders
from services.agent.store.devices import DevicesUnknownError

T = TypeVar("T")
MIB: Final = 1_048_576
# the mismatch error is no NVMLError: unversioned wrappers raise it on an old driver
ERRORS: Final = (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, OSError)
# these open every device for the machine's sake; they are known by program and by being root
KEEPERS: Final = frozenset(
    {
        "nv-hostengine",
        "dcgm-exporter",
        "nvidia-persistenced",
        "nv-fabricmanager",
        "nvidia-cuda-mps-control",
        "nvidia-cuda-mps-server",
    }
)
UNSEEN: Final = frozenset({1})  # in some containers not even root may read the mappings of init


class NvmlDevices:
    """The GPUs of this machine. A call that hangs in the driver makes every answer unknown until it returns."""

    def __init__(self, node: NodeId, *, library: str | None, seconds: float, device_files: Path = Path("/dev")) -> None:
        self._node, self._library, self._seconds, self._device_files = node, library, seconds, device_files
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
        self._hanging: Future[Any] | None = None
        self._open = False

    def all(self) -> tuple[ObservedDevice, ...]:
        """Return the devices the driver lists. Raises DevicesUnknownError."""
        return self._call(self._list)

    def visible(self, device: ObservedDevice) -> str:
        """Return the uuid."""
        return device.uuid

    def look(self, devices: Sequence[DeviceId]) -> Look:
        """Look at the driver's lists and at the holders of the device files."""
        try:
            listed, files = self._call(lambda: self._processes(devices))
            seen = holders.scan(list(files))
        except (DevicesUnknownError, OSError) as error:
            return Look(unknown=(f"devices: {error}",))
        users = {device: listed[device] | seen.holders[path] for path, device in files.items()}
        return Look(
            busy=tuple(
                f"process {pid} uses {device}" for device, pids in users.items() for pid in pids if not _keeper(pid)
            ),
            unknown=tuple(f"process {pid} cannot be looked into" for pid in seen.blind if pid not in UNSEEN),
        )

    def users(self, devices: Sequence[DeviceId]) -> Mapping[DeviceId, frozenset[int]]:
        """Return the processes in the driver's lists."""
        try:
            return self._call(lambda: self._processes(devices))[0]
        except DevicesUnknownError:
            return {}

    def _call(self, work: Callable[[], T]) -> T:
        if self._hanging is not None and not self._hanging.done():
            raise DevicesUnknownError("the driver still has not answered an earlier call")
        future = self._thread.submit(work)
        self._hanging = future
        try:
            return future.result(self._seconds)
        except FutureTimeoutError as error:
            raise DevicesUnknownError(f"the driver did not answer in {self._seconds} s") from error
        except ERRORS as error:
            self._open = False
            raise DevicesUnknownError(f"{type(error).__name__}: {error}") from error

    def _handles(self) -> dict[DeviceId, Any]:
        if not self._open:
            if self._library:
                ctypes.CDLL(self._library)  # the loader then finds it by its name
            pynvml.nvmlInit()
            self._open = True
        found = (_handle(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return {device_id(self._node, uuid): handle for uuid, handle in filter(None, found)}

    def _list(self) -> tuple[ObservedDevice, ...]:
        return tuple(
            ObservedDevice(
                device=device,
                index=pynvml.nvmlDeviceGetIndex(handle),
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                model=pynvml.nvmlDeviceGetName(handle),
                memory_mib=pynvml.nvmlDeviceGetMemoryInfo(handle).total // MIB,
            )
            for device, handle in self._handles().items()
        )

    def _processes(self, devices: Sequence[DeviceId]) -> tuple[dict[DeviceId, frozenset[int]], dict[Path, DeviceId]]:
        """Return the processes on each device, and each device's file. A device that is not there is an error."""
        handles = self._handles()
        missing = [device for device in devices if device not in handles]
        if missing:
            raise OSError(f"{missing[0]} is not on this node now")
        minors = {device: pynvml.nvmlDeviceGetMinorNumber(handles[device]) for device in devices}
        files = {self._device_files / f"nvidia{minor}": device for device, minor in minors.items()}
        return {device: _on_device(handles[device]) for device in devices}, files


def _handle(index: int) -> tuple[str, Any] | None:
    """Return a device's uuid and handle; None for one that is lost: it is not on this node now."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return pynvml.nvmlDeviceGetUUID(handle), handle
    except pynvml.NVMLError:
        return None


def _on_device(handle: Any) -> frozenset[int]:
    lists = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    return frozenset(process.pid for ask in lists for process in ask(handle))


def _keeper(pid: int) -> bool:
    program = Path(f"/proc/{pid}/exe")
    try:
        return program.readlink().name in KEEPERS and program.parent.stat().st_uid == 0
    except OSError:
        return False
