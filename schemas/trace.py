"""The trace of a job: every fact of it is one span there. All ids are derived, so nothing is carried and nothing kept.

W3C Trace Context: a traceparent is ``00-<trace: 32 hex>-<span: 16 hex>-<flags>``; flag 1 means sampled.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from schemas.base import fact_type
from schemas.ids import JobId, NodeId, RunName, fact_id, named
from schemas.workload import RequestSubmitted

JOBS: Final = 4_096  # whose derived ids are kept at hand: each job says a dozen facts
_JOB: Final = re.compile(r"job_([0-9a-f]{32})")
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SUBMITTED: Final = fact_type(RequestSubmitted)
_RANDOM_BITS: Final = 56  # the lowest of a trace id are evenly spread, as W3C asks: in a UUID the bits above are not


class Context(NamedTuple):
    """Names one span: ``trace`` is 32 hex digits, ``span`` 16."""

    trace: str
    span: str
    sampled: bool

    @property
    def traceparent(self) -> str:
        """The context as W3C writes it."""
        return f"00-{self.trace}-{self.span}-{'01' if self.sampled else '00'}"


def parse(traceparent: str | None) -> Context | None:
    """Return the context in these words; None for none, and for what W3C says to pass over."""
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    is_valid = version != "ff" and int(trace, 16) and int(span, 16) and not (version == "00" and more)
    return Context(trace, span, bool(int(flags, 16) & 1)) if is_valid else None


@lru_cache(JOBS)
def trace_of(job: JobId) -> str:
    """Return the trace of a job: the 32 hex digits of its id (of an id of another form, a hash)."""
    match = _JOB.fullmatch(job)
    return match[1] if match else named(f"trace/{job}").hex


def span_of(fact: UUID) -> str:
    """Return the span that a fact is."""
    return fact.hex[16:]


@lru_cache(JOBS)
def root_of(job: JobId) -> str:
    """Return the first span of a job's trace: that of its submission."""
    return span_of(fact_id(_SUBMITTED, job, 1))


def span_of_run(run: RunName, epoch: int, node: NodeId) -> str:
    """Return the span of a run on one node, under which the user's own spans come."""
    return span_of(named(f"span/{run}/{epoch}/{node}"))


def is_sampled(trace: str, ratio: float) -> bool:
    """Return whether a trace is among this part of all traces: the same everywhere, without asking anybody."""
    return ratio >= 1 or int(trace, 16) & ((1 << _RANDOM_BITS) - 1) < ratio * (1 << _RANDOM_BITS)
