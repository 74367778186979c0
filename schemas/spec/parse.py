"""Text of many documents -> one result a document: the document, or its faults, each with a remedy.

A broken document takes no other along. Bounds: 1 MiB of text, 1,000 documents, 32 levels, 20 faults a document.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import ErrorDetails, to_json

from schemas.base import Value
from schemas.spec import KINDS, Document
from schemas.spec.base import API_VERSION
from schemas.spec.text import BrokenError, Path, Piece, Plain, pieces, read

MAX_FAULTS: Final = 20
_SHOWN: Final = 60

_NAME: Final = "use a-z, 0-9 and -, start and end with a letter or digit, at most 63 characters"
_WANTED: Final = {
    "string_type": ("text", 'write it in quotes, such as "{value}"'),
    "int_type": ("a whole number", "write a whole number without quotes"),
    "int_from_float": ("a whole number", "write a whole number"),
    "tuple_type": ("a list", "write [a, b], or one '- ' line an item"),
    "dict_type": ("a mapping", "write 'key: value' lines below it"),
    "model_type": ("a mapping", "write 'key: value' lines below it"),
}
_BOUNDS: Final = (
    ("ge", "{} is too small", "write at least {}"),
    ("le", "{} is too large", "write at most {}"),
    ("min_length", "is too short", "write at least {}"),
    ("max_length", "is too long", "write at most {}"),
)


class DocumentFault(Value):
    """One thing that is wrong: the field (``spec.quotas[0].nominal``; empty: the document), and what mends it."""

    path: str
    message: str
    remedy: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = f"{self.path}: " if self.path else ""
        return f"{place}{self.message}" + (f"; {self.remedy}" if self.remedy else "")


@dataclass(frozen=True, slots=True)
class Parsed:
    """What became of one document: its number and line in the text (from 1), and the document or its faults."""

    number: int
    line: int
    kind: str | None
    name: str | None
    document: Document | None
    faults: tuple[DocumentFault, ...] = ()


def parse(text: str | bytes) -> tuple[Parsed, ...]:
    """Return a result for every document in the text, in order. Raises TextRefusedError for the text as a whole."""
    return tuple(_parsed(piece) for piece in pieces(text))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a remedy that names the nearest known name, or the known names; empty when none is known."""
    names = sorted(set(known))
    close = difflib.get_close_matches(word[:128], names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]}?"
    more = ", …" if len(names) > 20 else ""
    return f"known: {', '.join(names[:20])}{more}" if names else ""


def field_path(path: Path) -> str:
    """Return a path as people write it: ``spec.quotas[0].nominal``."""
    words = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(words).removeprefix(".")


def _parsed(piece: Piece) -> Parsed:
    try:
        plain = read(piece)
    except BrokenError as error:
        fault = DocumentFault(path=field_path(error.path), message=error.message, remedy=error.remedy, line=error.line)
        return Parsed(piece.number, piece.line, None, None, None, (fault,))
    kind, name = _named(plain.value)
    faults = _envelope_faults(plain)
    if faults:
        return Parsed(piece.number, piece.line, kind, name, None, faults)
    document, faults = _validated(KINDS[kind or ""], plain)
    return Parsed(piece.number, piece.line, kind, name, document, faults)


def _named(value: JsonValue) -> tuple[str | None, str | None]:
    if not isinstance(value, dict):
        return None, None
    metadata = value.get("metadata")
    kind, name = value.get("kind"), metadata.get("name") if isinstance(metadata, dict) else None
    return kind if isinstance(kind, str) else None, name if isinstance(name, str) else None


def _envelope_faults(plain: Plain) -> tuple[DocumentFault, ...]:
    value = plain.value
    if not isinstance(value, dict):
        message = f"{_shown(value)} is not a document"
        return (DocumentFault(path="", message=message, remedy="write apiVersion, kind, metadata and spec"),)
    faults = []
    if value.get("apiVersion") != API_VERSION:
        message = _unless_known(value, "apiVersion")
        faults.append(_fault(plain, ("apiVersion",), message, f"write apiVersion: {API_VERSION}"))
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        remedy = nearest(kind if isinstance(kind, str) else "", KINDS)
        faults.append(_fault(plain, ("kind",), _unless_known(value, "kind"), remedy))
    return tuple(faults)


def _unless_known(value: dict[str, JsonValue], key: str) -> str:
    return f"{_shown(value[key])} is not known" if key in value else "is missing"


def _validated(model: type[BaseModel], plain: Plain) -> tuple[Document | None, tuple[DocumentFault, ...]]:
    try:
        document: Any = model.model_validate_json(to_json(plain.value), strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        details = _first_causes(error.errors(include_url=False))
        return None, tuple(_described(model, plain, detail) for detail in details[:MAX_FAULTS])
    return document, ()


def _first_causes(details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Return the errors without lists that are too short only because their items are broken."""
    broken = {detail["loc"][:-2] for detail in details} | {detail["loc"][:-1] for detail in details}
    return [d for d in details if d["type"] != "too_short" or d["loc"] not in broken]


def _described(model: type[BaseModel], plain: Plain, detail: ErrorDetails) -> DocumentFault:
    path = tuple(step for step in detail["loc"] if step != "[key]")
    message, remedy = _explained(model, path, detail)
    return _fault(plain, path, message, remedy)


def _fault(plain: Plain, path: Path, message: str, remedy: str) -> DocumentFault:
    line = next((plain.lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in plain.lines), None)
    return DocumentFault(path=field_path(path), message=message, remedy=remedy, line=line)


def _explained(model: type[BaseModel], path: Path, detail: ErrorDetails) -> tuple[str, str]:
    """Return the message and the remedy of one of pydantic's errors."""
    given = _shown(detail["input"])
    match detail["type"]:
        case "extra_forbidden":
            return "is not a field of this document", nearest(str(path[-1]), _fields_at(model, path[:-1]))
        case "missing":
            return "is missing", f"add {path[-1]}"
        case kind if kind in _WANTED:
            wanted, remedy = _WANTED[kind]
            return f"{given} is not {wanted}", remedy.format(value=given.strip("'"))
        case "string_pattern_mismatch":
            return f"{given} is not a name", _NAME if path[-2:-1] != ("env",) else "use letters, digits and _"
        case _:
            return _out_of_bounds(detail, given)


def _out_of_bounds(detail: ErrorDetails, given: str) -> tuple[str, str]:
    context = detail.get("ctx", {})
    for bound, message, remedy in _BOUNDS:
        if bound in context:
            return message.format(given), remedy.format(context[bound])
    if "expected" in context:
        choices = [word.strip("' ") for word in str(context["expected"]).replace(" or ", ",").split(",")]
        return f"{given} is not known", nearest(str(detail["input"]), choices)
    message, _, remedy = str(context.get("error", detail["msg"])).partition("; ")
    return message, remedy


def _fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """Return the fields that the piece of the document at this path may have."""
    found: type[BaseModel] | None = model
    for step in path:
        if found is not None and isinstance(step, str):
            annotations = {f.alias or name: f.annotation for name, f in found.model_fields.items()}
            found = _model_in(annotations.get(step))
    return [f.alias or name for name, f in found.model_fields.items()] if found else []


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part))), None)


def _shown(value: object) -> str:
    """Return a value as people wrote it, cut short."""
    text = repr(value) if isinstance(value, str) else to_json(value, fallback=str).decode()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
