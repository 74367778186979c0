"""Preemption inside a queue: whole plans, the fewest victims, and room that is held for whom they were made."""

import pytest

from schemas.base import Event
from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, reason
from schemas.workload import JobAdmitted, JobEvicted, JobHeld, JobRequeued
from tests.support.admissions import MAIN, POLICY, Table, a_table, the_grant
from tests.support.builders import (
    a_demand,
    a_job_id,
    a_queue,
    a_submission,
    a_withdrawal,
    at,
    failed,
    refused,
    revoked,
    succeeded,
    suspected,
)


def test_a_job_of_higher_priority_ends_one_of_lower_and_starts_once_its_devices_are_clear() -> None:
    table = a_table()
    table.submit("low", 8, 0, 0)
    assert table.submit("high", 8, 100, 10) == ["queued", "evicted", "requeued", "held"]
    text = "preempted by job high of priority 100, its own is 0"
    why = reason(Layer.ADMISSION, Code.PREEMPTED, text, priority=0, preemptor_priority=100)
    assert table.last(JobEvicted) == JobEvicted(job=a_job_id("low"), attempt=1, tenant=MAIN.tenant, reason=why)
    held = table.last(JobHeld)
    assert isinstance(held, JobHeld)
    assert held.reason.numbers == {"asked": 8, "nominal": 8, "victims": 1, "coming": 8}
    assert (held.reason.code, held.reason.since) == (Code.WAITING_FOR_PREEMPTED_WORKLOADS, at(10))
    assert (table.used(), table.state("low")) == (8, JobState.QUEUED)
    assert table.gone("low")[:2] == ["quota_reserved", "admitted"]
    assert (table.used(), table.admitted(), table.view.jobs[a_job_id("high")].preemption) == (8, {"high"}, None)


def test_the_victim_comes_home_as_its_next_attempt_for_nothing_and_no_later_than_at_first() -> None:
    table = a_table()
    table.hear(a_submission("low", 8, retries=1))
    for attempt in range(1, 4):
        table.hear(failed("low", attempt, code=Code.LAUNCH_REFUSED), now=at(100 * attempt))
        table.gone("low", attempt, 100 * attempt)
        table.clock(at(100 * attempt + 60))
    table.submit("high", 8, 100, 1_000)
    requeued = table.last(JobRequeued)
    assert isinstance(requeued, JobRequeued)
    assert (requeued.attempt, requeued.not_before) == (5, at(1_000 + POLICY.backoff_seconds))
    victim = table.view.jobs[a_job_id("low")]
    assert (victim.failures, victim.evictions) == (0, 3)


def test_without_the_policy_nobody_is_ended() -> None:
    table = a_table(preempts=False)
    table.submit("low", 8, 0, 0)
    assert table.submit("high", 8, 100, 10) == ["queued", "held"]
    assert (table.evicted(), table.admitted()) == ([], {"low"})


def test_nobody_of_equal_or_higher_priority_is_ended() -> None:
    table = a_table()
    table.submit("equal", 4, 100, 0)
    table.submit("higher", 4, 200, 1)
    table.submit("high", 4, 100, 10)
    assert (table.evicted(), table.admitted()) == ([], {"equal", "higher"})


def test_nobody_is_ended_when_it_would_not_be_enough() -> None:
    table = a_table()
    table.submit("low", 4, 0, 0)
    table.submit("equal", 4, 100, 1)
    table.submit("high", 8, 100, 10)
    assert (table.evicted(), table.admitted()) == ([], {"low", "equal"})
    why = table.why("high")
    assert (why.code, why.numbers) == (Code.WAITING_FOR_QUOTA, {"asked": 8, "nominal": 8, "used": 8})


def test_more_than_the_quota_ends_nobody() -> None:
    table = a_table()
    table.submit("low", 8, 0, 0)
    table.submit("high", 9, 100, 10)
    assert table.evicted() == []


def test_the_lowest_priority_goes_first_then_who_was_admitted_last() -> None:
    table = a_table()
    for seconds, (name, priority) in enumerate([("old", 0), ("new", 0), ("lowest", -100), ("middle", 50)]):
        table.submit(name, 2, priority, seconds)
    table.submit("high", 4, 100, 10)
    assert (table.evicted(), table.admitted()) == (["lowest", "new"], {"old", "middle"})


def test_of_two_that_were_admitted_at_once_the_id_decides() -> None:
    victims = []
    for names in (("a", "b"), ("b", "a")):
        table = a_table()
        table.hear(*(a_submission(name, 4) for name in names))
        table.submit("high", 4, 100, 10)
        victims.append(table.evicted())
    assert victims == [[min("ab", key=a_job_id)]] * 2


def test_who_turns_out_not_to_be_needed_is_left_alone() -> None:
    table = a_table(10)
    table.submit("big", 6, 10, 0)
    table.submit("small", 2, 0, 1)
    table.submit("smaller", 1, -1, 2)
    table.submit("high", 7, 100, 10)  # one is free: the two small ones make four, the big one alone seven
    assert (table.evicted(), table.admitted()) == (["big"], {"small", "smaller"})


