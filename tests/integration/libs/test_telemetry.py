"""What a service tells of its work: one trace a job, one span a turn, and numbers of what happened."""

from collections import Counter
from collections.abc import Sequence
from itertools import count

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from pydantic import BaseModel

from libs.errors import RefusedError, TransientError, UnavailableError
from libs.service import Service, Turn
from schemas.base import Envelope
from schemas.trace import parse, span_of, trace_of
from tests.support import scrapes
from tests.support.builders import a_job_id
from tests.support.eventually import eventually
from tests.support.scrapes import recorded, scrape
from tests.support.shell_services import QUEUED, SUBMITTED, admission, gateway, wish
from tests.support.shell_worlds import RealWorld, World

SUBJECT = "call.audit.query"  # gateway asks, audit answers


class Text(BaseModel):
    """A question or an answer."""

    text: str


async def test_every_fact_of_a_job_is_in_the_one_trace_of_the_job(world: World) -> None:
    sayer, taker = gateway(world), admission(world)
    recorded(taker.telemetry.tracer, "admission")
    async with world.running(sayer, taker):
        await wish(sayer, "one", "two")
        await eventually(lambda: _has(world, "gateway", 2))
        stored = await world.stored("WORKLOAD")
    traces: dict[str, set[str]] = {}
    for heard in stored:
        context = parse(heard.envelope.traceparent)
        assert context is not None
        is_traced = heard.envelope.source == "admission"  # who records nothing spares the header
        assert heard.headers.get("traceparent") == (heard.envelope.traceparent if is_traced else None)
        assert (context.span, context.sampled) == (span_of(heard.envelope.id), True)
        traces.setdefault(heard.envelope.key, set()).add(context.trace)
    assert traces == {name: {trace_of(a_job_id(name))} for name in ("one", "two")}
    assert len(stored) == 4


async def test_a_turn_is_one_span_linked_to_all_that_it_heard_and_said(world: World) -> None:
    names = [f"job-{number}" for number in range(20)]
    taker = admission(world)
    exporter = recorded(taker.telemetry.tracer, "admission")
    sayer = gateway(world)
    async with world.running(sayer):
        await wish(sayer, *names)
        await eventually(lambda: _stored(world, 20))
        async with world.running(taker):
            await eventually(lambda: _stored(world, 40))
            spans = await eventually(lambda: _with_turns(exporter.get_finished_spans()))
        stored = [heard.envelope for heard in await world.stored("WORKLOAD")]
    turns = [span for span in spans if span.name == "take admission-workload"]
    facts = {scrapes.span_of(span): span for span in spans if span.name == "workload.job.queued"}
    assert {turn.kind for turn in turns} == {SpanKind.CONSUMER}
    assert len(turns) < len(names)
    assert set().union(*map(scrapes.links_of, turns)) == {span_of(fact.id) for fact in stored}
    assert set(facts) == {span_of(fact.id) for fact in stored if fact.type == QUEUED}
    for fact in stored:
        if fact.type == QUEUED and fact.cause is not None:
            span = facts[span_of(fact.id)]
            assert (scrapes.trace_of(span), scrapes.parent_of(span)) == (
                trace_of(a_job_id(fact.key)),
                span_of(fact.cause),
            )
            assert scrapes.links_of(span) <= {scrapes.span_of(turn) for turn in turns}


async def test_what_happens_is_counted_once(world: World) -> None:
    times = count(1)

    async def react(_: Turn, heard: Envelope) -> None:
        if heard.key == "late" and next(times) < 3:
            raise TransientError("not yet")

    taker = admission(world, react)
    sayer = gateway(world)
    async with world.running(sayer, taker):
        await wish(sayer, "one", "late")
        await world.say_raw("WORKLOAD", "workload.request.submitted.v1.acme.bad", b"{}", "bad.1")
        await eventually(lambda: _has(world, "gateway", 2), seconds=60)
        await eventually(lambda: world.stored("DEAD"))
        found, asked = await scrape(taker), await scrape(sayer)
    assert found.lines("triplane_facts_taken_total") == {(SUBMITTED,): 2}
    assert found.lines("triplane_facts_said_total") == {(QUEUED,): 2}
    assert asked.lines("triplane_facts_said_total") == {(SUBMITTED,): 2}
    assert asked.lines("triplane_facts_taken_total") == {(QUEUED,): 2}
    assert found.lines("triplane_dead_letters_total") == {("admission-workload", "undecodable"): 1}
    assert found.value("triplane_redeliveries_total", durable="admission-workload") == 1
    apart = found.value("triplane_batches_apart_total", durable="admission-workload")
    assert apart is not None
    assert apart >= 1
    assert found.value("triplane_turn_messages_sum", durable="admission-workload") == 4
    assert found.value("triplane_info", service="admission", version=_version(found)) == 1


