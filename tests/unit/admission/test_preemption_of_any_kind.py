"""Whatever comes in any order: plans end lower ones alone, as few as will do, and what is held is there."""

from datetime import datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Event
from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import JobEvicted
from services.admission.core import Charge, Job
from services.admission.core.evolve import booked
from tests.support.admissions import MAIN, Table, a_table, the_grant
from tests.support.builders import a_job_id, a_submission, a_withdrawal, at, failed, released, succeeded, suspected

STEPS = st.lists(st.tuples(st.sampled_from("ssssdorrrwfl"), st.integers(0, 7)), max_size=60)
PRIORITIES = (0, 10, 20, 100)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.booleans())
def test_whatever_is_heard_only_lower_ones_are_ended_as_few_as_will_do_and_what_is_held_is_there(
    steps: list[tuple[str, int]], strict: bool
) -> None:
    table = a_table(6, strict=strict)
    for second, (letter, number) in enumerate(steps):
        start = len(table.said)
        table.hear(a_fact(table, letter, number, second), now=at(second * 5))
        check_step(table, table.said[start:], at(second * 5))
        table.grant(second * 5)


def a_fact(table: Table, letter: str, number: int, second: int) -> Event:
    name = f"j{number}"
    job = table.view.jobs.get(a_job_id(name))
    attempt = job.attempt if job else 1
    leaving = [each for each in table.view.charges.values() if not each.over and is_over(table, each)]
    left = leaving[number % len(leaving)] if leaving else None
    gone = the_grant(table.view.jobs[left.job].name, left.attempt, left.devices) if left else the_grant("none", 1, 1)
    facts: dict[str, Event] = {
        "s": a_submission(name, number % 4 + 1, priority=PRIORITIES[number % 3 + (number > 5)], retries=1),
        "d": a_submission(f"k{second}", number % 3 + 1, priority=PRIORITIES[second % 4]),
        "o": succeeded(name, attempt),
        "r": released(gone),
        "w": a_withdrawal(name),
        "f": failed(name, attempt),
        "l": suspected(gone, Code.STUCK_TERMINATION),
    }
    return facts[letter]


def check_step(table: Table, said: list[Event], now: datetime) -> None:
    view, queue = table.view, table.view.queues[MAIN]
    leaving = sum(booked(each) for each in view.charges.values() if is_over(table, each))
    due = queue.nominal["h100"] - table.used() + leaving
    holds = [job.preemption.devices for job in view.jobs.values() if job.preemption and not job.preemption.given_up]
    assert table.used() <= queue.nominal["h100"]
    assert sum(holds) <= due
    plans = [job.preemption for job in view.jobs.values() if job.preemption and job.preemption.since == now]
    victims = [fact for fact in said if isinstance(fact, JobEvicted) and fact.reason.code is Code.PREEMPTED]
    for fact in victims:
        above = fact.reason.numbers["preemptor_priority"]
        awaited = sum(job.demand.devices for job in view.jobs.values() if waits_without_plan(job, above))
        assert fact.reason.numbers["priority"] < above
        # each plan is as small as can be; of several at once the first knows nothing of those that come after it
        assert view.jobs[fact.job].demand.devices > due - sum(holds) - awaited or len(plans) > 1
    assert bool(victims) <= bool(holds)


def waits_without_plan(job: Job, priority: int) -> bool:
    """Whether the job may wait for what comes free by itself, before one of this priority."""
    return job.state is JobState.QUEUED and job.preemption is None and job.priority >= priority


def is_over(table: Table, charge: Charge) -> bool:
    job = table.view.jobs[charge.job]
    return job.state is not JobState.ADMITTED or charge.attempt < job.attempt
