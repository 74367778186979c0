"""Spans: what a service says is a span in the trace of its job; what it does meanwhile is one of its own, linked to it.

Off, unless somebody records: then nothing but the traceparent of a fact is worked out.
"""

import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from schemas import trace
from schemas.base import Envelope, Event
from schemas.ids import JobId, NodeId, RunName
from schemas.runtime import ObservationNoticed
from schemas.trace import Context
from schemas.workload import ExitRecord

LINKS: Final = 512  # of one span: more than a batch has messages
_SAMPLED: Final = "-01"
_WISH: Final = "workload.request."
Attributes = dict[str, str | int | bool]
Cause = Envelope | UUID | None


class Kind(StrEnum):
    """What a span is to the spans around it, in OpenTelemetry's words."""

    INTERNAL = "INTERNAL"
    SERVER = "SERVER"
    CLIENT = "CLIENT"
    PRODUCER = "PRODUCER"
    CONSUMER = "CONSUMER"


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took its time. Times are nanoseconds since 1970; ``parent`` is a span of the same trace."""

    name: str
    kind: Kind
    context: Context
    parent: str | None
    began: int
    ended: int
    links: Sequence[Context] = ()
    attributes: Attributes = field(default_factory=dict)


class Recorder(Protocol):
    """Takes spans that are over. Neither blocks nor raises."""

    def record(self, span: Span) -> None:
        """Take a span."""

    async def close(self) -> None:
        """Send what was taken, as far as that goes quickly."""


@dataclass(slots=True)
class Activity:
    """What is being done now. It is recorded when something sampled is linked to it."""

    name: str
    context: Context
    links: list[Context]
    needed: bool = False
    is_over: bool = False

    def produced(self, context: Context) -> None:
        """Link it to what it said."""
        self.needed = True
        if len(self.links) < LINKS:
            self.links.append(context)


_CURRENT: Final[ContextVar[Activity | None]] = ContextVar("triplane_activity", default=None)


class Tracer:
    """Makes the spans of one service. ``ratio``: of all traces, this part is recorded, the same in every service."""

    def __init__(self, *, ratio: float = 1.0) -> None:
        self._ratio = ratio
        self._recorder: Recorder | None = None

    def records(self, fact: Envelope) -> bool:
        """Whether the span of a fact is recorded."""
        return self._recorder is not None and fact.traceparent is not None and fact.traceparent.endswith(_SAMPLED)

    def open(self, recorder: Recorder) -> None:
        """Let spans be recorded from now on."""
        self._recorder = recorder

    async def close(self) -> None:
        """Send what was recorded, and record no more."""
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            await recorder.close()

    def traceparent(self, event: Event, identity: UUID, kind: str, cause: Cause = None) -> str | None:
        """Return the traceparent of a fact.

        A fact of a job belongs to the job's trace, another to its cause's, and a wish of neither begins one.
        """
        job: JobId | None = getattr(event, "job", None)
        if job is not None:
            return self._in(trace.trace_of(job), trace.span_of(identity)).traceparent
        heard = trace.parse(cause.traceparent) if isinstance(cause, Envelope) else None
        if heard is not None:
            return heard._replace(span=trace.span_of(identity)).traceparent
        return self._in(identity.hex, trace.span_of(identity)).traceparent if kind.startswith(_WISH) else None

    def stamped(self, envelope: Envelope) -> Envelope:
        """Return a fact with its traceparent."""
        return replace(envelope, traceparent=self.traceparent(envelope.data, envelope.id, envelope.type))

    def of_run(self, job: JobId, run: RunName, epoch: int, node: NodeId) -> Context:
        """Return the context of a run on one node, for the processes in it."""
        return self._in(trace.trace_of(job), trace.span_of_run(run, epoch, node))

    def said(self, facts: Iterable[tuple[Envelope, Cause]]) -> None:
        """Record the spans of facts that were committed, each with what it answers, and link them to the activity."""
        if self._recorder is None:
            return
        activity = _CURRENT.get()
        for envelope, cause in facts:
            context = trace.parse(envelope.traceparent)
            if context is None or not context.sampled:
                continue
            if activity is not None:
                activity.produced(context)
            self._recorder.record(_span_of_fact(envelope, cause, context, activity.context if activity else None))
            if isinstance(envelope.data, ObservationNoticed) and envelope.data.exit is not None:
                self._recorder.record(_span_of_run(envelope.data, envelope.data.exit, context))

    def record(self, span: Span) -> None:
        """Record a span that was made elsewhere, when its trace is recorded at all."""
        if self._recorder is not None and span.context.sampled:
            self._recorder.record(span)

    @contextmanager
    def activity(
        self, name: str, kind: Kind, *, heard: Iterable[str | None] = (), parent: str | None = None
    ) -> Iterator[Activity | None]:
        """Do something as one span, linked to what was heard (traceparents) and to what is said meanwhile."""
        if self._recorder is None:
            yield None
            return
        above = trace.parse(parent)
        links = [context for context in map(trace.parse, heard) if context is not None and context.sampled]
        needed = bool(links) or (above is not None and above.sampled)
        doing = Activity(name, self._below(above, needed=needed), links[:LINKS], needed)
        token, began = _CURRENT.set(doing), time.time_ns()
        try:
            yield doing
        finally:
            _CURRENT.reset(token)
            doing.is_over = True
            self._finish(Span(doing.name, kind, doing.context, None, began, time.time_ns(), doing.links), doing, above)

    @contextmanager
    def asking(self, call: str) -> Iterator[str | None]:
        """Ask a question as one span; yields the traceparent that goes with it, if any does."""
        if self._recorder is None:
            yield None
            return
        doing = _CURRENT.get()
        above = doing.context if doing is not None and not doing.is_over else None
        context, began = self._below(above, needed=doing is not None and doing.needed), time.time_ns()
        try:
            yield context.traceparent
        finally:
            if doing is not None and context.sampled:
                doing.needed = True
            self.record(Span(call, Kind.CLIENT, context, above.span if above else None, began, time.time_ns()))

    def _in(self, found: str, span: str) -> Context:
        return Context(found, span, trace.is_sampled(found, self._ratio))

    def _finish(self, span: Span, doing: Activity, above: Context | None) -> None:
        """Record an activity that something is linked to, unless who asked for it does not record."""
        if doing.needed and (above is None or above.sampled):
            context = doing.context._replace(sampled=True)
            self.record(replace(span, context=context, parent=above.span if above else None))

    def _below(self, above: Context | None, *, needed: bool) -> Context:
        span = f"{secrets.randbits(64) or 1:016x}"
        if above is not None:
            return Context(above.trace, span, above.sampled)
        found = f"{secrets.randbits(128) or 1:032x}"
        return Context(found, span, needed or trace.is_sampled(found, self._ratio))


def _span_of_fact(envelope: Envelope, cause: Cause, context: Context, doing: Context | None) -> Span:
    """Return a fact as a span from what it answers to itself; what answers nothing known lasts no time."""
    began, parent, links = envelope.time, _parent(envelope, cause, context), [doing] if doing else []
    if isinstance(cause, Envelope):
        began = min(began, cause.time)
        heard = trace.parse(cause.traceparent)
        links += [heard] if heard is not None and heard.trace != context.trace else []
    return Span(
        name=envelope.type.rpartition(".")[0],
        kind=Kind.PRODUCER,
        context=context,
        parent=parent,
        began=_nanoseconds(began),
        ended=_nanoseconds(envelope.time),
        links=links,
        attributes=_attributes(envelope),
    )


def _span_of_run(fact: ObservationNoticed, end: ExitRecord, context: Context) -> Span:
    """Return a run on one node as a span: what its processes record under their TRACEPARENT is below it."""
    return Span(
        name="run",
        kind=Kind.INTERNAL,
        context=context._replace(span=trace.span_of_run(fact.run, fact.epoch, fact.node)),
        parent=trace.root_of(fact.job),
        began=_nanoseconds(end.started_at or end.ended_at),
        ended=_nanoseconds(end.ended_at),
        attributes={"triplane.run": fact.run, "triplane.node": fact.node, "triplane.attempt": fact.attempt},
    )


def _parent(envelope: Envelope, cause: Cause, context: Context) -> str | None:
    """Return the span of what the fact answers, or else the first of its job's trace."""
    job: JobId | None = getattr(envelope.data, "job", None)
    if isinstance(cause, UUID):
        return trace.span_of(cause)
    heard = trace.parse(cause.traceparent) if cause is not None else None
    if heard is not None and heard.trace == context.trace:
        return heard.span
    root = trace.root_of(job) if job is not None else context.span
    return root if root != context.span else None


def _attributes(envelope: Envelope) -> Attributes:
    found: Attributes = {"triplane.fact": str(envelope.id), "triplane.key": envelope.key}
    for name in ("job", "attempt", "tenant", "node"):
        value = getattr(envelope.data, name, None)
        if isinstance(value, str | int):
            found[f"triplane.{name}"] = value
    if (code := getattr(getattr(envelope.data, "reason", None), "code", None)) is not None:
        found["triplane.reason"] = str(code)
    return found


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
