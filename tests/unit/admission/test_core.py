"""Admission's decisions: who starts, what an attempt's end means, and that a job has one end."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.base import Event
from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, reason
from schemas.workload import JobAdmitted, JobCancelled, JobFinished, JobHeld, JobRequeued, Outcome
from services.admission.core import Account, decide, evolve
from tests.support.admissions import MAIN, POLICY, Desk
from tests.support.builders import (
    NOON,
    a_demand,
    a_grant,
    a_job_id,
    a_part,
    a_queue,
    a_submission,
    a_withdrawal,
    at,
    failed,
    refused,
    released,
    revoked,
    succeeded,
    suspected,
)


def test_a_job_that_fits_is_queued_reserved_and_admitted_in_one_go() -> None:
    desk = Desk()
    assert desk.hear(a_queue(h100=8), a_submission(devices=4)) == ["queued", "quota_reserved", "admitted"]
    assert desk.used() == 4
    admitted = desk.last(JobAdmitted)
    assert isinstance(admitted, JobAdmitted)
    assert (admitted.attempt, admitted.gpu_class, admitted.queued_at) == (1, "h100", NOON)


def test_a_job_over_the_room_waits_with_the_numbers_and_starts_when_a_release_makes_room() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission("big", 6))
    desk.hear(a_submission("late", 4), now=at(1))
    held = desk.last(JobHeld)
    assert isinstance(held, JobHeld)
    assert (held.reason.code, held.reason.numbers) == (Code.WAITING_FOR_QUOTA, {"asked": 4, "nominal": 8, "used": 6})
    grant = a_grant("big", a_part(devices=6))
    assert desk.hear(grant, succeeded("big")) == ["finished"]
    assert desk.hear(revoked(grant)) == []
    assert desk.used() == 6
    assert desk.hear(released(grant)) == ["quota_reserved", "admitted"]
    assert desk.used() == 4


def test_the_same_reason_is_said_once() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=4), a_submission("a", 4), a_submission("b", 2))
    assert desk.hear(a_submission("c", 1)) == ["queued", "held"]
    assert desk.hear() == []


def test_priority_goes_first_then_first_come_first_served() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=2))
    for order, (name, priority) in enumerate([("old", 0), ("new", 0), ("urgent", 100)]):
        desk.view = evolve(desk.view, a_submission(name, 2, priority=priority), version=order, now=at(order))
        desk._say(decide(desk.view, a_submission(name, 2, priority=priority), POLICY, now=at(order)), at(order))
    desk.hear(now=at(9))
    admitted = desk.last(JobAdmitted)
    assert isinstance(admitted, JobAdmitted)
    assert admitted.name == "urgent"
    grant = a_grant("urgent")
    desk.hear(grant, succeeded("urgent"), released(grant), now=at(10))
    assert desk.state("old") is JobState.ADMITTED
    assert desk.state("new") is JobState.QUEUED


def test_behind_a_job_that_does_not_fit_a_strict_queue_admits_nobody_and_a_best_effort_queue_does() -> None:
    for strict, expected in ((True, JobState.QUEUED), (False, JobState.ADMITTED)):
        desk = Desk()
        desk.hear(a_queue(strict=strict, h100=8), a_submission("first", 6), now=at(0))
        desk.hear(a_submission("second", 4), now=at(1))
        desk.hear(a_submission("third", 2), now=at(2))
        assert desk.state("second") is JobState.QUEUED
        assert desk.state("third") is expected


def test_the_first_class_with_room_is_taken_in_the_jobs_order() -> None:
    desk = Desk()
    asks = a_demand(4, classes=("h100", "a100"))
    desk.hear(a_queue(a100=8, h100=4), a_submission("one", demand=asks))
    desk.hear(a_submission("two", demand=asks))
    assert {c.job: c.gpu_class for c in desk.view.charges.values()} == {
        a_job_id("one"): "h100",
        a_job_id("two"): "a100",
    }


def test_more_than_the_quota_a_class_not_offered_and_an_unknown_queue_have_codes_of_their_own() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission("big", 16), a_submission("odd", demand=a_demand(1, classes=("tpu",))))
    desk.hear(a_submission("lost", queue="nowhere"))
    reasons = {job.name: job.reason.code for job in desk.view.jobs.values() if job.reason}
    assert reasons == {"big": Code.EXCEEDS_QUOTA, "odd": Code.CLASS_NOT_OFFERED, "lost": Code.QUEUE_UNKNOWN}


def test_a_higher_quota_admits_who_waited_and_an_older_declaration_changes_nothing() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission("big", 16))
    older = desk.version
    assert desk.hear(a_queue(h100=32)) == ["quota_reserved", "admitted"]
    stale = evolve(desk.view, a_queue(h100=1), version=older, now=NOON)
    assert stale.queues[MAIN].nominal == {"h100": 32}


def test_a_cancelled_job_ends_at_once_and_its_charge_ends_with_the_release() -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=8), a_submission())
    desk.hear(grant)
    assert desk.hear(a_withdrawal()) == ["cancelled"]
    assert (desk.state(), desk.used()) == (JobState.CANCELLED, 1)
    assert desk.hear(succeeded(), failed(), revoked(grant, Code.ATTEMPT_OVER)) == []
    assert desk.hear(released(grant)) == []
    assert (desk.state(), desk.used()) == (JobState.CANCELLED, 0)


def test_a_cancel_at_the_backend_is_the_jobs_end_whatever_retries_are_left() -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=8), a_submission(retries=3), grant)
    assert desk.hear(failed(code=Code.BACKEND_CANCELLED, exit_code=None)) == ["cancelled"]
    cancelled = desk.last(JobCancelled)
    assert isinstance(cancelled, JobCancelled)
    assert (cancelled.cancelled_by, cancelled.reason) == ("backend", reason(Layer.DISPATCH, Code.BACKEND_CANCELLED))
    assert desk.hear(revoked(grant, Code.RUN_ENDED), released(grant), a_withdrawal()) == []
    assert (desk.state(), desk.used()) == (JobState.CANCELLED, 0)


def test_a_withdrawal_that_comes_before_its_job_is_kept_and_cancels_it() -> None:
    desk = Desk()
    assert desk.hear(a_queue(h100=8), a_withdrawal()) == []
    assert desk.hear(a_submission()) == ["queued", "cancelled"]
    assert desk.used() == 0


def test_an_attempt_over_before_anything_was_issued_gives_the_quota_back_on_placements_word() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission())
    desk.hear(a_withdrawal())
    assert desk.used() == 1
    desk.hear(refused(code=Code.ATTEMPT_OVER))
    assert desk.used() == 0


def test_what_was_never_claimed_is_charged_until_its_revocation_and_comes_home_at_no_second_charge() -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=8), a_submission(), grant)
    over = revoked(grant, Code.PODS_READY_TIMEOUT, claimed=False)
    assert desk.hear(over, now=at(1)) == ["evicted", "requeued"]
    assert desk.used() == 0
    assert desk.hear(released(grant, claimed=False), now=at(3)) == ["quota_reserved", "admitted"]
    assert desk.used() == 1


def test_a_users_failure_uses_up_a_retry_and_then_ends_the_job() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission(retries=1))
    first = a_grant()
    assert desk.hear(first, failed()) == ["evicted", "requeued"]
    assert desk.hear(released(first), now=at(2)) == ["quota_reserved", "admitted"]
    assert desk.hear(failed(attempt=2), now=at(3)) == ["finished"]
    finished = desk.last(JobFinished)
    assert isinstance(finished, JobFinished)
    assert (finished.attempt, finished.outcome, finished.exit_code) == (2, Outcome.FAILED, 1)


def test_a_platforms_failure_brings_the_job_home_for_nothing_later_and_later() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission())
    waits = []
    for attempt in range(1, 9):
        grant = a_grant(attempt=attempt)
        now = at(1_000 * attempt)
        desk.hear(grant, failed(attempt=attempt, code=Code.LAUNCH_REFUSED, exit_code=None), released(grant), now=now)
        requeued = desk.last(JobRequeued)
        assert isinstance(requeued, JobRequeued)
        waits.append((requeued.not_before - now).total_seconds())
        desk.clock(at(1_000 * attempt + 100))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert desk.view.jobs[a_job_id()].attempt == 9


@pytest.mark.parametrize(("back_seconds", "waits"), [(0, True), (10, True), (7_200, False)])
def test_a_backoff_that_was_set_before_the_clock_was_put_back_is_over(back_seconds: int, *, waits: bool) -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission())
    job = replace(desk.view.jobs[a_job_id()], not_before=at(60))
    assert job.in_backoff(at(-back_seconds)) is waits


def test_a_job_in_backoff_is_not_admitted_before_its_time() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission())
    desk.hear(refused())
    assert desk.clock(at(0.5)) == []
    assert desk.clock(at(1)) == ["quota_reserved", "admitted"]


def test_what_is_heard_of_an_old_attempt_changes_nothing() -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=8), a_submission())
    desk.hear(grant, revoked(grant, Code.DRAINED))
    assert desk.view.jobs[a_job_id()].attempt == 2
    assert desk.hear(succeeded(), failed(), revoked(grant, Code.DRAINED), refused()) == []
    assert desk.view.jobs[a_job_id()].attempt == 2


def test_the_next_attempt_waits_until_the_one_before_is_proved_over_whatever_quota_is_free() -> None:
    desk, grant = Desk(), a_grant("train", a_part("n1"), a_part("n2", rank=1))
    desk.hear(a_queue(h100=8), a_submission(demand=a_demand(1, replicas=2)))
    desk.hear(grant)
    assert desk.hear(revoked(grant, Code.DRAINED)) == ["evicted", "requeued"]
    assert desk.clock(at(5)) == ["held"]
    why = desk.view.jobs[a_job_id()].reason
    assert why is not None
    assert (why.code, why.message) == (Code.WAITING_FOR_RELEASE, "an attempt before is not proved over: 2 devices")
    assert desk.hear(a_submission("small"), now=at(6)) == ["queued", "quota_reserved", "admitted"]
    desk.hear(released(grant, 0, remaining=1), now=at(7))
    assert desk.state() is JobState.QUEUED
    assert desk.hear(released(grant, 1), now=at(8)) == ["quota_reserved", "admitted"]
    assert desk.view.jobs[a_job_id()].attempt == 2


def test_a_part_that_is_given_up_holds_the_next_attempt_no_longer() -> None:
    desk, grant = Desk(), a_grant()
    desk.hear(a_queue(h100=8), a_submission(), grant)
    desk.hear(revoked(grant, Code.DRAINED))
    assert desk.clock(at(5)) == ["held"]
    assert desk.hear(suspected(grant, Code.STUCK_TERMINATION), now=at(200)) == ["quota_reserved", "admitted"]


def test_behind_an_attempt_that_is_not_over_nobody_is_admitted_in_a_strict_queue() -> None:
    desk, grant = Desk(), a_grant()
    desk.hear(a_queue(strict=True, h100=8), a_submission(), grant)
    desk.hear(revoked(grant, Code.DRAINED))
    desk.clock(at(5))
    assert desk.hear(a_submission("small"), now=at(6)) == ["queued", "held"]
    assert desk.hear(released(grant), now=at(7)) == ["quota_reserved", "admitted"] * 2


def test_after_a_lost_node_the_charge_moves_to_the_platform_and_ends_with_the_proof() -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=1), a_submission())
    desk.hear(grant)
    assert desk.hear(revoked(grant, Code.NODE_LOST)) == ["evicted", "requeued"]
    charge = desk.view.charges[a_job_id(), 1]
    assert (charge.account, charge.over, desk.used()) == (Account.PLATFORM_LOSS, False, 0)
    assert desk.clock(at(1)) == ["quota_reserved", "admitted"]
    desk.hear(released(grant))
    assert (desk.view.charges[a_job_id(), 1].over, desk.used()) == (True, 1)


@pytest.mark.parametrize("code", [Code.NODE_LOST, Code.STUCK_TERMINATION])
def test_r10_what_was_cancelled_and_is_not_proved_released_in_time_is_the_platforms(code: Code) -> None:
    desk = Desk()
    grant = a_grant()
    desk.hear(a_queue(h100=1), a_submission())
    desk.hear(grant, a_withdrawal(), revoked(grant, Code.ATTEMPT_OVER))
    assert desk.hear(a_submission("next")) == ["queued", "held"]
    desk.hear(suspected(grant, Code.HEARTBEAT_LOST))
    assert desk.used() == 1
    assert desk.hear(suspected(grant, code)) == ["quota_reserved", "admitted"]
    assert desk.view.charges[a_job_id(), 1].account is Account.PLATFORM_LOSS


def test_the_end_of_an_attempt_waits_for_an_answer_until_its_charge_is_over() -> None:
    desk = Desk()
    grant = a_grant("train", a_part("n1"), a_part("n2", rank=1))
    desk.hear(a_queue(h100=8), a_submission(devices=2))
    answered = []
    for fact in (grant, succeeded(), revoked(grant), released(grant, remaining=1), released(grant, part=1)):
        desk.hear(fact)
        charge = desk.view.charges[a_job_id(), 1]
        answered.append((charge.answered, charge.over))
    assert answered == [(True, False), (False, False), (False, False), (False, False), (True, True)]


def test_an_attempt_without_devices_past_its_deadline_lets_its_quota_go_to_others() -> None:
    desk = Desk()
    desk.hear(a_queue(h100=8), a_submission())
    assert desk.clock(at(599)) == []
    assert desk.clock(at(600)) == ["evicted", "requeued"]
    assert desk.used() == 1
    granted = Desk()
    granted.hear(a_queue(h100=8), a_submission())
    granted.hear(a_grant())
    assert granted.clock(at(6_000)) == []


def test_two_ends_in_any_order_leave_the_first() -> None:
    ends = {"s": succeeded(), "f": failed(), "w": a_withdrawal()}
    first = {"s": JobState.SUCCEEDED, "f": JobState.FAILED, "w": JobState.CANCELLED}
    for order in permutations(ends):
        desk = Desk()
        desk.hear(a_queue(h100=8), a_submission())
        desk.hear(*(ends[letter] for letter in order))
        assert desk.state() is first[order[0]]


STEPS = st.lists(st.tuples(st.sampled_from("srwfudlxo"), st.integers(0, 3), st.integers(1, 3)), max_size=40)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_is_heard_the_charge_is_the_sum_of_open_attempts_and_never_over_quota(
    steps: list[tuple[str, int, int]],
) -> None:
    desk = Desk()
    desk.hear(a_queue(h100=6))
    ended: dict[str, JobState] = {}
    for second, (letter, job, attempt) in enumerate(steps):
        name = f"j{job}"
        grant = a_grant(name, attempt=attempt)
        fact: Event = {
            "s": a_submission(name, job + 1, retries=1),
            "r": released(grant),
            "w": a_withdrawal(name),
            "f": failed(name, attempt),
            "u": failed(name, attempt, code=Code.LAUNCH_REFUSED),
            "d": revoked(grant, Code.DRAINED),
            "l": revoked(grant, Code.NODE_LOST),
            "x": refused(name, attempt=attempt),
            "o": succeeded(name, attempt),
        }[letter]
        desk.hear(fact, now=at(second * 30))
        open_charges = [c for c in desk.view.charges.values() if not c.over and c.account is Account.QUEUE]
        assert desk.used() == sum(charge.devices for charge in open_charges) <= 6
        for known in desk.view.jobs.values():
            assert ended.get(known.name, known.state) is known.state
            if known.ended:
                ended[known.name] = known.state
            else:
                assert known.state is JobState.ADMITTED or known.reason is not None
