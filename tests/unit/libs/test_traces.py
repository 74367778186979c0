"""Spans: what is recorded, below what, and that nothing is done where nobody records."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from libs.telemetry.traces import Kind, Recorder, Span, Tracer
from schemas.base import Envelope, fact_type
from schemas.ids import run_name
from schemas.runtime import ObservationNoticed, RunEvent
from schemas.trace import Context, parse, root_of, span_of, span_of_run, trace_of
from schemas.workload import JobAdmitted, RequestApplied
from tests.support.builders import a_grant_id, a_job_id, a_node_id, a_queue, a_submission, an_envelope, an_exit, at
from tests.support.builders_fleet import a_report
from tests.support.builders_gateway import admitted, queued

JOB, TRACE = a_job_id(), trace_of(a_job_id())
CALLER = Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True)


class Kept(Recorder):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def record(self, span: Span) -> None:
        self.spans.append(span)

    async def close(self) -> None:
        self.spans.clear()

    def one(self, name: str) -> Span:
        (span,) = [span for span in self.spans if span.name == name]
        return span


def recording(ratio: float = 1.0) -> tuple[Tracer, Kept]:
    tracer, kept = Tracer(ratio=ratio), Kept()
    tracer.open(kept)
    return tracer, kept


def a_wish(tracer: Tracer) -> Envelope:
    return tracer.stamped(an_envelope(a_submission(), key=JOB))


def answered(tracer: Tracer, cause: Envelope | UUID | None, *, seconds: float = 3) -> Envelope:
    fact = replace(an_envelope(queued(), key=JOB), time=at(seconds))
    return replace(fact, traceparent=tracer.traceparent(fact.data, fact.id, fact.type, cause))


def test_a_fact_spans_the_time_from_what_it_answers_to_itself() -> None:
    tracer, kept = recording()
    wish = a_wish(tracer)
    answer = answered(tracer, wish)
    tracer.said([(answer, wish)])
    assert kept.spans == [
        Span(
            name="workload.job.queued",
            kind=Kind.PRODUCER,
            context=Context(TRACE, span_of(answer.id), sampled=True),
            parent=root_of(JOB),
            began=int(at(0).timestamp()) * 10**9,
            ended=int(at(3).timestamp()) * 10**9,
            links=[],
            attributes={
                "triplane.fact": str(answer.id),
                "triplane.key": JOB,
                "triplane.job": JOB,
                "triplane.attempt": 1,
                "triplane.tenant": "acme",
            },
        )
    ]


def test_what_answers_a_fact_of_long_ago_is_below_it_and_what_answers_nothing_below_the_submission() -> None:
    tracer, kept = recording()
    wish = a_wish(tracer)
    for cause in (wish.id, None):
        tracer.said([(answered(tracer, cause), cause)])
    assert [span.parent for span in kept.spans] == [span_of(wish.id), root_of(JOB)]
    assert {(span.began, span.ended) for span in kept.spans} == {(int(at(3).timestamp()) * 10**9,) * 2}


def test_the_first_fact_of_a_job_is_below_nothing() -> None:
    tracer, kept = recording()
    tracer.said([(a_wish(tracer), None)])
    assert kept.one("workload.request.submitted").parent is None


def test_a_fact_that_another_job_led_to_is_linked_to_that_one() -> None:
    tracer, kept = recording()
    other = tracer.stamped(an_envelope(a_submission("other"), key=a_job_id("other")))
    tracer.said([(answered(tracer, other), other)])
    (span,) = kept.spans
    assert (span.parent, span.context.trace) == (root_of(JOB), TRACE)
    assert [link.span for link in span.links] == [span_of(other.id)]


def test_a_fact_of_no_job_goes_on_with_the_trace_of_its_cause_and_a_wish_begins_one() -> None:
    tracer = Tracer()
    wish = tracer.stamped(an_envelope(a_queue(), key="queue_1"))
    begun = parse(wish.traceparent)
    assert begun == Context(wish.id.hex, span_of(wish.id), sampled=True)
    kind, identity = fact_type(RequestApplied), UUID(int=7)
    assert tracer.traceparent(a_report(), identity, kind, wish) == f"00-{wish.id.hex}-{span_of(identity)}-01"


def test_a_heartbeat_is_in_no_trace() -> None:
    assert Tracer().stamped(an_envelope(a_report(), key="node_1")).traceparent is None


def test_what_is_done_is_recorded_when_something_is_linked_to_it() -> None:
    tracer, kept = recording()
    with tracer.activity("idle", Kind.INTERNAL):
        pass
    with tracer.activity("busy", Kind.INTERNAL):
        tracer.said([(a_wish(tracer), None)])
    assert [span.name for span in kept.spans] == ["workload.request.submitted", "busy"]
    said, busy = kept.spans
    assert (busy.links, said.links) == ([said.context], [busy.context])


def test_what_a_caller_asked_for_is_below_the_caller_and_the_job_is_linked_to_it() -> None:
    tracer, kept = recording()
    with tracer.activity("submit", Kind.SERVER, parent=CALLER.traceparent):
        tracer.said([(a_wish(tracer), None)])
    submit, wish = kept.one("submit"), kept.one("workload.request.submitted")
    assert (submit.context.trace, submit.parent) == (CALLER.trace, CALLER.span)
    assert (wish.context.trace, wish.parent, wish.links) == (TRACE, None, [submit.context])


def test_a_caller_who_records_nothing_is_left_alone() -> None:
    tracer, kept = recording()
    with tracer.activity("submit", Kind.SERVER, parent=CALLER._replace(sampled=False).traceparent):
        tracer.said([(a_wish(tracer), None)])
    assert [span.name for span in kept.spans] == ["workload.request.submitted"]


def test_a_question_is_below_what_asks_it() -> None:
    tracer, kept = recording()
    with tracer.activity("work", Kind.INTERNAL), tracer.asking("call.node.*.launch") as traceparent:
        told = parse(traceparent)
    ask, work = kept.one("call.node.*.launch"), kept.one("work")
    assert (told, ask.parent, ask.context.trace) == (ask.context, work.context.span, work.context.trace)


async def test_a_question_that_outlives_what_began_it_stands_alone() -> None:
    tracer, kept = recording()
    over = asyncio.Event()

    async def ask() -> None:
        await over.wait()
        with tracer.asking("call.node.*.seal"):
            pass

    with tracer.activity("seals", Kind.INTERNAL):
        asking = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
    over.set()
    await asking
    assert [(span.name, span.parent) for span in kept.spans] == [("call.node.*.seal", None)]


def test_the_end_of_a_run_is_its_span_below_which_the_user_s_come() -> None:
    tracer, kept = recording()
    run = run_name(JOB, 1)
    fact = ObservationNoticed(
        node=a_node_id(),
        cluster=a_report().cluster,
        boot="boot-1",
        grant=a_grant_id(),
        epoch=3,
        job=JOB,
        attempt=1,
        run=run,
        instance="i",
        event=RunEvent.ENDED,
        exit=an_exit(when=at(1)).model_copy(update={"ended_at": at(9)}),
        observed_at=at(9),
    )
    tracer.said([(tracer.stamped(an_envelope(fact, key=fact.node)), None)])
    span = kept.one("run")
    assert span.context == tracer.of_run(JOB, run, 3, a_node_id())
    assert span.context == Context(TRACE, span_of_run(run, 3, a_node_id()), sampled=True)
    assert (span.parent, span.ended - span.began) == (root_of(JOB), 8 * 10**9)


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_a_job_is_recorded_whole_or_not_at_all(ratio: float) -> None:
    for name in (f"job-{number}" for number in range(50)):
        tracer, kept = recording(ratio)
        wish = tracer.stamped(an_envelope(a_submission(name), key=a_job_id(name)))
        fact = an_envelope(admitted(name), key=a_job_id(name))
        later = replace(fact, traceparent=tracer.traceparent(fact.data, fact.id, fact_type(JobAdmitted), wish))
        tracer.said([(wish, None), (later, wish)])
        sampled = {context.sampled for context in map(parse, (wish.traceparent, later.traceparent)) if context}
        assert len(sampled) == 1
        assert len(kept.spans) == (2 if sampled == {True} else 0)


async def test_nothing_is_recorded_before_or_after() -> None:
    tracer, kept = Tracer(), Kept()
    wish = a_wish(tracer)
    with tracer.activity("before", Kind.INTERNAL) as doing, tracer.asking("call") as traceparent:
        tracer.said([(wish, None)])
    assert (doing, traceparent) == (None, None)
    tracer.open(kept)
    await tracer.close()
    tracer.said([(wish, None)])
    assert kept.spans == []
