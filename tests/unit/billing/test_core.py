"""Usage and its cost, whatever the order of the facts."""

from collections.abc import Iterable
from datetime import timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import Envelope
from schemas.ids import UsageId, derive, device_id
from schemas.ledger import UsageLine, UsageRated
from schemas.reasons import Code
from services.billing.core import PLATFORM_LOSS, View, amount_micros, decide, evolve
from tests.support.builders import (
    ACME,
    a_grant,
    a_node_id,
    a_part,
    a_queue,
    an_envelope,
    at,
    confirmed,
    released,
    revoked,
)
from tests.support.builders_billing import a_class, a_price, a_stretch, orders, said

HOUR = timedelta(hours=1)


def rated(facts: Iterable[Envelope]) -> list[UsageRated]:
    return list(decide(reduce(evolve, facts, View())))


def device_hours(usages: Iterable[UsageRated]) -> float:
    return round(sum((line.ended_at - line.started_at) / HOUR for usage in usages for line in usage.lines), 3)


def cost_micros(usages: Iterable[UsageRated]) -> int:
    return sum(line.amount_micros for usage in usages for line in usage.lines)


def test_a_claimed_part_is_paid_by_its_tenant_from_issue_to_release() -> None:
    grant = a_grant("train", a_part("n1", 1), issued=at(0))
    node = a_node_id("n1")
    assert rated([a_price(price="2.50 USD"), *said(grant, released(grant, when=at(1800)))]) == [
        UsageRated(
            usage=UsageId(derive("usage", grant.grant, node, ACME)),
            grant=grant.grant,
            job=grant.job,
            attempt=1,
            tenant=ACME,
            account=ACME,
            queue="main",
            gpu_class="h100",
            node=node,
            currency="USD",
            lines=(
                UsageLine(
                    device=device_id(node, "GPU-demo-n1-0"),
                    started_at=at(0),
                    ended_at=at(1800),
                    price_micros_per_hour=2_500_000,
                    amount_micros=1_250_000,
                ),
            ),
        )
    ]


def test_a_part_that_never_started_is_the_platforms_loss() -> None:
    grant = a_grant("train", a_part("n1", 2), issued=at(0))
    usages = rated([a_price(), *said(grant, released(grant, claimed=False, when=at(60)), claims=False)])
    assert [(usage.tenant, usage.account, cost_micros([usage])) for usage in usages] == [(ACME, PLATFORM_LOSS, 66_666)]


@pytest.mark.parametrize("order", range(4))
@pytest.mark.parametrize(
    ("facts", "hours", "micros"),
    [
        ([*a_stretch("a", 0, 30, devices=4), *a_stretch("b", 35, 55)], 2.333, 4_666_667),
        ([*a_stretch("a", 0, 30), *a_stretch("b", 30, 50, devices=4)], 1.833, 3_666_668),
    ],
    ids=["4 devices, a stop, then 1", "1 device, then 4"],
)
def test_a_change_of_shape_inside_an_hour_counts_each_shape_for_its_own_time(
    facts: list[Envelope], hours: float, micros: int, order: int
) -> None:
    usages = rated(orders([a_price(), *facts])[order])
    assert (device_hours(usages), cost_micros(usages)) == (hours, micros)


@pytest.mark.parametrize("order", range(4))
def test_a_change_of_class_inside_an_hour_counts_each_class_at_its_own_price(order: int) -> None:
    prices = [a_price("a100", "2.00 USD"), a_price("h100", "4.00 USD")]
    stretches = [*a_stretch("a", 0, 30, gpu_class="a100"), *a_stretch("b", 30, 50, node="n2")]
    usages = rated(orders([*prices, *stretches])[order])
    assert {usage.gpu_class: cost_micros([usage]) for usage in usages} == {"a100": 1_000_000, "h100": 1_333_333}


