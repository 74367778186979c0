"""Raw YAML or JSON text -> plain values, document by document, with the line of every field.

YAML without its traps: no aliases, no tags, no repeated keys, no keys that are not text, and only ``true``, ``false``,
``null`` and decimal numbers are anything but text (``yes``, ``1:30`` and ``2026-01-01`` are text). JSON is read by the
same reader, since it is YAML.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml
from pydantic import JsonValue

MAX_TEXT_BYTES: Final = 1 << 20
MAX_DOCUMENTS: Final = 1_000
MAX_DEPTH: Final = 32

Path = tuple[str | int, ...]

_MARKER: Final = re.compile(r"^(?:---|\.\.\.)(?=\s|\Z)", re.MULTILINE)
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9]\d{0,17})")
_DECIMAL: Final = re.compile(r"[-+]?\d{1,15}\.\d{1,15}")
_PAIR: Final = re.compile(r"(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_WORDS: Final[dict[str, JsonValue]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}


class TextRefusedError(ValueError):
    """The text as a whole is not read: too large, too many documents, not UTF-8."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")
        self.message = message
        self.remedy = remedy


class BrokenError(ValueError):
    """One document can not be read. ``line`` counts from the start of the whole text."""

    def __init__(self, message: str, remedy: str, *, line: int, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.line = line
        self.path = path


@dataclass(frozen=True, slots=True)
class Piece:
    """The text of one document: its number and first line, both from 1."""

    number: int
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Plain:
    """A document as plain values, and the line of every field."""

    value: JsonValue
    lines: dict[Path, int] = field(default_factory=dict)


def pieces(text: str | bytes) -> tuple[Piece, ...]:
    """Split a text at its document markers, so that a broken document takes no other along. Raises TextRefusedError."""
    found = tuple(_pieces(_bounded(text).removeprefix("\ufeff")))
    if len(found) > MAX_DOCUMENTS:
        raise TextRefusedError(f"{len(found)} documents are over the limit of {MAX_DOCUMENTS}", "send them in parts")
    return found


def read(piece: Piece) -> Plain:
    """Return what one document says. Raises BrokenError at the first thing that can not be read."""
    text = _PAIR.sub(_character, piece.text) if piece.text.lstrip().startswith("{") else piece.text
    return _Reader(piece.line, text).read()


def _character(match: re.Match[str]) -> str:
    return str(json.loads(f'"{match[0]}"'))


def _bounded(text: str | bytes) -> str:
    try:
        body = text.encode() if isinstance(text, str) else text
        if len(body) > MAX_TEXT_BYTES:
            raise TextRefusedError(f"{len(body)} bytes are over the limit of {MAX_TEXT_BYTES}", "send it in parts")
        return body.decode()
    except UnicodeError as error:
        raise TextRefusedError("the text is not UTF-8", "save it as UTF-8") from error


def _pieces(text: str) -> Iterator[Piece]:
    number, line, start = 0, 1, 0
    ends = [(match.start(), match.end()) for match in _MARKER.finditer(text)]
    for end, following in [*ends, (len(text), len(text))]:
        body = text[start:end]
        if not all(map(_says_nothing, body.split("\n"))):
            number += 1
            yield Piece(number, line, body)
        line += body.count("\n")
        start = following


def _says_nothing(line: str) -> bool:
    return line.startswith("%") or line.lstrip()[:1] in {"", "#"}


class _Reader:
    """Builds values from the parser's events, so that nothing unwanted is ever built."""

    def __init__(self, first_line: int, text: str) -> None:
        self._first_line = first_line
        self._text = text
        self._lines: dict[Path, int] = {}
        self._events: Iterator[yaml.Event] = iter(())

    def read(self) -> Plain:
        try:
            self._events = yaml.parse(self._text, Loader=yaml.CSafeLoader)
            assert isinstance(next(self._events), yaml.StreamStartEvent)
            assert isinstance(next(self._events), yaml.DocumentStartEvent)
            value = self._node(next(self._events), ())
            assert isinstance(next(self._events), yaml.DocumentEndEvent)
            self._expect_end(next(self._events))
        except yaml.reader.ReaderError as error:
            line = self._first_line + self._text.encode()[: error.position].count(b"\n")
            raise BrokenError("holds a character that YAML does not allow", "take it out", line=line) from error
        except yaml.MarkedYAMLError as error:
            raise BrokenError(f"is not YAML: {_words(error)}", _remedy(error), line=self._line(error)) from error
        return Plain(value, self._lines)

    def _expect_end(self, event: yaml.Event) -> None:
        if not isinstance(event, yaml.StreamEndEvent):
            raise BrokenError("goes on after its end", "put --- between two documents", line=self._at(event))

    def _line(self, error: yaml.MarkedYAMLError) -> int:
        mark = error.problem_mark
        if error.context_mark and (mark is None or mark.line > self._text.rstrip().count("\n")):
            mark = error.context_mark  # what is open at the end was opened there
        return self._first_line + (mark.line if mark else 0)

    def _at(self, event: yaml.Event) -> int:
        return self._first_line + (event.start_mark.line if event.start_mark else 0)

    def _node(self, event: yaml.Event, path: Path) -> JsonValue:
        if len(path) > MAX_DEPTH:
            raise self._broken(event, path, f"is nested more than {MAX_DEPTH} deep", "flatten it")
        if isinstance(event, yaml.AliasEvent):
            raise self._broken(event, path, f"refers to *{event.anchor}", "write the value out; aliases are not taken")
        if getattr(event, "tag", None) not in (None, "!", _TEXT_TAG):
            raise self._broken(event, path, "has a tag", "write the plain value; tags are not taken")
        if isinstance(event, yaml.ScalarEvent):
            if "\x00" in event.value:
                raise self._broken(event, path, "holds a NUL character", "take it out")
            return self._scalar(event)
        return self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)

    def _scalar(self, event: yaml.ScalarEvent) -> JsonValue:
        text: str = event.value
        if not event.implicit[0] or event.tag is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        return float(text) if _DECIMAL.fullmatch(text) else text

    def _sequence(self, path: Path) -> JsonValue:
        values: list[JsonValue] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            place = (*path, len(values))
            self._lines[place] = self._at(event)
            values.append(self._node(event, place))
        return values

    def _mapping(self, path: Path) -> JsonValue:
        values: dict[str, JsonValue] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path)
            place = (*path, key)
            if key in values:
                message = f"is written twice, on lines {self._lines[place]} and {self._at(event)}"
                raise self._broken(event, place, message, "keep one")
            self._lines[place] = self._at(event)
            values[key] = self._node(next(self._events), place)
        return values

    def _key(self, event: yaml.Event, path: Path) -> str:
        key = self._node(event, path) if isinstance(event, yaml.ScalarEvent | yaml.AliasEvent) else None
        if isinstance(key, str):
            return key
        raise self._broken(event, path, "has a key that is not text", "write the key as text, in quotes if needed")

    def _broken(self, event: yaml.Event, path: Path, message: str, remedy: str) -> BrokenError:
        return BrokenError(message, remedy, line=self._at(event), path=path)


def _words(error: yaml.MarkedYAMLError) -> str:
    return ", ".join(part for part in (error.problem, error.context) if part)


def _remedy(error: yaml.MarkedYAMLError) -> str:
    text = f"{error.problem} {error.context}"
    if "tab" in text or "cannot start any token" in text:
        return "indent with spaces, and put text that starts with a special character in quotes"
    if "mapping values are not allowed" in text:
        return "put a text that holds ': ' in quotes, and check the indentation"
    return "check indentation, quotes and brackets around this line"
