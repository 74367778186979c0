"""Who had which device when: drawn as SVG and as text. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")  # told apart by the colour-blind too
ROW, LEFT, WIDTH, TOP = 14, 90, 900, 30  # pixels
COLUMNS = 74  # characters of the text rendering


@dataclass(frozen=True, slots=True)
class Span:
    """One grant's hold on one device, in seconds from the start of the picture."""

    device: str
    job: str
    tenant: str
    start: float
    end: float


def svg(spans: Sequence[Span], devices: Sequence[str]) -> str:
    """Return a picture with one row a device, one bar a grant, one colour a tenant."""
    length = _length(spans)
    tenants = _tenants(spans)
    bars = [_bar(span, devices.index(span.device), tenants[span.tenant], length) for span in spans]
    names = [f'<text x="4" y="{TOP + row * ROW + 10}">{escape(name)}</text>' for row, name in enumerate(devices)]
    legend = [
        f'<rect x="{LEFT + 130 * at}" y="8" width="10" height="10" fill="{colour}"/>'
        f'<text x="{LEFT + 130 * at + 14}" y="17">{escape(tenant)}</text>'
        for at, (tenant, colour) in enumerate(tenants.items())
    ]
    height = TOP + ROW * len(devices) + 22
    scale = [  # four quarters
        f'<text x="{LEFT + WIDTH * tick / 4:.0f}" y="{height - 6}">{length * tick / 4:.0f} s</text>'
        for tick in range(5)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 40}" height="{height}" '
        'font-family="sans-serif" font-size="10">'
    )
    return "\n".join([head, *legend, *names, *bars, *scale, "</svg>", ""])


def text(spans: Sequence[Span], devices: Sequence[str]) -> list[str]:
    """Return one line a device; a letter stands for a job, a dot for nobody; the key follows."""
    length = _length(spans)
    letters = {job: _letter(number) for number, job in enumerate(dict.fromkeys(span.job for span in spans))}
    rows = {device: ["."] * COLUMNS for device in devices}
    for span in spans:
        first = int(span.start / length * COLUMNS)
        last = max(first + 1, round(span.end / length * COLUMNS))
        rows[span.device][first:last] = letters[span.job] * (min(last, COLUMNS) - first)
    width = max(map(len, devices), default=0)
    return [*(f"{name:<{width}} {''.join(row)}" for name, row in rows.items()), *_key(letters)]


def _bar(span: Span, row: int, colour: str, length: float) -> str:
    x, width = LEFT + span.start / length * WIDTH, max(1.0, (span.end - span.start) / length * WIDTH)
    return (
        f'<rect x="{x:.1f}" y="{TOP + row * ROW + 1}" width="{width:.1f}" height="{ROW - 2}" fill="{colour}" '
        f'stroke="white" stroke-width="0.5"><title>{escape(span.job)}</title></rect>'
    )


def _length(spans: Iterable[Span]) -> float:
    return max((span.end for span in spans), default=0.0) or 1.0


def _tenants(spans: Iterable[Span]) -> dict[str, str]:
    names = sorted({span.tenant for span in spans})
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def _letter(number: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    return letters[number % len(letters)]


def _key(letters: dict[str, str]) -> list[str]:
    entries = [f"{letter} {job}" for job, letter in letters.items()]
    return ["   ".join(entries[at : at + 4]) for at in range(0, len(entries), 4)]
