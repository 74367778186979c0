"""`triplane job --trace`: what a person sees of a job's life."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cli.trace import drawn
from libs.client.models import JobTrace, TracePhase, TraceStep
from schemas.base import Envelope
from schemas.trace import trace_of
from services.gateway.core.trace import phases, steps
from tests.support.builders import NOON, at
from tests.support.builders_trace import JOB, a_life

GOLDEN = Path(__file__).parent / "golden"


def a_trace(facts: list[Envelope], *, seconds: float, state: str = "Succeeded", attempt: int = 2) -> JobTrace:
    """Return what the gateway answers so many seconds after noon."""
    return JobTrace(
        id=JOB,
        tenant="acme",
        name="train",
        state=state,
        attempt=attempt,
        trace=trace_of(JOB),
        cut=False,
        steps=tuple(TraceStep.model_validate(step.model_dump()) for step in steps(facts)),
        phases=tuple(TracePhase.model_validate(phase.model_dump()) for phase in phases(facts, at(seconds))),
    )


def text(trace: JobTrace) -> str:
    return "\n".join(drawn(trace)) + "\n"


def test_a_life_is_drawn_as_a_waterfall_and_told_where_it_waited() -> None:
    assert text(a_trace(a_life(), seconds=100)) == (GOLDEN / "trace.txt").read_text(encoding="utf-8")


def test_what_is_not_over_lasts_until_now() -> None:
    waiting = a_trace(a_life()[:3], seconds=7, state="Queued", attempt=1)
    assert text(waiting) == (GOLDEN / "trace_waiting.txt").read_text(encoding="utf-8")


def test_a_program_gets_every_fact_and_phase() -> None:
    found = a_trace(a_life(), seconds=100).model_dump_json(indent=1) + "\n"
    assert found == (GOLDEN / "trace.json").read_text(encoding="utf-8")


def test_a_job_of_which_nothing_is_kept_has_an_empty_trace() -> None:
    assert drawn(a_trace([], seconds=0))[-1] == "nothing is kept of it any more"


def test_days_are_drawn_without_noise() -> None:
    first, second = a_life()[:2]
    days = timedelta(days=2, hours=3)
    late = [first, replace(second, time=NOON + days)]
    assert text(a_trace(late, seconds=days.total_seconds())).splitlines()[3].endswith(" 2d3h")
