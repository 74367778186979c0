"""Printing: tables for people, JSON and YAML for programs."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_WIDE: Final = 10_000  # a pipe cuts and folds nothing


class Form(StrEnum):
    """How listings are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


FormOption = Annotated[Form, typer.Option("--output", "-o", help="How to print: table, json or yaml.")]


def show(
    form: Form, items: "Sequence[BaseModel] | BaseModel", columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Print items as they are, or their rows as a table."""
    if form is Form.TABLE:
        table(columns, rows)
    else:
        data(form, items)


def data(form: Form, items: "Sequence[BaseModel] | BaseModel") -> None:
    """Print items for programs."""
    if isinstance(items, Sequence):
        value: Any = [item.model_dump(mode="json") for item in items]
    else:
        value = items.model_dump(mode="json")
    plain(form, value)


def plain(form: Form, value: Any) -> None:
    """Print plain values for programs."""
    if form is Form.YAML:
        import yaml

        yaml.safe_dump(value, sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        print(json.dumps(value, indent=1, ensure_ascii=False))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; in a terminal it fits the window, in a pipe it is as wide as it is."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        drawn.add_column(name.upper(), justify="right" if name.startswith("#") else "left", overflow="fold")
    for column in drawn.columns:
        column.header = str(column.header).lstrip("#")
    for row in rows:
        drawn.add_row(*(Text(words(cell), style=_style(cell)) for cell in row))
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(width=width, highlight=False)
    for line in _lines(console, drawn):
        print(line)


def _lines(console: Any, drawn: Any) -> list[str]:
    with console.capture() as capture:
        console.print(drawn)
    return [line.rstrip() for line in capture.get().splitlines()]


_STYLES: Final = {
    "Running": "green",
    "Succeeded": "green",
    "created": "green",
    "ready": "green",
    "Failed": "red",
    "Rejected": "red",
    "error": "red",
    "silent": "red",
    "Cancelled": "yellow",
    "cordoned": "yellow",
    "draining": "yellow",
    "drained": "yellow",
}


def _style(cell: object) -> str:
    return _STYLES.get(cell, "") if isinstance(cell, str) else ""


def words(cell: object) -> str:
    """Return a cell as people read it."""
    match cell:
        case None | "" | ():
            return "-"
        case tuple() | list():
            return ",".join(map(str, cell))
        case datetime():
            return cell.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        case _:
            return str(cell)


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """Return how long ago it was, in its two largest units: ``2h5m``."""
    if moment is None:
        return "-"
    return span(int(((now or datetime.now(UTC)) - moment).total_seconds()))


def span(seconds: int) -> str:
    """Return a duration in its two largest units."""
    seconds = max(seconds, 0)
    parts = []
    for unit, size in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def counts(values: Mapping[str, int]) -> str:
    """Return ``h100:8,a100:4``."""
    return ",".join(f"{name}:{count}" for name, count in values.items())


def money(micros: int, currency: str) -> str:
    """Return millionths of a currency in cents at least."""
    from schemas.units import format_money

    return format_money(micros, currency)
