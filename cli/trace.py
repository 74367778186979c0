"""A job's trace as text: a waterfall of facts, and where the time went."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cli.output import span, words

if TYPE_CHECKING:
    from libs.client.models import JobTrace, TracePhase, TraceStep

WIDTH: Final = 40  # of the waterfall, in characters
_EXACT_SECONDS: Final = 1_000  # above, milliseconds are noise


@dataclass(frozen=True, slots=True)
class _Row:
    """One line: a fact, or the same fact said several times one after the other."""

    last: "TraceStep"
    times: int
    at: float
    took: float

    @property
    def cells(self) -> tuple[str, ...]:
        """The words of the line."""
        step, more = self.last, f" x{self.times}" if self.times > 1 else ""
        attempt = f" (attempt {step.attempt})" if step.attempt > 1 else ""
        after = what(step.after) if step.after else "-"
        return _time(self.at), _time(self.took), step.service, f"{what(step.type)}{more}{attempt}", after


def drawn(trace: "JobTrace") -> list[str]:
    """Return the lines that show a trace."""
    head = [f"{trace.name} is {trace.state} (attempt {trace.attempt})", f"trace {trace.trace}", ""]
    if not trace.steps:
        return [*head, "nothing is kept of it any more"]
    rows, first = _rows(trace.steps), trace.steps[0].at
    total = max(row.at for row in rows)
    total = max([total, *((phase.began - first).total_seconds() + phase.seconds for phase in trace.phases)])
    titles = ("AT", "HOP", "SERVICE", "FACT", "AFTER")
    table = _table([titles, *(row.cells for row in rows)], right=2)
    bars = [_ruler(total), *(_bar(row, total) for row in rows)]
    waterfall = [f"{line}  {bar}".rstrip() for line, bar in zip(table, bars, strict=True)]
    cut = ["later facts are left out"] if trace.cut else []
    return [*head, *waterfall, *cut, "", *_went(trace.phases)]


def what(kind: str) -> str:
    """Return a fact's type in words: ``job quota reserved``."""
    return " ".join(kind.split(".")[1:3]).replace("_", " ")


def _rows(steps: "Sequence[TraceStep]") -> list[_Row]:
    first = steps[0].at
    rows = []
    for _, group in groupby(steps, key=_sameness):
        same = list(group)
        at = (same[-1].at - first).total_seconds()
        took = same[0].seconds + (same[-1].at - same[0].at).total_seconds()
        rows.append(_Row(same[-1], len(same), at, took))
    return rows


def _sameness(step: "TraceStep") -> tuple[str, int, str]:
    return step.type, step.attempt, step.reason.code if step.reason else ""


def _ruler(total: float) -> str:
    return f"0{_time(total):>{WIDTH - 1}}"


def _bar(row: _Row, total: float) -> str:
    """Draw from what the fact answers to itself."""
    begin, end = (_place(moment, total) for moment in (max(0.0, row.at - row.took), row.at))
    return " " * begin + "-" * (end - begin) + "#"


def _place(moment: float, total: float) -> int:
    return round(moment / total * (WIDTH - 1)) if total else 0


def _went(phases: "Sequence[TracePhase]") -> Iterator[str]:
    """Yield where the time went, the longest first."""
    whole = sum(phase.seconds for phase in phases) or 1.0
    rows = [("TIME", "SHARE", "WENT INTO", "ATTEMPT", "WHY")]
    for phase in sorted(phases, key=lambda phase: -phase.seconds):
        name = phase.name if phase.over else f"{phase.name}, so far"
        why = f"{phase.reason.code}: {phase.reason.message}".rstrip(": ") if phase.reason else None
        share = f"{phase.seconds / whole:.0%}"
        rows.append((_time(phase.seconds), share, name, str(phase.attempt), words(why)))
    yield from (line.rstrip() for line in _table(rows, right=2))


def _table(rows: Sequence[Sequence[str]], *, right: int) -> list[str]:
    """Align columns, the first so many to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = (
        [cell.rjust(width) if place < right else cell.ljust(width) for place, (cell, width) in enumerate(cells)]
        for cells in (zip(row, widths, strict=True) for row in rows)
    )
    return ["  ".join(cells) for cells in aligned]


def _time(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < _EXACT_SECONDS else span(int(seconds))
