"""The devices of a node: what there is, what CUDA calls it, and who uses it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from schemas.ids import DeviceId
from schemas.runtime import ObservedDevice
from services.agent.core.proofs import Look


class Devices(Protocol):
    """What a node can say of its devices."""

    def all(self) -> tuple[ObservedDevice, ...]:
        """Return the devices that there are now. Raises DevicesUnknownError."""

    def visible(self, device: ObservedDevice) -> str:
        """Return what CUDA_VISIBLE_DEVICES must say for a device."""

    def look(self, devices: Sequence[DeviceId]) -> Look:
        """Look who uses these devices. Raises nothing: an error is unknown."""

    def users(self, devices: Sequence[DeviceId]) -> Mapping[DeviceId, frozenset[int]]:
        """Return the processes that are seen on these devices; for reports, not for proofs."""


class DevicesUnknownError(Exception):
    """The devices of this node cannot be told now."""


class DeclaredDevices:
    """Devices without hardware: nothing but the files of their locks can be held."""

    def __init__(self, devices: tuple[ObservedDevice, ...]) -> None:
        self._devices = devices

    def all(self) -> tuple[ObservedDevice, ...]:
        """Return what was declared."""
        return self._devices

    def visible(self, device: ObservedDevice) -> str:
        """Return the device's index."""
        return str(device.index)

    def look(self, devices: Sequence[DeviceId]) -> Look:
        """Look for devices that are not here; their lock files are looked at for every kind of device."""
        here = {device.device for device in self._devices}
        return Look(unknown=tuple(f"{device} is not on this node" for device in devices if device not in here))

    def users(self, devices: Sequence[DeviceId]) -> Mapping[DeviceId, frozenset[int]]:
        """Return nobody."""
        return dict.fromkeys(devices, frozenset())
