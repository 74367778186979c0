"""Compatibility of two JSON Schemas of one fact: within a major, only optional fields with defaults are added."""

from collections.abc import Iterator
from typing import Any, Final

Schema = dict[str, Any]
MEANING: Final = ("type", "format", "const", "pattern")


def breaks(before: Schema, after: Schema) -> list[str]:
    """Return what a reader of ``before`` would choke on in what a writer of ``after`` says, and the other way round."""
    return sorted(set(_breaks("", before, after, before, after)))


def _resolve(node: Schema, root: Schema) -> Schema:
    reference = node.get("$ref")
    if reference is None:
        return node
    return dict(root["$defs"][reference.rpartition("/")[2]])


def _breaks(path: str, before: Schema, after: Schema, old: Schema, new: Schema) -> Iterator[str]:
    before, after = _resolve(before, old), _resolve(after, new)
    where = path or "the fact"
    for word in MEANING:
        if before.get(word) != after.get(word):
            yield f"{where}: {word} changed from {before.get(word)!r} to {after.get(word)!r}"
    gone = [value for value in before.get("enum", ()) if value not in after.get("enum", ())]
    if gone:
        yield f"{where}: values {gone} are gone"
    yield from _field_breaks(path, before, after, old, new)
    for word in ("items", "additionalProperties"):
        if isinstance(before.get(word), dict) and isinstance(after.get(word), dict):
            yield from _breaks(f"{path}[]", before[word], after[word], old, new)
    yield from _choice_breaks(path, before, after, old, new)


def _field_breaks(path: str, before: Schema, after: Schema, old: Schema, new: Schema) -> Iterator[str]:
    fields, others = before.get("properties", {}), after.get("properties", {})
    for name, field in fields.items():
        place = f"{path}.{name}".lstrip(".")
        if name not in others:
            yield f"{place}: the field is gone"
        else:
            yield from _breaks(place, field, others[name], old, new)
    required, demanded = set(before.get("required", ())), set(after.get("required", ()))
    for name in sorted(demanded - required):
        yield f"{f'{path}.{name}'.lstrip('.')}: the field is required now"
    for name in sorted(required - demanded):
        yield f"{f'{path}.{name}'.lstrip('.')}: the field may be missing now"


def _choice_breaks(path: str, before: Schema, after: Schema, old: Schema, new: Schema) -> Iterator[str]:
    choices, others = before.get("anyOf", ()), after.get("anyOf", ())
    if len(choices) != len(others):
        yield f"{path or 'the fact'}: another choice of types"
        return
    for choice, other in zip(choices, others, strict=True):
        yield from _breaks(path, choice, other, old, new)