def test_a_long_job_is_8100_seconds_a_device_however_often_its_end_is_said() -> None:
    facts = [a_price(), *a_stretch("train", -10, 125, devices=2)]
    usages = rated([*facts, facts[-1], facts[-1]])
    assert [(line.ended_at - line.started_at).total_seconds() for line in usages[0].lines] == [8100, 8100]
    assert len(usages) == 1


def test_the_price_is_the_one_in_force_when_the_devices_were_issued() -> None:
    prices = [a_price(price="2.00 USD"), a_price(price="3.00 USD", generation=2, minute=30)]
    facts = [*prices, *a_stretch("before", 29, 89), *a_stretch("after", 30, 90, node="n2")]
    assert {usage.node: cost_micros([usage]) for usage in rated(facts)} == {
        a_node_id("n1"): 2_000_000,
        a_node_id("n2"): 3_000_000,
    }


def test_the_first_price_holds_for_what_was_issued_before_it() -> None:
    assert cost_micros(rated([a_price(minute=10), *a_stretch("train", 0, 60)])) == 2_000_000


def test_a_missing_generation_is_waited_for_where_it_might_be_in_force() -> None:
    facts = [a_price(), a_price(price="9.00 USD", generation=3, minute=90), *a_stretch("train", 30, 90)]
    missing = a_price(price="3.00 USD", generation=2, minute=0)
    assert rated(facts) == []
    assert cost_micros(rated([*facts, missing])) == 3_000_000


def test_a_part_waits_until_its_price_and_all_its_facts_were_heard() -> None:
    price, facts = a_price(), a_stretch("train", 0, 60)
    assert rated(facts) == []
    assert [rated([price, *facts[:n], *facts[n + 1 :]]) for n in range(len(facts))] == [[], [], [], []]
    assert len(rated([price, *facts])) == 1


def test_a_part_that_started_on_another_device_pays_each_for_the_time_it_was_held() -> None:
    grant = a_grant("train", a_part("n1", 1), issued=at(0))
    moved = a_grant("train", a_part("n1", 1, first=5), issued=at(0))
    facts = [grant, confirmed(moved, when=at(30)), revoked(moved, when=at(3600)), released(moved, when=at(3600))]
    usages = rated([a_price(), *(an_envelope(fact, key=grant.grant, version=n) for n, fact in enumerate(facts))])
    spans = {line.device: (line.started_at, line.ended_at) for line in usages[0].lines}
    node = a_node_id("n1")
    assert spans == {
        device_id(node, "GPU-demo-n1-0"): (at(0), at(30)),
        device_id(node, "GPU-demo-n1-5"): (at(30), at(3600)),
    }


def test_the_tail_of_a_lost_attempt_is_the_platforms_loss() -> None:
    grant = a_grant("train", a_part("n1", 1), issued=at(0))
    lost = revoked(grant, Code.NODE_LOST, when=at(1800))
    usages = rated([a_price(), *said(grant, released(grant, when=at(5400)), revocation=lost)])
    assert {usage.account: (device_hours([usage]), cost_micros([usage])) for usage in usages} == {
        ACME: (0.5, 1_000_000),
        PLATFORM_LOSS: (1.0, 2_000_000),
    }
    assert len({usage.usage for usage in usages}) == 2


def test_what_a_part_waits_for_after_it_was_put_before_a_person_is_the_platforms_loss() -> None:
    grant = a_grant("train", a_part("n1", 1), issued=at(0))
    for code, hours in ((Code.RUN_ENDED, 0.75), (Code.NODE_LOST, 0.5)):
        over = revoked(grant, code, when=at(1800))
        usages = rated([a_price(), *said(grant, released(grant, when=at(5400), lost=at(2700)), revocation=over)])
        assert {usage.account: device_hours([usage]) for usage in usages} == {ACME: hours, PLATFORM_LOSS: 1.5 - hours}


