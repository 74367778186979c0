"""What a fact is: an event in the past tense, in an envelope with CloudEvents attributes."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Final
from uuid import UUID

from pydantic import BaseModel, ConfigDict

_WORDS: Final = re.compile(r"[A-Z][a-z]*")
_MAJOR: Final = re.compile(r"V(\d+)$")


class Value(BaseModel):
    """A frozen part of a fact. Unknown fields are ignored, so that a newer writer may add optional ones."""

    # built when it is first used: no process needs all, and each would begin a third later
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Event(Value):
    """A fact in the past tense. The class name is noun and verb (``JobAdmitted``), the module is the plane."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One fact on its way.

    ``version`` counts the entity's facts and is given by its one writer: consumers order by it, never by ``time``.
    ``scope`` is the tenant (workload, ledger) or the cluster (runtime, fleet); ``key`` is the entity's id.
    ``raw`` are the bytes it was read from, for who keeps facts as they were said; None: it was not read.
    """

    id: UUID
    type: str
    source: str
    time: datetime
    scope: str
    key: str
    version: int
    data: Event
    cause: UUID | None = None
    traceparent: str | None = None
    raw: bytes | None = field(default=None, compare=False, repr=False)


@cache
def fact_name(fact: type[Event]) -> str:
    """Return ``plane.noun.verb`` of an event class: JobQuotaReserved in workload -> workload.job.quota_reserved."""
    noun, *verb = _WORDS.findall(_MAJOR.sub("", fact.__name__))
    plane = fact.__module__.split(".")[1]
    return f"{plane}.{noun.lower()}.{'_'.join(word.lower() for word in verb)}"


def major(fact: type[Event]) -> int:
    """Return the major version of an event class: JobAdmitted -> 1, JobAdmittedV2 -> 2."""
    match = _MAJOR.search(fact.__name__)
    return int(match[1]) if match else 1


@cache
def fact_type(fact: type[Event]) -> str:
    """Return the CloudEvents type: ``workload.job.admitted.v1``."""
    return f"{fact_name(fact)}.v{major(fact)}"
