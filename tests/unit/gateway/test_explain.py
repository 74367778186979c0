"""S61: codes are stable, numbers are those of now."""

from datetime import datetime

import pytest

from schemas.ids import TenantId
from schemas.lifecycle import JobState
from schemas.reasons import Code, Layer, Reason, reason
from schemas.workload import Demand
from services.gateway.core.explain import Capacity, Explanation, Hold, QuotaLine, explain
from services.gateway.core.job import JobView, Place, Placement, Said
from tests.support.builders import DEMO, NOON, a_demand, a_grant_id, a_job_id, a_node_id, at


def waiting(code: Code, message: str = "", *, state: JobState = JobState.QUEUED, **numbers: int) -> JobView:
    said = Said(attempt=1, version=1, at=NOON, reason=reason(Layer.PLACEMENT, code, message, **numbers))
    slot = "waits" if state is JobState.QUEUED else "refused"
    return JobView.model_validate({"job": a_job_id(), "tenant": TenantId("acme"), "state": state, slot: said})


HELD = Hold("n3", "health", "Xid 79", NOON, 8)


@pytest.mark.parametrize(
    ("view", "demand", "quotas", "fleet", "expected"),
    [
        (  # a
            waiting(Code.WAITING_FOR_QUOTA, "old words", used=3),
            a_demand(8),
            [QuotaLine("x", 16, 12)],
            [],
            Explanation(
                "WaitingForQuota", "quota of x is 16, used 12, asked 8", {"asked": 8, "nominal": 16, "used": 12}, NOON
            ),
        ),
        (  # what is free is held for another
            waiting(Code.WAITING_FOR_QUOTA, "old words", used=8, held=8),
            a_demand(2),
            [QuotaLine("x", 16, 12)],
            [],
            Explanation(
                "WaitingForQuota",
                "quota of x is 16, used 12, asked 2, held for preemptors 8",
                {"asked": 2, "nominal": 16, "used": 12, "held": 8},
                NOON,
            ),
        ),
        (  # others end for it
            waiting(Code.WAITING_FOR_PREEMPTED_WORKLOADS, "2 jobs end for it: 4 of 8 x to come", victims=2, coming=4),
            a_demand(8),
            [QuotaLine("x", 16, 12)],
            [],
            Explanation(
                "WaitingForPreemptedWorkloads",
                "2 jobs end for it: 4 of 8 x to come",
                {"victims": 2, "coming": 4},
                NOON,
            ),
        ),
        (  # b
            waiting(Code.TOPOLOGY_PLACEMENT_FAILED, state=JobState.ADMITTED),
            a_demand(16, topology_level="nvlink", topology_required=True),
            [],
            [Capacity("x", total=32, free=32, domain=8, domain_free=6)],
            Explanation(
                "TopologyPlacementFailed",
                "needs 16 x in one nvlink, largest nvlink 8, free there 6",
                {"asked": 16, "largest_domain": 8, "domain_free": 6},
                NOON,
            ),
        ),
        (  # c
            waiting(Code.WAITING_FOR_CAPACITY, "needs 24, free 3", state=JobState.ADMITTED, free=3),
            a_demand(8, replicas=3),
            [],
            [Capacity("x", total=32, free=12, replicas=1, holds=(HELD,))],
            Explanation(
                "WaitingForCapacity",
                "needs 24 x, free 12, 8 more held on n3 (health: Xid 79, since 2026-01-15 12:00)",
                {"asked": 24, "free": 12, "held": 8, "unknown": 0, "total": 32, "replicas": 1},
                NOON,
            ),
        ),
        (  # d
            waiting(Code.CAN_NEVER_FIT),
            a_demand(64),
            [],
            [Capacity("x", total=32, free=20)],
            Explanation(
                "CanNeverFit",
                "can never fit: 64 x asked, 32 exist",
                {"asked": 64, "free": 20, "held": 0, "unknown": 0, "total": 32, "replicas": 0},
                NOON,
            ),
        ),
        (  # enough in sum, on no node
            waiting(Code.CAN_NEVER_FIT, "can never fit: old words"),
            a_demand(16),
            [],
            [Capacity("x", total=32, node=8, free=20)],
            Explanation(
                "CanNeverFit",
                "can never fit: a replica needs 16 x on one node, the largest node has 8",
                {"asked": 16, "free": 20, "held": 0, "unknown": 0, "total": 32, "replicas": 0},
                NOON,
            ),
        ),
        (  # for a cause that only placement knows
            waiting(Code.CAN_NEVER_FIT, "can never fit: largest rack 8, needs 16 (2 x 8)"),
            a_demand(8, replicas=2),
            [],
            [Capacity("x", total=32, node=8, free=20)],
            Explanation(
                "CanNeverFit",
                "can never fit: largest rack 8, needs 16 (2 x 8)",
                {"asked": 16, "free": 20, "held": 0, "unknown": 0, "total": 32, "replicas": 0},
                NOON,
            ),
        ),
        (  # e
            waiting(Code.WAITING_FOR_CAPACITY, "needs 24, free 12, 8 more held on n3", state=JobState.ADMITTED),
            a_demand(8, replicas=3),
            [],
            [Capacity("x", total=32, free=20, replicas=2)],
            Explanation(
                "WaitingForCapacity",
                "needs 24 x, free 20",
                {"asked": 24, "free": 20, "held": 0, "unknown": 0, "total": 32, "replicas": 2},
                NOON,
            ),
        ),
        (  # enough in sum, too scattered
            waiting(Code.WAITING_FOR_CAPACITY, state=JobState.ADMITTED),
            a_demand(4, replicas=3),
            [],
            [Capacity("x", total=32, free=13, replicas=2, unknown=8)],
            Explanation(
                "WaitingForCapacity",
                "needs 12 x, free 13, but only 2 of 3 replicas find 4 on one node, 8 on silent nodes",
                {"asked": 12, "free": 13, "held": 0, "unknown": 8, "total": 32, "replicas": 2},
                NOON,
            ),
        ),
        (  # for whom something is held only placement knows
            waiting(Code.HELD_FOR_RECOVERY, "needs 8, free 0, 8 held for job g until ten", held_for_recovery=8),
            a_demand(8),
            [],
            [Capacity("x", total=16, free=8, replicas=1)],
            Explanation(
                "HeldForRecovery", "needs 8, free 0, 8 held for job g until ten", {"held_for_recovery": 8}, NOON
            ),
        ),
        (  # a code that has no numbers of ours keeps its own
            waiting(Code.BACKOFF, "tries again soon", failures=2),
            a_demand(1),
            [],
            [],
            Explanation("Backoff", "tries again soon", {"failures": 2}, NOON),
        ),
    ],
)
def test_a_waiting_job_is_explained_with_the_numbers_of_now(
    view: JobView, demand: Demand, quotas: list[QuotaLine], fleet: list[Capacity], expected: Explanation
) -> None:
    assert explain(view, demand, quotas, fleet) == expected


