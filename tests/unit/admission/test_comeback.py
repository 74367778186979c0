"""The room in its queue of a gang that lost a node is held for its next attempt: against whom, and for how long."""

from datetime import datetime

import pytest

from schemas.lifecycle import JobState
from schemas.reasons import Code
from schemas.workload import GrantIssued, JobHeld, JobRequeued, Recovery
from services.admission.core.evolve import lapse
from tests.support.admissions import POLICY, Table, a_table
from tests.support.builders import (
    a_demand,
    a_grant,
    a_job_id,
    a_part,
    a_submission,
    a_withdrawal,
    at,
    failed,
    refused,
    released,
    revoked,
)

DEADLINE = 600
G = a_job_id("g")


def the_gang(attempt: int = 1) -> GrantIssued:
    """The grant of two parts that an attempt of G has."""
    return a_grant("g", a_part("n1", 8), a_part("n2", 8, rank=1), attempt=attempt)


def a_table_with_the_gang(devices: int = 16, *, strict: bool = False, preempts: bool = False) -> Table:
    """Return a queue in which G runs, whose node is drained at T+0."""
    table = a_table(devices, strict=strict, preempts=preempts)
    demand = a_demand(8, replicas=2, recovery_seconds=DEADLINE)
    table.hear(a_submission("g", demand=demand), now=at(-100))
    table.hear(the_gang(), now=at(-99))
    assert table.hear(revoked(the_gang(), Code.DRAINED), now=at(0)) == ["evicted", "requeued"]
    return table


def proved(table: Table, seconds: float, *parts: int) -> list[str]:
    """Hear the proofs of parts of G's first attempt, of which 1 is the last; return what is said to that."""
    return table.hear(*(released(the_gang(), part, remaining=1 - part) for part in parts), now=at(seconds))


def recovery(table: Table) -> Recovery | None:
    return table.view.jobs[G].recovery


def test_s09_the_filler_is_not_admitted_over_the_room_of_the_gang_that_comes_back() -> None:
    table = a_table_with_the_gang()
    held = Recovery(gpu_class="h100", devices=16, until=at(600))
    assert (table.last(JobRequeued).model_dump()["recovery"], recovery(table)) == (held.model_dump(), held)
    assert proved(table, 0.5, 0, 1) == []
    assert table.submit("f", 8, 0, 0.6) == ["queued", "held"]
    why = table.why("f")
    assert (why.code, why.numbers) == (
        Code.HELD_FOR_RECOVERY,
        {"asked": 8, "nominal": 16, "used": 0, "held": 16},
    )
    assert why.message == (
        "queue main: quota 16 h100, used 0, asked 8, 16 held for job g until 2026-01-15T12:10:00+00:00"
    )
    assert table.clock(at(1)) == ["quota_reserved", "admitted", "held"]
    assert (table.admitted(), table.why("f").code) == ({"g"}, Code.WAITING_FOR_QUOTA)
    table.hear(the_gang(2), now=at(300))
    assert recovery(table) is None


def test_s09_room_beside_it_is_everybody_s() -> None:
    table = a_table_with_the_gang(24)
    table.submit("f", 8, 0, 0.6)
    assert table.admitted() == {"f"}
    proved(table, 0.7, 0, 1)
    table.clock(at(1))
    assert (table.admitted(), table.used()) == ({"f", "g"}, 24)


def test_s09_what_comes_back_part_by_part_is_held_until_all_of_it_has() -> None:
    table = a_table_with_the_gang()
    table.clock(at(2))
    proved(table, 5, 0)
    assert table.used() == 8
    assert table.submit("f", 8, 0, 60) == ["queued", "held"]
    assert table.why("f").code is Code.HELD_FOR_RECOVERY
    assert table.hear(released(the_gang(), 1), now=at(61)) == ["quota_reserved", "admitted", "held"]
    assert table.admitted() == {"g"}


def test_s09_after_its_time_the_room_is_given_up() -> None:
    table = a_table_with_the_gang()
    proved(table, 0.5, 0)
    table.submit("f", 8, 0, 60)
    assert table.clock(at(599)) == []
    assert table.clock(at(600)) == ["quota_reserved", "admitted"]
    assert (table.admitted(), table.state("g"), recovery(table)) == ({"f"}, JobState.QUEUED, None)


def test_whoever_is_ahead_takes_it() -> None:
    for name, priority, admitted in (("high", 100, {"high"}), ("equal", 0, set())):
        table = a_table_with_the_gang()
        proved(table, 0.5, 0, 1)
        table.submit(name, 8, priority, 0.6)
        assert table.admitted() == admitted


