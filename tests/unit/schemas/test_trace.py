"""Ids of traces and spans: derived, well-formed, evenly spread."""

import re
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.ids import JobId, fact_id, job_id, run_name
from schemas.trace import Context, is_sampled, parse, root_of, span_of, span_of_run, trace_of
from tests.support.builders import a_job_id, a_node_id

JOB = a_job_id()
GOOD = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_trace_of_a_job_is_in_its_id() -> None:
    assert f"job_{trace_of(JOB)}" == JOB


def test_an_id_of_another_form_has_a_trace_of_its_own() -> None:
    traces = {trace_of(JobId(name)) for name in ("job_a", "job_b", "train")}
    assert len(traces) == 3
    assert all(re.fullmatch(r"[0-9a-f]{32}", trace) for trace in traces)


def test_a_job_s_trace_begins_with_its_submission() -> None:
    assert root_of(JOB) == span_of(fact_id("workload.request.submitted.v1", JOB, 1))


@given(st.uuids(version=5))
def test_a_fact_s_span_is_never_the_empty_one(fact: UUID) -> None:
    assert int(span_of(fact), 16) > 0


def test_each_run_on_each_node_is_a_span() -> None:
    keys = [(attempt, epoch, node) for attempt in (1, 2) for epoch in (1, 2) for node in ("n1", "n2")]
    spans = {span_of_run(run_name(JOB, attempt), epoch, a_node_id(node)) for attempt, epoch, node in keys}
    assert len(spans) == len(keys)


def test_a_traceparent_says_what_was_meant() -> None:
    assert parse(GOOD) == Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=True)
    assert parse(GOOD[:-1] + "0") == Context("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", sampled=False)
    for sampled in (True, False):
        context = Context(trace_of(JOB), root_of(JOB), sampled)
        assert parse(context.traceparent) == context


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        GOOD.upper(),
        f"{GOOD}-more",
        GOOD.replace("00-", "ff-", 1),
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
    ],
)
def test_what_is_no_traceparent_is_passed_over(text: str | None) -> None:
    assert parse(text) is None


def test_a_later_version_may_say_more() -> None:
    assert parse(f"{GOOD.replace('00-', '01-', 1)}-more") == parse(GOOD)


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_of_all_jobs_that_part_is_sampled(ratio: float) -> None:
    traces = [trace_of(job_id("acme", f"job-{number}", 1)) for number in range(4_000)]
    assert sum(is_sampled(trace, ratio) for trace in traces) / len(traces) == pytest.approx(ratio, abs=0.03)


def test_what_is_sampled_at_a_ratio_is_sampled_at_every_greater_one() -> None:
    for trace in (uuid4().hex for _ in range(100)):
        sampled = [is_sampled(trace, ratio / 10) for ratio in range(11)]
        assert sampled == sorted(sampled)
        assert (sampled[0], sampled[-1]) == (False, True)