def test_the_class_with_most_room_is_shown() -> None:
    quotas = [QuotaLine("x", 16, 16), QuotaLine("y", 8, 3)]
    told = explain(waiting(Code.WAITING_FOR_QUOTA), a_demand(8), quotas, [])
    assert told.message == "quota of y is 8, used 3, asked 8"


@pytest.mark.parametrize(
    ("state", "quotas", "code"),
    [
        (JobState.QUEUED, [QuotaLine("x", 4, 0)], "WaitingForQuota"),
        (JobState.QUEUED, [QuotaLine("x", 8, 0)], "Unknown"),
        (JobState.ADMITTED, [], "WaitingForCapacity"),
    ],
)
def test_a_job_that_nobody_has_explained_has_a_code_all_the_same(
    state: JobState, quotas: list[QuotaLine], code: str
) -> None:
    view = JobView(job=a_job_id(), tenant=TenantId("acme"), state=state)
    assert explain(view, a_demand(8), quotas, [Capacity("x")]).code == code


def test_since_and_retry_come_from_the_reason() -> None:
    why = Reason(layer=Layer.ADMISSION, code=Code.BACKOFF, since=at(-60), retry_after_seconds=8)
    view = waiting(Code.BACKOFF).model_copy(update={"waits": Said(attempt=1, version=2, at=NOON, reason=why)})
    told = explain(view, a_demand(), [], [])
    assert (told.since, told.retry_after_seconds) == (at(-60), 8)


def test_many_holds_are_shown_in_part_and_summed() -> None:
    holds = tuple(Hold(f"n{number}", "ops", "update", NOON, 1) for number in range(7))
    told = explain(
        waiting(Code.WAITING_FOR_CAPACITY, state=JobState.ADMITTED), a_demand(8), [], [Capacity("x", holds=holds)]
    )
    assert told.message.endswith(
        "1 more held on n4 (ops: update, since 2026-01-15 12:00), 2 more held on 2 other nodes"
    )
    assert told.numbers["held"] == 7


def placed(state: JobState) -> JobView:
    placement = Placement(
        attempt=1,
        epoch=1,
        grant=a_grant_id(),
        cluster=DEMO,
        gpu_class="x",
        world_size=1,
        places=(Place(node=a_node_id(), node_name="n1", ranks=(0,)),),
        issued_at=at(-9),
    )
    return JobView(job=a_job_id(), tenant=TenantId("acme"), state=state, placement=placement)


def test_a_job_on_its_way_says_where_and_what_it_waits_for() -> None:
    assert explain(placed(JobState.DISPATCHED), a_demand(), [], []) == Explanation(
        "Dispatched", "on n1; waits for the destination's acknowledgement", {"nodes": 1}, at(-9)
    )


def test_a_job_that_runs_says_since_when_this_attempt_does() -> None:
    started = Said(attempt=1, version=3, at=at(-5))
    view = placed(JobState.RUNNING).model_copy(update={"started": started})
    assert explain(view, a_demand(), [], []).since == at(-5)
    assert explain(view.model_copy(update={"attempt": 2}), a_demand(), [], []).since is None


def ended(at_: datetime, why: Reason | None = None) -> JobView:
    said = Said(attempt=1, version=9, at=at_, reason=why)
    return placed(JobState.FAILED).model_copy(update={"end": said, "exit_code": 3})


def test_an_ended_job_says_how() -> None:
    assert explain(ended(NOON), a_demand(), [], []) == Explanation(
        "Failed", "the job has ended: Failed", {"exit_code": 3}, NOON
    )
    why = reason(Layer.NODE, Code.NON_ZERO_EXIT_CODE, "rank 0 ended with 3", rank=0)
    assert explain(ended(NOON, why), a_demand(), [], []) == Explanation(
        "NonZeroExitCode", "rank 0 ended with 3", {"rank": 0}, NOON
    )
