"""Parts of one device: thousandths and MiB, both integers, counted against what is left and never against the total."""

from dataclasses import dataclass
from typing import Final

from libs.resources.span import DEVICE_MILLI

RESERVE_MINIMUM_MIB: Final = 256  # a driver takes this much of the smallest card


@dataclass(frozen=True, slots=True)
class Share:
    """An amount of one device: thousandths of its time and slots, MiB of its memory."""

    milli: int
    memory_mib: int

    def __add__(self, other: "Share") -> "Share":
        return Share(self.milli + other.milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "Share") -> "Share":
        return Share(self.milli - other.milli, self.memory_mib - other.memory_mib)

    def fits(self, left: "Share") -> bool:
        """Say whether this much is left."""
        return self.milli <= left.milli and self.memory_mib <= left.memory_mib


def capacity(memory_mib: int, *, reserve_percent: int = 0) -> Share:
    """Return what a device can give: its memory less what the driver keeps (a percentage, 256 MiB at least)."""
    reserve = max(memory_mib * reserve_percent // 100, RESERVE_MINIMUM_MIB) if reserve_percent else 0
    return Share(DEVICE_MILLI, max(0, memory_mib - reserve))


def of_milli(milli: int, device: Share) -> Share:
    """Return the share of so many thousandths, with its part of the memory (rounded down, so that ten tenths fit)."""
    return Share(milli, device.memory_mib * milli // DEVICE_MILLI)


def of_memory(memory_mib: int, device: Share) -> Share:
    """Return the share of so many MiB; its thousandths are rounded down: the memory is what is counted."""
    return Share(max(1, memory_mib * DEVICE_MILLI // max(1, device.memory_mib)), memory_mib)