def test_what_comes_free_by_itself_spares_the_others() -> None:
    table = a_table()
    table.submit("over", 4, 0, 0)
    table.submit("low", 4, 0, 1)
    table.hear(succeeded("over"), revoked(the_grant("over", 1, 4)), now=at(5))
    table.submit("high", 4, 100, 10)
    assert table.evicted() == []
    table.gone("over")
    assert table.admitted() == {"low", "high"}


def test_what_comes_free_by_itself_for_one_goes_to_nobody_who_would_be_ended_for_it_and_to_its_equals() -> None:
    for priority, admitted in ((50, set()), (100, {"second"})):
        table = a_table()
        table.submit("over", 4, 0, 0)
        table.submit("slow", 4, 0, 1)
        for name in ("over", "slow"):
            table.hear(succeeded(name), now=at(5))
        table.submit("high", 8, 100, 10)
        table.gone("over", seconds=11)
        table.submit("second", 4, priority, 12)
        assert (table.admitted(), table.evicted()) == (admitted, [])


def test_who_has_to_wait_behind_an_equal_that_waits_for_what_comes_free_counts_it_out() -> None:
    table = a_table(5)
    table.submit("over", 4, 0, 0)
    table.submit("low", 1, 0, 1)
    table.hear(succeeded("over"), now=at(5))
    table.submit("small", 1, 100, 10)
    table.submit("high", 4, 100, 11)
    assert (table.evicted(), table.why("high").numbers["coming"]) == (["low"], 4)


def test_s18_what_the_quick_victim_had_is_held_until_the_slow_one_is_gone() -> None:
    table = a_table(16)
    table.submit("quick", 8, 0, 0)
    table.submit("slow", 8, 0, 1)
    table.submit("high", 16, 100, 10)
    assert sorted(table.evicted()) == ["quick", "slow"]
    table.gone("quick", seconds=15)
    for seconds in (20, 30, 60, 100):
        table.clock(at(seconds))
    assert (table.used(), table.admitted()) == (8, set())
    assert table.why("high").numbers == {"asked": 16, "nominal": 16, "victims": 2, "coming": 8}
    assert table.why("quick").numbers == {"asked": 8, "nominal": 16, "used": 8, "held": 16}
    table.gone("slow", seconds=130)
    assert (table.admitted(), len(table.evicted())) == ({"high"}, 2)


def test_s17_after_one_eviction_nothing_changes_any_more() -> None:
    table = a_table()
    table.submit("pod1", 4, 0, 0)
    table.submit("pod2", 1, 100, 1)
    table.submit("pod3", 4, 100, 2)
    table.gone("pod1", seconds=3)
    table.clock(at(10))
    settled = table.view
    for seconds in range(20, 40):
        assert table.clock(at(seconds)) == []
    assert (table.view, table.evicted(), table.admitted()) == (settled, ["pod1"], {"pod2", "pod3"})


