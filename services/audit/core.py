"""The chain: each entry's hash covers the entry before it, so nothing can be changed, removed or slipped in. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic_core import from_json

from schemas.calls import AuditEntry

GENESIS: Final = bytes(32)
ENTITY: Final = re.compile(r"[a-z]+_[0-9a-f]{32}(-a\d+)?")
SHORTEST: Final = len("x_") + 32  # of what can be an entity
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_PAGE_BYTES: Final = 512 * 1024  # an answer is one message of the bus, which takes 1 MiB


@dataclass(frozen=True, slots=True)
class Head:
    """Where the chain ends: its last entry's number (0: none) and hash."""

    sequence: int = 0
    hash: bytes = GENESIS


@dataclass(frozen=True, slots=True)
class Entry:
    """A fact's place in the chain. ``body`` is the fact's canonical JSON; what is indexed is read from it."""

    sequence: int
    heard_at: datetime
    body: bytes
    previous: bytes
    hash: bytes
    fact: UUID
    type: str
    scope: str
    key: str
    source: str
    tenant: str | None
    entities: tuple[str, ...]

    @property
    def head(self) -> Head:
        """The chain's end, if it ended here."""
        return Head(self.sequence, self.hash)


def chained(head: Head, bodies: Iterable[bytes], *, now: datetime) -> Iterator[Entry]:
    """Yield the entries that these facts become behind the head."""
    for body in bodies:
        entry = _entry(head, body, now)
        yield entry
        head = entry.head


def follows(entry: Entry, head: Head) -> bool:
    """Say whether this entry is, in every field, what was written behind this head."""
    try:
        return entry == _entry(head, entry.body, entry.heard_at)
    except (ValueError, KeyError, TypeError, AttributeError):
        return False  # what was written can be read, so this was not written


def page(entries: Iterable[Entry]) -> tuple[AuditEntry, ...]:
    """Return the first of these entries that fit into one answer, at least one; who asks goes on behind the last."""
    shown: list[AuditEntry] = []
    size = 0
    for entry in entries:
        size += len(entry.body)
        if shown and size > MAX_PAGE_BYTES:
            break
        shown.append(_shown(entry))
    return tuple(shown)


def _entry(head: Head, body: bytes, heard_at: datetime) -> Entry:
    fact = orjson.loads(body)
    sequence, data = head.sequence + 1, fact["data"]
    entities = {fact["subject"]}
    _name(data, entities)
    return Entry(
        sequence=sequence,
        heard_at=heard_at,
        body=body,
        previous=head.hash,
        hash=_hash(head.hash, sequence, heard_at, body),
        fact=UUID(fact["id"]),
        type=fact["type"],
        scope=fact["scope"],
        key=fact["subject"],
        source=fact["source"],
        tenant=data.get("tenant"),
        entities=tuple(sorted(entities)),
    )


def _hash(previous: bytes, sequence: int, heard_at: datetime, body: bytes) -> bytes:
    microseconds = (heard_at - EPOCH) // timedelta(microseconds=1)
    return sha256(previous + sequence.to_bytes(8) + microseconds.to_bytes(8, signed=True) + body).digest()


def _name(value: Any, found: set[str]) -> None:
    """Add the entities that a value of JSON names. Plain types are compared by identity: this sees every word said."""
    kind = type(value)
    if kind is str:
        if len(value) >= SHORTEST and ENTITY.fullmatch(value):
            found.add(value)
    elif kind is dict or kind is list:
        for each in value.values() if kind is dict else value:
            _name(each, found)


def _read(body: bytes) -> dict[str, Any]:
    """Return the fact, or nothing where somebody has made it unreadable: what is broken has to be shown, too."""
    try:
        fact = from_json(body)
    except ValueError:
        return {}
    return fact if isinstance(fact, dict) else {}


def _shown(entry: Entry) -> AuditEntry:
    return AuditEntry(
        sequence=entry.sequence,
        heard_at=entry.heard_at,
        type=entry.type,
        scope=entry.scope,
        key=entry.key,
        source=entry.source,
        fact=_read(entry.body),
        previous_hash=entry.previous.hex(),
        hash=entry.hash.hex(),
    )