def test_in_a_strict_queue_whoever_fits_beside_it_passes_the_gang_in_its_backoff_and_nobody_later() -> None:
    table = a_table_with_the_gang(24, strict=True)
    table.submit("f", 4, 0, 0.6)
    table.clock(at(1))
    table.submit("late", 4, 0, 2)
    assert table.admitted() == {"f"}


def test_nobody_is_ended_for_the_gang_while_what_it_had_comes_free() -> None:
    table = a_table_with_the_gang(24, preempts=True)
    table.submit("low", 8, -100, 0.5)
    table.clock(at(2))
    assert (table.evicted(), table.admitted()) == ([], {"low"})
    proved(table, 3, 0, 1)
    assert table.admitted() == {"low", "g"}


def test_one_whose_room_was_taken_may_have_others_ended_for_it_as_ever() -> None:
    table = a_table_with_the_gang(preempts=True)
    proved(table, 0.5, 0, 1)
    table.submit("high", 8, 100, 0.6)
    table.submit("low", 8, -100, 0.7)
    table.clock(at(2))
    assert (table.admitted(), table.evicted()) == ({"high", "low"}, [])


@pytest.mark.parametrize("code", [Code.PODS_READY_TIMEOUT, Code.LAUNCH_REFUSED, Code.PREEMPTED])
def test_nothing_is_held_for_an_attempt_that_lost_no_node(code: Code) -> None:
    table = a_table(16)
    table.hear(a_submission("g", demand=a_demand(8, replicas=2, recovery_seconds=DEADLINE)), now=at(-100))
    table.hear(the_gang(), now=at(-99))
    table.hear(revoked(the_gang(), code), now=at(0))
    assert (table.state("g"), recovery(table)) == (JobState.QUEUED, None)


def test_nothing_is_held_without_the_wish() -> None:
    table = a_table(16)
    table.hear(a_submission("g", demand=a_demand(8, replicas=2)), now=at(-100))
    table.hear(the_gang(), now=at(-99))
    table.hear(revoked(the_gang(), Code.NODE_LOST), now=at(0))
    assert (table.state("g"), recovery(table)) == (JobState.QUEUED, None)


def test_it_ends_with_the_job_and_when_another_attempt_ends_otherwise() -> None:
    for facts in ([a_withdrawal("g")], [failed("g", 2)], [refused("g", attempt=2)]):
        table = a_table_with_the_gang()
        proved(table, 0.5, 0, 1)
        table.clock(at(1))
        assert recovery(table) is not None
        table.hear(*facts, now=at(60))
        assert recovery(table) is None


def test_the_gang_waits_for_devices_past_the_deadline_of_placement_as_long_as_they_are_held_for_it() -> None:
    table = a_table(16)
    longer = a_demand(8, replicas=2, recovery_seconds=2 * POLICY.placement_deadline_seconds)
    table.hear(a_submission("g", demand=longer), now=at(-100))
    table.hear(the_gang(), revoked(the_gang(), Code.BOOT_ENDED), now=at(0))
    proved(table, 0.5, 0, 1)
    assert table.clock(at(1)) == ["quota_reserved", "admitted"]
    assert table.clock(at(1_199)) == []
    assert table.clock(at(1_200)) == ["evicted", "requeued"]


@pytest.mark.parametrize(("revoked_at", "until"), [(at(-30), at(570)), (at(500), at(600))])
def test_the_time_begins_with_the_end_of_the_grant_and_with_nothing_that_lies_ahead(
    revoked_at: datetime, until: datetime
) -> None:
    table = a_table(16)
    table.hear(a_submission("g", demand=a_demand(8, replicas=2, recovery_seconds=DEADLINE)), now=at(-100))
    table.hear(the_gang(), now=at(-99))
    table.hear(revoked(the_gang(), Code.DRAINED, when=revoked_at), now=at(0))
    found = recovery(table)
    assert found is not None
    assert found.until == until
    assert lapse(table.view, now=at(-3_600)).jobs[G].recovery is None  # the clock was put back


def test_who_is_held_back_is_told_again_when_another_comes_back_too() -> None:
    table = a_table_with_the_gang(32)
    table.hear(a_submission("h", demand=a_demand(8, recovery_seconds=DEADLINE)), now=at(0.1))
    other = a_grant("h", a_part("n3", 8))
    table.hear(other, revoked(other, Code.DRAINED), released(other), now=at(0.2))
    proved(table, 0.5, 0, 1)
    table.submit("f", 16, 0, 0.6)
    told = table.last(JobHeld)
    assert isinstance(told, JobHeld)
    assert (told.reason.code, told.reason.numbers["held"]) == (Code.HELD_FOR_RECOVERY, 24)
    assert "held for job g until" in told.reason.message
    assert "job h until" in told.reason.message