def test_s22_a_victim_that_does_not_die_stays_charged_ends_nobody_else_and_stops_no_smaller_job() -> None:
    table = a_table(12)
    table.submit("stuck", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    table.submit("j2", 4, 0, 11)
    assert table.admitted() == {"j2"}
    for seconds in range(20, 600, 20):
        table.clock(at(seconds))
    assert (table.evicted(), table.used(), table.admitted()) == (["stuck"], 12, {"j2"})
    grant = the_grant("stuck", 1, 8)
    table.hear(revoked(grant, Code.ATTEMPT_OVER), suspected(grant, Code.STUCK_TERMINATION), now=at(605))
    assert (table.used(), table.admitted()) == (12, {"j2", "high"})


def test_a_hold_ends_after_its_time_with_a_reason_and_no_plan_is_made_again_for_as_long() -> None:
    table = a_table()
    table.submit("stuck", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    assert table.clock(at(20)) == ["held"]  # the victim's backoff is over
    assert table.clock(at(609)) == []
    assert table.clock(at(610)) == ["held"]
    held = table.last(JobHeld)
    assert isinstance(held, JobHeld)
    assert held.reason.code is Code.WAITING_FOR_QUOTA
    assert held.reason.message.endswith("what 1 preempted jobs had did not come free in time")
    assert held.preemption is not None
    assert held.preemption.given_up
    assert table.clock(at(1_209)) == []
    assert table.clock(at(1_210)) == ["held"]
    assert table.view.jobs[a_job_id("high")].preemption is None
    assert table.clock(at(1_211)) == []
    table.gone("stuck", seconds=2_000)
    assert (table.admitted(), table.evicted()) == ({"high"}, ["stuck"])


def test_a_hold_ends_when_its_job_is_withdrawn_and_the_victim_comes_back() -> None:
    table = a_table()
    table.submit("low", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    table.hear(a_withdrawal("high"), now=at(12))
    table.gone("low", seconds=20)
    assert table.admitted() == {"low"}


@pytest.mark.parametrize("change", [a_queue(preempts=True, h100=4), a_queue(preempts=True, a100=8), a_queue(h100=8)])
def test_a_hold_ends_when_its_queue_changes_so_that_it_helps_no_more(change: Event) -> None:
    table = a_table()
    table.submit("low", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    table.hear(change, now=at(11))
    high = table.view.jobs[a_job_id("high")]
    assert high.preemption is None
    assert high.reason is None or high.reason.code is not Code.WAITING_FOR_PREEMPTED_WORKLOADS


def test_a_job_of_still_higher_priority_takes_the_room_and_one_behind_does_not() -> None:
    table = a_table()
    table.submit("one", 4, 0, 0)
    table.submit("two", 4, 0, 1)
    table.submit("high", 8, 100, 10)
    table.gone("one", seconds=11)
    table.submit("behind", 4, 50, 12)
    assert table.admitted() == set()
    table.submit("top", 4, 1_000, 13)
    assert table.admitted() == {"top"}
    why = table.why("high")
    assert (why.code, why.numbers["used"]) == (Code.WAITING_FOR_QUOTA, 8)


def test_a_job_that_fits_on_no_node_ends_others_a_few_times_and_then_no_more() -> None:
    table = a_table()
    table.submit("low", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    for attempt in range(1, 8):
        victim = table.view.jobs[a_job_id("low")]
        if victim.state is JobState.QUEUED:
            table.gone("low", victim.attempt - 1, 1_000 * attempt)
            table.hear(refused("high", attempt=attempt), now=at(1_000 * attempt + 1))
            table.clock(at(1_000 * attempt + 50))
            table.grant(1_000 * attempt + 50)
        table.clock(at(1_000 * attempt + 500))
    assert (table.evicted(), table.admitted()) == (["low"] * 4, {"low"})
    assert table.why("high").code is Code.WAITING_FOR_QUOTA


def test_two_plans_in_one_queue_hold_room_beside_each_other() -> None:
    table = a_table()
    table.submit("one", 4, 0, 0)
    table.submit("two", 4, 0, 1)
    table.submit("first", 4, 100, 10)
    table.submit("second", 4, 100, 11)
    assert sorted(table.evicted()) == ["one", "two"]
    table.gone("one", seconds=12)
    assert table.admitted() == {"first"}
    table.clock(at(20))
    table.gone("two", seconds=30)
    assert table.admitted() == {"first", "second"}


@pytest.mark.parametrize(("strict", "passes"), [(True, set()), (False, {"small"})])
def test_behind_a_job_that_preempts_smaller_ones_pass_in_a_best_effort_queue_alone(
    passes: set[str], *, strict: bool
) -> None:
    table = a_table(10, strict=strict)
    table.submit("low", 8, 0, 0)
    table.submit("high", 8, 100, 10)
    table.submit("small", 2, 0, 11)
    assert (table.evicted(), table.admitted()) == (["low"], passes)


def test_in_a_strict_queue_only_the_first_that_waits_ends_others() -> None:
    table = a_table(strict=True)
    table.submit("equal", 4, 100, 0)
    table.submit("low", 4, 0, 1)
    table.submit("first", 8, 100, 10)
    table.submit("second", 4, 50, 11)
    assert table.evicted() == []


def test_the_first_class_in_the_jobs_order_in_which_a_plan_is_whole_is_taken_and_others_are_left_alone() -> None:
    table = Table()
    table.hear(a_queue(preempts=True, h100=4, a100=4))
    for name, gpu_class, priority in (("h", "h100", 100), ("a", "a100", 0)):
        table.hear(a_submission(name, priority=priority, demand=a_demand(4, classes=(gpu_class,))))
    both = a_demand(4, classes=("h100", "a100"))
    table.hear(a_submission("high", priority=100, demand=both), now=at(10))
    assert table.evicted() == ["a"]
    table.hear(refused("a", Code.ATTEMPT_OVER), now=at(20))
    admitted = table.last(JobAdmitted)
    assert isinstance(admitted, JobAdmitted)
    assert (admitted.name, admitted.gpu_class) == ("high", "a100")


def test_a_victim_without_devices_frees_its_room_by_placements_word() -> None:
    table = a_table()
    table.hear(a_submission("low", 8))
    table.hear(a_submission("high", 8, priority=100), now=at(10))
    assert table.hear(refused("low", Code.ATTEMPT_OVER), now=at(11)) == ["quota_reserved", "admitted", "held"]


def test_what_the_platform_lost_frees_nothing_and_is_not_ended() -> None:
    table = a_table()
    table.submit("lost", 8, 0, 0)
    table.hear(suspected(the_grant("lost", 1, 8), Code.NODE_LOST), now=at(1))
    table.submit("low", 8, 0, 2)
    table.submit("high", 8, 100, 10)
    assert table.evicted() == ["low"]
