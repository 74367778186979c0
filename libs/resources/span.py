"""Slots as spans: what a line holds of a device, in thousandths, on one number line for the whole fleet.

A device with ordinal n owns the thousandths n·1000 to n·1000 + 999. A whole device is all of them, a MIG memory slice
its 125, a share any that are free. Two lines collide exactly when their spans overlap.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DEVICE_MILLI: Final = 1_000
SLICE_MILLI: Final = 125  # a device has eight memory slices


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The thousandths from ``start`` up to, without, ``stop``."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        assert 0 <= self.start < self.stop, (self.start, self.stop)

    @property
    def milli(self) -> int:
        """How many thousandths."""
        return self.stop - self.start


Span = tuple[Range, ...]  # in order, not touching


def whole(ordinal: int) -> Span:
    """Return all of a device."""
    return (Range(ordinal * DEVICE_MILLI, (ordinal + 1) * DEVICE_MILLI),)


def memory_slices(ordinal: int, first: int, count: int) -> Span:
    """Return ``count`` memory slices of a device from slice ``first`` (0 to 7)."""
    assert 0 <= first < first + count <= DEVICE_MILLI // SLICE_MILLI, (first, count)
    start = ordinal * DEVICE_MILLI + first * SLICE_MILLI
    return (Range(start, start + count * SLICE_MILLI),)


def milli(span: Span) -> int:
    """Return the thousandths of a span."""
    return sum(part.milli for part in span)


def union(spans: Iterable[Span]) -> Span:
    """Return the thousandths that are in any of the spans."""
    merged: list[Range] = []
    for part in sorted(part for span in spans for part in span):
        if merged and part.start <= merged[-1].stop:
            merged[-1] = Range(merged[-1].start, max(merged[-1].stop, part.stop))
        else:
            merged.append(part)
    return tuple(merged)


def overlaps(left: Span, right: Span) -> bool:
    """Say whether two spans share a thousandth."""
    return milli(union((left, right))) < milli(left) + milli(right)


def free(ordinal: int, taken: Iterable[Span]) -> Span:
    """Return the thousandths of a device that none of the spans takes."""
    (device,) = whole(ordinal)
    gaps, at = [], device.start
    for part in union(taken):
        if device.start <= part.start < device.stop and at < part.start:
            gaps.append(Range(at, part.start))
        at = max(at, part.stop)
    return (*gaps, Range(at, device.stop)) if at < device.stop else tuple(gaps)


def share(ordinal: int, asked: int, taken: Iterable[Span]) -> Span | None:
    """Return the first ``asked`` free thousandths of a device, in as many pieces as it takes; None: it lacks them."""
    picked: list[Range] = []
    for gap in free(ordinal, taken):
        if asked == 0:
            break
        part = Range(gap.start, min(gap.stop, gap.start + asked))
        picked.append(part)
        asked -= part.milli
    return tuple(picked) if asked == 0 else None
