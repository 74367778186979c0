"""Slots as spans: what a line holds of a device, in thousandths of a MiB, on one number line for the whole fleet.

In this unit a MiB, a thousandth of a device and a MIG memory slice (an eighth) are whole numbers, whatever the device:
of M MiB they are 1000, M and 125·M units. A device with ordinal n begins at n·2³¹, and its memory lies from there on.
A whole device is all up to where the next begins, so that one of unknown memory can be had, too. Two lines collide
exactly when their spans overlap; the ledger takes none that is neither the whole device nor within its memory.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

UNITS_PER_MIB: Final = 1_000  # so that a thousandth of any device is a whole number
STRIDE: Final = 2**31  # units from one device to the next: 2 TiB; the ledger's own ``whole`` says the same
RESERVE_MINIMUM_MIB: Final = 256  # a driver takes this much of the smallest card
SLICES: Final = 8  # a device has eight memory slices


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The units from ``start`` up to, without, ``stop``."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop, (self.start, self.stop)


Span = tuple[Range, ...]  # in order, not touching


@dataclass(frozen=True, slots=True)
class Lack:
    """Why a share is refused, in units: what was asked for, what is left, and how much there is to share."""

    asked: int
    left: int
    room: int

    def __str__(self) -> str:
        percent = _decimal(self.left * 1_000 // max(1, self.room), 1)
        asked, left, room = (_decimal(units, 3) for units in (self.asked, self.left, self.room))
        return f"asked {asked} MiB, remaining {percent} % ({left} of {room} MiB)"


@dataclass(frozen=True, slots=True)
class Device:
    """A device that can be cut, since its memory is known. Shares are cut of what its driver does not keep."""

    ordinal: int
    memory_mib: int
    reserve_mib: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.reserve_mib <= self.memory_mib <= STRIDE // UNITS_PER_MIB, self

    def thousandths(self, milli: int) -> int:
        """Return the units of so many thousandths of what can be shared."""
        return milli * (self.memory_mib - self.reserve_mib)

    def memory_slices(self, first: int, count: int) -> Span:
        """Return ``count`` memory slices of the device from slice ``first`` (0 to 7)."""
        assert 0 <= first < first + count <= SLICES, (first, count)
        size = UNITS_PER_MIB // SLICES * self.memory_mib
        return self._part(first * size, (first + count) * size)

    def reserve(self) -> Span:
        """Return what the driver keeps, at the end of the memory: a line of its own keeps everybody off it."""
        return self._part(UNITS_PER_MIB * (self.memory_mib - self.reserve_mib), UNITS_PER_MIB * self.memory_mib)

    def share(self, asked: int, taken: Iterable[Span]) -> Span | Lack:
        """Return the first ``asked`` units that are free, in as many pieces as it takes, or what is lacking."""
        assert asked > 0, asked
        picked, missing = [], asked
        gaps = self.free(taken)
        for gap in gaps:
            part = Range(gap.start, min(gap.stop, gap.start + missing))
            picked.append(part)
            missing -= part.stop - part.start
            if not missing:
                return tuple(picked)
        return Lack(asked, units(gaps), self.thousandths(1_000))

    def free(self, taken: Iterable[Span]) -> Span:
        """Return what can be shared of the device and none of the spans takes."""
        gaps, at = [], self.ordinal * STRIDE
        stop = at + self.thousandths(1_000)
        for part in union(taken):
            if at < min(part.start, stop):
                gaps.append(Range(at, min(part.start, stop)))
            at = max(at, part.stop)
        return (*gaps, Range(at, stop)) if at < stop else tuple(gaps)

    def _part(self, start: int, stop: int) -> Span:
        base = self.ordinal * STRIDE
        return (Range(base + start, base + stop),) if start < stop else ()


def driver_reserve(memory_mib: int, percent: int) -> int:
    """Return the MiB that a driver keeps: a percentage, rounded down, 256 MiB at least; 0 % is nothing."""
    return min(memory_mib, max(memory_mib * percent // 100, RESERVE_MINIMUM_MIB)) if percent else 0


def whole(ordinal: int) -> Span:
    """Return all of a device, whatever its memory."""
    return (Range(ordinal * STRIDE, (ordinal + 1) * STRIDE),)


def units(span: Span) -> int:
    """Return the units of a span."""
    return sum(part.stop - part.start for part in span)


def union(spans: Iterable[Span]) -> Span:
    """Return the units that are in any of the spans."""
    merged: list[Range] = []
    for part in sorted(part for span in spans for part in span):
        if merged and part.start <= merged[-1].stop:
            merged[-1] = Range(merged[-1].start, max(merged[-1].stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)


def _decimal(number: int, places: int) -> str:
    """Return a whole number of tenths (1), thousandths (3) or so as text, exactly."""
    ones, rest = divmod(number, 10**places)
    return f"{ones}.{rest:0{places}}".rstrip("0").rstrip(".") if rest else str(ones)
