"""Bytes <-> Envelope. CloudEvents 1.0, structured JSON mode, with ours as extension attributes."""

from datetime import datetime
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import orjson
from pydantic import ValidationError
from pydantic_core import to_json

from schemas.base import Envelope
from schemas.catalog import BY_EVENT, BY_TYPE
from schemas.ids import is_token

SPEC_VERSION: Final = "1.0"
MAX_BYTES: Final = 512 * 1024
FACTS: Final = 4_096  # whose ids are kept at hand: the id of one is the cause of the next
MAX_VERSION: Final = (1 << 63) - 1


class CodecError(ValueError):
    """Bytes that are no fact of this catalogue, or a fact that can not be said."""


def subject_of(envelope: Envelope) -> str:
    """Return the NATS subject: type and scope. Raises CodecError when the scope or the key is no token.

    The key is not in it: a server keeps an index of all subjects, which would grow with every entity.
    """
    for token in (envelope.scope, envelope.key):
        if not is_token(token):
            raise CodecError(f"{token!r} is not a subject token; use a-z, 0-9, _ and -, at most 64 characters")
    return f"{envelope.type}.{envelope.scope}"


def says(subject: str, envelope: Envelope) -> bool:
    """Say whether a fact stands on its own subject; an older release said its key there, too."""
    own = f"{envelope.type}.{envelope.scope}"
    return subject in (own, f"{own}.{envelope.key}")


def schema_path(type_name: str) -> str:
    """Return the path of a type's JSON Schema: ``schemas/json/workload/job/admitted.v1.json``."""
    plane, noun, verb, version = type_name.split(".")
    return f"schemas/json/{plane}/{noun}/{verb}.{version}.json"


def encode(envelope: Envelope) -> bytes:
    """Return the JSON of a fact. Raises CodecError for a type not in the catalogue or a body over 512 KiB."""
    fact = BY_EVENT.get(type(envelope.data))
    if fact is None or fact.type != envelope.type:
        raise CodecError(f"{type(envelope.data).__name__} is not the catalogue's {envelope.type}")
    head: dict[str, Any] = {
        "specversion": SPEC_VERSION,
        "id": str(envelope.id),
        "source": envelope.source,
        "type": envelope.type,
        "time": envelope.time,
        "subject": envelope.key,
        "dataschema": schema_path(envelope.type),
        "datacontenttype": "application/json",
        "scope": envelope.scope,
        "entityversion": envelope.version,
    }
    if envelope.cause is not None:
        head["cause"] = str(envelope.cause)
    if envelope.traceparent is not None:
        head["traceparent"] = envelope.traceparent
    data = envelope.data.__pydantic_serializer__.to_json(envelope.data)
    body = to_json(head)[:-1] + b',"data":' + data + b"}"
    if len(body) > MAX_BYTES:
        raise CodecError(f"a fact of {len(body)} bytes is over the limit of {MAX_BYTES}")
    return body


def as_said(envelope: Envelope) -> bytes:
    """Return the bytes of a fact as it was heard, or would be said. Raises CodecError as ``encode`` does."""
    return envelope.raw if envelope.raw is not None else encode(envelope)


def decode(body: bytes) -> Envelope:
    """Return the fact in these bytes. Raises CodecError, whatever is wrong with them."""
    if len(body) > MAX_BYTES:
        raise CodecError(f"{len(body)} bytes are over the limit of {MAX_BYTES}")
    try:
        return _envelope(orjson.loads(body), body)
    except CodecError:
        raise
    except ValidationError as error:
        raise CodecError(f"data does not fit its schema: {_faults(error)}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CodecError(f"not a fact: {type(error).__name__}: {error}") from error


def _faults(error: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_url=False)]


def _envelope(head: dict[str, Any], body: bytes) -> Envelope:
    if head["specversion"] != SPEC_VERSION:
        raise CodecError(f"CloudEvents {head['specversion']!r} is not {SPEC_VERSION}")
    fact = BY_TYPE.get(head["type"])
    if fact is None:
        raise CodecError(f"{head['type']!r} is not in the catalogue")
    cause = head.get("cause")
    time = datetime.fromisoformat(head["time"])
    if time.tzinfo is None:
        raise CodecError("time has no zone")
    return Envelope(
        id=_uuid(head["id"]),
        type=head["type"],
        source=_text(head, "source"),
        time=time,
        scope=_text(head, "scope"),
        key=_text(head, "subject"),
        version=_version(head),
        data=fact.event.model_validate(head["data"]),
        cause=_uuid(cause) if cause else None,
        traceparent=_text(head, "traceparent") if head.get("traceparent") else None,
        raw=body,
    )


@lru_cache(FACTS)
def _uuid(text: str) -> UUID:
    return UUID(text)


def _text(head: dict[str, Any], name: str) -> str:
    if not isinstance(value := head[name], str) or "\0" in value:
        raise CodecError(f"{name} is not a text that a store can keep")
    return value


def _version(head: dict[str, Any]) -> int:
    version = head["entityversion"]
    if type(version) is not int or not 0 <= version <= MAX_VERSION:
        raise CodecError("entityversion is not a whole number that a store can keep")
    return version
