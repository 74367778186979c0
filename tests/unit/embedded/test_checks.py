"""The demonstration's checks find what they are there to find."""

from dataclasses import replace
from typing import Any

import pytest

from deploy.embedded.demo.books import Books, Charge, Hold
from deploy.embedded.demo.checks import all_verdicts
from deploy.embedded.demo.diary import Entry

MICROS_PER_HOUR = 3_600_000_000  # a thousand micros a millisecond


def a_hold(**changes: Any) -> Hold:
    hold = Hold("d0", "n1/0", "train", "research", "nlp", 1, "g1", 7, 0, 100.0, 100.1, 104.0)
    return replace(hold, **changes)


def an_entry(**changes: Any) -> Entry:
    return replace(Entry("train", 1, 0, "g1", ("d0",), 100.2, 103.5), **changes)


def a_charge(**changes: Any) -> Charge:
    charge = Charge("g1", "d0", "research", "research", 4_000_000, MICROS_PER_HOUR, 100.0, 104.0)
    return replace(charge, **changes)


LATER = {"grant": "g2", "epoch": 8, "issued": 104.0, "claimed": 104.1, "released": 108.0}
LATER_CHARGE = {"grant": "g2", "start": 104.0, "end": 108.0}


def broken(holds: list[Hold], diary: list[Entry], charges: list[Charge]) -> list[str]:
    verdicts = all_verdicts(
        Books(tuple(holds), tuple(charges)), diary, quota={("research", "nlp"): 1}, gangs={"train": 1}
    )
    return [verdict.promise.partition(":")[0] for verdict in verdicts if verdict.broken]


def test_nothing_is_found_where_all_is_well() -> None:
    holds = [a_hold(), a_hold(**LATER)]
    diary = [an_entry(), an_entry(grant="g2", begin=104.2, end=107.0)]
    assert broken(holds, diary, [a_charge(), a_charge(**LATER_CHARGE)]) == []


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ({"issued": 103.0}, ["one owner", "quota"]),
        ({"epoch": 7}, ["epochs only rise on a device"]),
        ({"released": None}, ["everything given back"]),
    ],
)
def test_a_second_grant_that_is_wrong_is_found(second: dict[str, object], found: list[str]) -> None:
    later = a_hold(**{**LATER, **second})
    verdicts = broken([a_hold(), later], [], [a_charge(), a_charge(**LATER_CHARGE)])
    assert [promise for promise in verdicts if not promise.startswith("the bill")] == found


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"devices": ("d1",)}, "no start without a grant"),
        ({"begin": 99.0}, "no start without a grant"),
        ({"end": 105.0}, "no start without a grant"),
        ({"rank": 1}, "no start without a grant"),
    ],
)
def test_a_process_outside_its_grant_is_found(entry: dict[str, object], found: str) -> None:
    assert broken([a_hold()], [an_entry(**entry)], [a_charge()]) == [found]


def test_two_processes_on_one_device_are_found() -> None:
    diary = [an_entry(), an_entry(grant="g1", attempt=2, begin=103.0, end=103.2)]
    assert broken([a_hold()], diary, [a_charge()]) == ["one user"]


def test_half_a_gang_is_found() -> None:
    verdicts = all_verdicts(Books((a_hold(),), (a_charge(),)), [], quota={("research", "nlp"): 1}, gangs={"train": 2})
    assert [verdict.broken for verdict in verdicts if verdict.broken] == [("g1: train got 1 devices of 2",)]


@pytest.mark.parametrize(
    "charges", [[], [a_charge(), a_charge()], [a_charge(end=105.0)], [a_charge(amount_micros=4_000_002)]]
)
def test_a_wrong_bill_is_found(charges: list[Charge]) -> None:
    assert broken([a_hold()], [], charges) == ["the bill is the granted time, once"]
