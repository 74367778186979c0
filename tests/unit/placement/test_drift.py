"""What differs, and when it is a drift: an answer that did not come is no answer, and nothing follows from absence."""

from dataclasses import replace
from datetime import timedelta

import pytest

from schemas.ids import GrantId, JobId, NodeId
from schemas.lifecycle import PartState
from schemas.workload import DriftKind
from services.placement.core.drift import Difference, Held, Known, LedgerPart, Snapshot, differences, judge
from tests.support.builders_placement import START

N1 = NodeId("n1")
PART = LedgerPart(GrantId("grant_1"), JobId("job_1"), 1, N1, PartState.CLAIMED, heard=True, devices=8)
AGREED = Snapshot(
    parts=[PART],
    held=[Held(N1, PART.grant, PartState.CLAIMED)],
    leases_missing=(),
    leases_of_nobody=(),
    charged={(PART.job, 1): 8},
    open_runs={PART.grant: "Started"},
)
K = DriftKind


def test_records_that_agree_do_not_differ() -> None:
    assert differences(AGREED) == set()


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        (replace(AGREED, leases_missing=["dev_1"]), Difference(K.LEASE_MISSING, "dev_1")),
        (replace(AGREED, leases_of_nobody=["dev_1"]), Difference(K.LEASE_OF_NOBODY, "dev_1")),
        (replace(AGREED, charged={}), Difference(K.GRANT_WITHOUT_CHARGE, "job_1-a1")),
        (
            replace(AGREED, charged={(PART.job, 1): 8, (PART.job, 2): 8}),
            Difference(K.CHARGE_WITHOUT_GRANT, "job_1-a2"),
        ),
        (replace(AGREED, charged={(PART.job, 1): 16}), Difference(K.CHARGE_WITHOUT_GRANT, "job_1-a1")),
        (replace(AGREED, charged={(PART.job, 1): 4}), Difference(K.GRANT_WITHOUT_CHARGE, "job_1-a1")),
        (replace(AGREED, open_runs={}), Difference(K.GRANT_WITHOUT_RUN, "grant_1")),
        (
            replace(AGREED, open_runs={PART.grant: "Started", GrantId("grant_2"): "Launched"}),
            Difference(K.RUN_WITHOUT_GRANT, "grant_2"),
        ),
        (replace(AGREED, held=[]), Difference(K.CLAIM_WITHOUT_HOLDER, "grant_1", N1)),
        (
            replace(AGREED, held=[*AGREED.held, Held(N1, GrantId("grant_2"), None)]),
            Difference(K.HOLDER_OF_UNKNOWN_GRANT, "grant_2", N1),
        ),
        (
            replace(AGREED, held=[*AGREED.held, Held(N1, GrantId("grant_2"), PartState.RELEASED)]),
            Difference(K.HOLDER_OF_ENDED_GRANT, "grant_2", N1),
        ),
    ],
)
def test_each_kind_of_difference_is_seen_alone(seen: Snapshot, found: Difference) -> None:
    assert differences(seen) == {found}


def test_i7_who_could_not_be_asked_is_not_taken_for_empty() -> None:
    blind = replace(AGREED, charged=None, open_runs=None, leases_missing=None, leases_of_nobody=None)
    assert differences(blind) == set()


def test_i7_a_silent_node_that_names_nobody_is_no_difference() -> None:
    assert differences(replace(AGREED, parts=[PART._replace(heard=False)], held=[])) == set()


def test_what_is_on_its_way_is_noted_and_what_lasts_is_said_once() -> None:
    seen = replace(AGREED, open_runs={})
    gap = Difference(K.GRANT_WITHOUT_RUN, "grant_1")
    first = judge(seen, [], now=START, lasts_seconds=90, limit=100)
    assert (first.new, first.found) == ((gap,), ())
    noted = Known(gap, START, None, 0)
    early = judge(seen, [noted], now=START + timedelta(seconds=89), lasts_seconds=90, limit=100)
    late = judge(seen, [noted], now=START + timedelta(seconds=90), lasts_seconds=90, limit=100)
    assert (early.found, late.found, late.new) == ((), (noted,), ())
    said = replace(noted, found_at=START, version=1)
    assert judge(seen, [said], now=START + timedelta(days=1), lasts_seconds=90, limit=100).found == ()


def test_what_is_gone_is_cleared_when_it_was_said_and_else_forgotten() -> None:
    gap = Difference(K.GRANT_WITHOUT_RUN, "grant_1")
    unsaid, said = Known(gap, START, None, 0), Known(gap, START, START, 1)
    for known, cleared, dropped in ((unsaid, (), (unsaid,)), (said, (said,), ())):
        verdict = judge(AGREED, [known], now=START, lasts_seconds=90, limit=100)
        assert (verdict.cleared, verdict.dropped) == (cleared, dropped)


def test_what_could_not_be_looked_at_is_neither_found_nor_cleared() -> None:
    said = Known(Difference(K.GRANT_WITHOUT_RUN, "grant_1"), START, START, 1)
    verdict = judge(replace(AGREED, open_runs=None), [said], now=START, lasts_seconds=0, limit=100)
    assert (verdict.found, verdict.cleared, verdict.dropped) == ((), (), ())


def test_a_flood_is_noted_in_pieces() -> None:
    flood = replace(AGREED, leases_missing=[f"dev_{number}" for number in range(1_000)])
    assert len(judge(flood, [], now=START, lasts_seconds=90, limit=100).new) == 100
