"""How much of each class was allocated when: steps, SVG and text. Pure."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from xml.sax.saxutils import escape

from deploy.embedded.demo.openb.record import Hold

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
LEFT, WIDTH, TOP, HEIGHT, STEPS = 56, 880, 30, 300, 440  # pixels; points of a curve
COLUMNS = 72  # characters of the text rendering
SHADES = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Curve:
    """Devices of one class that were allocated, as steps: from each time on, so many."""

    times: tuple[float, ...]
    held: tuple[int, ...]

    def at(self, time: float) -> int:
        """Return the devices allocated at a time."""
        place = bisect_right(self.times, time)
        return self.held[place - 1] if place else 0

    @property
    def peak(self) -> int:
        """The most that was ever allocated."""
        return max(self.held, default=0)

    def mean(self, seconds: float) -> float:
        """Return the mean over so many seconds from 0."""
        ends = (*self.times[1:], seconds)
        return sum((end - begin) * held for begin, end, held in zip(self.times, ends, self.held, strict=False)) / (
            seconds or 1.0
        )


def curves(holds: Sequence[Hold], classes: Sequence[str], start: float) -> dict[str, Curve]:
    """Return a curve for each class and, under the name all, of them together; times from ``start``."""
    own = {name: [hold for hold in holds if hold.gpu_class == name] for name in classes}
    return {name: _curve(each, start) for name, each in {"all": list(holds), **own}.items()}


def text(drawn: Mapping[str, Curve], stock: Mapping[str, int], seconds: float) -> list[str]:
    """Return one line a class: how full each moment was, relative to the class's own peak, and what the peak was."""
    return [_line(name, curve, stock[name], seconds) for name, curve in drawn.items()]


def svg(drawn: Mapping[str, Curve], stock: Mapping[str, int], seconds: float, title: str) -> str:
    """Return the classes stacked over time; the scale is percent of all devices."""
    classes = [name for name in drawn if name != "all"]
    times = [seconds * step / STEPS for step in range(STEPS + 1)]
    rows = [[drawn[name].at(time) for name in classes] for time in times]
    stacked = [list(accumulate(row, initial=0)) for row in rows]
    top = max((row[-1] for row in stacked), default=0) or 1
    bands = [_band(stacked, at, top, COLOURS[at % len(COLOURS)], name) for at, name in enumerate(classes)]
    scale = [_level(share, top, stock["all"]) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    ticks = [
        f'<text x="{LEFT + WIDTH * tick / 4:.0f}" y="{TOP + HEIGHT + 16}">{seconds * tick / 4:.0f} s</text>'
        for tick in range(5)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{TOP + HEIGHT + 50}" '
        'font-family="sans-serif" font-size="11">'
    )
    note = f'<text x="{LEFT}" y="{TOP + HEIGHT + 38}">{escape(title)}</text>'
    return "\n".join([head, *_legend(classes), *bands, *scale, *ticks, note, "</svg>", ""])


def _curve(holds: Sequence[Hold], start: float) -> Curve:
    changes: dict[float, int] = {}
    for hold in holds:
        changes[hold.issued - start] = changes.get(hold.issued - start, 0) + hold.devices
        if hold.released is not None:
            changes[hold.released - start] = changes.get(hold.released - start, 0) - hold.devices
    times = sorted(changes)
    return Curve(tuple(times), tuple(accumulate(changes[time] for time in times)))


def _line(name: str, curve: Curve, total: int, seconds: float) -> str:
    width = seconds / COLUMNS
    peaks = [_peak(curve, column * width, (column + 1) * width) for column in range(COLUMNS)]
    most = curve.peak or 1
    bar = "".join(SHADES[min(len(SHADES) - 1, -(-peak * (len(SHADES) - 1) // most))] for peak in peaks)
    return f"{name:<8}{bar}  peak {curve.peak:>4} of {total:>4} ({curve.peak / total:5.1%})"


def _peak(curve: Curve, begin: float, end: float) -> int:
    inside = curve.held[bisect_right(curve.times, begin) : bisect_right(curve.times, end)]
    return max((curve.at(begin), *inside))


def _band(stacked: Sequence[Sequence[int]], at: int, top: int, colour: str, name: str) -> str:
    upper = [(step, row[at + 1]) for step, row in enumerate(stacked)]
    lower = [(step, row[at]) for step, row in reversed(list(enumerate(stacked)))]
    points = " ".join(f"{LEFT + WIDTH * step / STEPS:.1f},{_y(held, top):.1f}" for step, held in (*upper, *lower))
    return f'<polygon points="{points}" fill="{colour}"><title>{escape(name)}</title></polygon>'


def _level(share: float, top: int, total: int) -> str:
    y = _y(share * top, top)
    line = f'<line x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
    return f'{line}<text x="4" y="{y + 4:.1f}">{share * top / total:.2%}</text>'


def _y(held: float, top: int) -> float:
    return TOP + HEIGHT * (1 - held / top)


def _legend(classes: Sequence[str]) -> list[str]:
    return [
        f'<rect x="{LEFT + 100 * at}" y="8" width="10" height="10" fill="{COLOURS[at % len(COLOURS)]}"/>'
        f'<text x="{LEFT + 100 * at + 14}" y="17">{escape(name)}</text>'
        for at, name in enumerate(classes)
    ]