def test_each_part_of_a_gang_is_rated_by_itself() -> None:
    grant = a_grant("train", a_part("n1", 1), a_part("n2", 1, rank=1), issued=at(0))
    facts = said(grant, released(grant, 0, remaining=1, when=at(60)), released(grant, 1, when=at(3600)))
    assert [usage.node for usage in rated([a_price(), *facts[:-1]])] == [a_node_id("n1")]
    assert {usage.node: cost_micros([usage]) for usage in rated([a_price(), *facts])} == {
        a_node_id("n1"): 33_333,
        a_node_id("n2"): 2_000_000,
    }


def test_a_part_that_gave_its_devices_back_alone_is_rated_at_once_and_by_its_own_time() -> None:
    grant = a_grant("train", a_part("n1", 1), a_part("n2", 1, rank=1), issued=at(0))
    claims = [confirmed(grant, part, when=at(30)) for part in (0, 1)]
    alone = released(grant, 0, remaining=1, when=at(1800), alone=True)
    over = revoked(grant, Code.NODE_LOST, when=at(3600)).model_copy(
        update={"nodes": (a_node_id("n2"),), "alone": (a_node_id("n1"),)}
    )
    facts = [grant, *claims, alone, over, released(grant, 1, when=at(5400))]
    told = [an_envelope(fact, key=grant.grant, version=version) for version, fact in enumerate(facts, 1)]
    assert [usage.node for usage in rated([a_price(), *told[:4]])] == [a_node_id("n1")]
    for order in orders(told):
        assert sorted(
            (usage.node, usage.account, cost_micros([usage])) for usage in rated([a_price(), *order])
        ) == sorted(
            [
                (a_node_id("n1"), ACME, 1_000_000),
                (a_node_id("n2"), ACME, 2_000_000),
                (a_node_id("n2"), PLATFORM_LOSS, 1_000_000),
            ]
        )


def test_what_a_lost_part_waits_for_alone_is_the_platforms_loss() -> None:
    grant = a_grant("train", a_part("n1", 1), issued=at(0))
    late = released(grant, when=at(5400), alone=True, lost=at(1800))
    told = [an_envelope(fact, key=grant.grant) for fact in (grant, confirmed(grant, when=at(30)), late)]
    usages = rated([a_price(), *told])
    assert {usage.account: device_hours([usage]) for usage in usages} == {ACME: 0.5, PLATFORM_LOSS: 1.0}


def test_a_release_before_its_issue_by_a_broken_clock_costs_nothing() -> None:
    assert cost_micros(rated([a_price(), *a_stretch("train", 10, 9)])) == 0


def test_what_is_not_billings_concern_changes_nothing() -> None:
    assert evolve(View(), an_envelope(a_queue(), key="queue_main")) == View()


def test_a_class_that_cannot_be_read_is_refused() -> None:
    broken = a_class().model_copy(update={"document": {"kind": "GpuClass"}})
    with pytest.raises(ValueError, match="the document of class h100 does not fit"):
        evolve(View(), an_envelope(broken, key="class_h100"))


@pytest.mark.parametrize(
    ("price", "microseconds", "micros"),
    [(2_000_000, 3_600_000_000, 2_000_000), (1, 1_800_000_000, 1), (1, 1_799_999_999, 0), (0, 1, 0)],
)
def test_amounts_are_rounded_half_up(price: int, microseconds: int, micros: int) -> None:
    assert amount_micros(price, timedelta(microseconds=microseconds)) == micros


FACTS = [
    a_price(),
    a_price(price="3.00 USD", generation=2, minute=20),
    *a_stretch("first", 0, 30, devices=2),
    *a_stretch("second", 30, 50),
]


@given(st.permutations(FACTS), st.lists(st.sampled_from(FACTS), max_size=6))
def test_any_order_and_any_repetition_give_the_same_usage(facts: list[Envelope], again: list[Envelope]) -> None:
    assert rated([*again, *facts]) == rated(FACTS)