async def test_a_question_and_its_answer_are_timed_and_linked(world: World) -> None:
    asker, answerer = world.service("gateway"), world.service("audit")

    async def answer(_: Turn, questions: Sequence[bytes]) -> Sequence[Text]:
        texts = [Text.model_validate_json(question) for question in questions]
        if any(text.text == "refuse" for text in texts):
            raise RefusedError("NotAllowed")
        return texts

    answerer.answer(SUBJECT, answer)
    asked, answered = recorded(asker.telemetry.tracer, "gateway"), recorded(answerer.telemetry.tracer, "audit")
    async with world.running(asker, answerer):
        await asker.call(SUBJECT, Text(text="one"), timeout=30)
        with pytest.raises(RefusedError):
            await asker.call(SUBJECT, Text(text="refuse"), timeout=30)
        with pytest.raises(UnavailableError):
            await asker.call("call.node.n1.find", Text(text="nobody"), timeout=0.2)
        answers = await eventually(lambda: _named(answered.get_finished_spans(), f"answer {SUBJECT}", 2))
        asks = _named(asked.get_finished_spans(), SUBJECT, 2)
        found, told = await scrape(asker), await scrape(answerer)
    assert set().union(*map(scrapes.links_of, answers)) == {scrapes.span_of(span) for span in asks}
    outcomes = found.lines("triplane_call_seconds_count")
    assert outcomes == {
        (SUBJECT, "answered"): 1,
        (SUBJECT, "refused"): 1,
        ("call.node.*.find", "unavailable"): 1,
    }
    assert told.value("triplane_answer_seconds_count", call=SUBJECT) == 2


async def test_a_loop_that_fails_for_now_is_counted(world: World) -> None:
    errors = [TransientError("not yet"), TransientError("not now")]
    service = world.service("gateway")

    async def work() -> None:
        if errors:
            raise errors.pop()

    async def rounds() -> scrapes.Scrape:
        found = await scrape(service)
        assert found.value("triplane_loop_seconds_count", loop="chores") == 3
        return found

    service.loop("chores", work, every=60)
    async with world.running(service):
        found = await eventually(rounds)
    assert found.value("triplane_loop_errors_total", loop="chores") == 2


async def test_facts_that_cannot_be_said_are_a_backlog(real: RealWorld) -> None:
    service = gateway(real)
    async with real.running(service):
        await real.bus_away()
        await wish(service, "one", "two")
        waiting = await eventually(lambda: _backlog(service, 2), seconds=60)
        await real.bus_back()
        await eventually(lambda: _backlog(service, 0), seconds=60)
    age = waiting.value("triplane_relay_oldest_unsent_seconds")
    assert age is not None
    assert 0 < age < 60
    assert waiting.value("triplane_ready") == 0


async def _backlog(service: Service, facts: int) -> scrapes.Scrape:
    found = await scrape(service)
    assert found.value("triplane_relay_backlog_facts") == facts
    return found


async def _has(world: World, service: str, number: int) -> bool:
    return len(await world.effects(service)) == number


async def _stored(world: World, number: int) -> bool:
    return len(await world.stored("WORKLOAD")) == number


def _with_turns(spans: Sequence[ReadableSpan]) -> Sequence[ReadableSpan]:
    """Return the spans once those of the turns are there: a turn's comes behind those of its facts."""
    names = Counter(span.name for span in spans)
    assert names["workload.job.queued"] == 20
    heard = set().union(*(scrapes.links_of(span) for span in spans if span.name == "take admission-workload"))
    assert len(heard) == 40
    return spans


def _named(spans: Sequence[ReadableSpan], name: str, number: int) -> list[ReadableSpan]:
    found = [span for span in spans if span.name == name]
    assert len(found) == number, [span.name for span in spans]
    return found


def _version(found: scrapes.Scrape) -> str:
    ((_, version),) = found.lines("triplane_info")
    return version
