"""The chain shows what was changed, removed or slipped in."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from schemas.codec import encode
from services.audit.core import GENESIS, MAX_PAGE_BYTES, Entry, Head, chained, follows, page
from tests.support.builders import a_grant, a_job_id, a_part, a_submission, an_envelope, at, released

GRANT = a_grant("train", a_part("n1", 2))
FACTS = [
    an_envelope(a_submission("train"), key=a_job_id("train")),
    an_envelope(GRANT, key=GRANT.grant),
    an_envelope(released(GRANT), key=GRANT.grant, version=2),
]
BODIES = [encode(fact) for fact in FACTS]


def a_chain(bodies: list[bytes] = BODIES) -> list[Entry]:
    return list(chained(Head(), bodies, now=at(0)))


def holds(entries: list[Entry]) -> list[bool]:
    heads = [Head(), *(entry.head for entry in entries)]
    return [follows(entry, head) for entry, head in zip(entries, heads, strict=False)]


def test_entries_are_numbered_and_each_names_the_hash_before_it() -> None:
    entries = a_chain()
    assert [entry.sequence for entry in entries] == [1, 2, 3]
    assert entries[0].previous == GENESIS
    assert all(later.previous == earlier.hash for earlier, later in pairwise(entries))
    assert holds(entries) == [True, True, True]


def test_a_chain_goes_on_where_it_ended() -> None:
    first = a_chain(BODIES[:1])
    assert [*first, *chained(first[-1].head, BODIES[1:], now=at(0))] == a_chain()


def test_an_entry_is_found_by_every_id_in_its_fact() -> None:
    entry = a_chain()[1]
    part = GRANT.parts[0]
    ids = {GRANT.grant, GRANT.job, GRANT.cluster, part.node, *(device.device for device in part.devices)}
    assert entry.entities == tuple(sorted(ids))
    assert (entry.type, entry.key, entry.scope, entry.tenant) == (
        "workload.grant.issued.v1",
        GRANT.grant,
        "acme",
        "acme",
    )


@pytest.mark.parametrize(
    "change",
    [
        {"body": BODIES[0]},
        {"body": BODIES[1].replace(b'"attempt":1', b'"attempt":2')},
        {"body": b"{"},
        {"body": b"[]"},
        {"heard_at": at(0) + timedelta(microseconds=1)},
        {"hash": bytes(32)},
        {"previous": bytes(32)},
        {"sequence": 3},
        {"fact": UUID(int=0)},
        {"type": "workload.grant.released.v1"},
        {"scope": "other"},
        {"key": "other"},
        {"source": "other"},
        {"tenant": None},
        {"entities": ()},
    ],
    ids=lambda change: f"{next(iter(change))}",
)
def test_a_change_of_any_field_shows(change: dict[str, Any]) -> None:
    entries = a_chain()
    assert holds([entries[0], replace(entries[1], **change), entries[2]])[:2] == [True, False]


def test_a_change_that_is_hashed_again_shows_at_the_next_entry() -> None:
    entries = a_chain()
    (forged,) = chained(entries[0].head, [BODIES[1].replace(b'"attempt":1', b'"attempt":2')], now=at(0))
    assert holds([entries[0], forged, entries[2]]) == [True, True, False]


def test_a_removed_entry_shows() -> None:
    entries = a_chain()
    assert holds([entries[0], entries[2]]) == [True, False]


def test_an_entry_slipped_in_shows() -> None:
    entries = a_chain()
    (slipped,) = chained(entries[0].head, [BODIES[2]], now=at(0))
    assert holds([entries[0], slipped, *entries[1:]]) == [True, True, False, True]


def test_a_page_fits_into_one_message_and_is_never_empty() -> None:
    large = [encode(an_envelope(a_submission(f"job-{n}"), key=a_job_id(f"job-{n}"))) for n in range(3)]
    entries = [replace(entry, body=entry.body + b" " * (MAX_PAGE_BYTES // 2)) for entry in a_chain(large)]
    assert [entry.sequence for entry in page(entries)] == [1]
    assert page([]) == ()


def test_a_page_shows_an_entry_that_was_made_unreadable() -> None:
    entry = a_chain()[0]
    assert [shown.fact for shown in page([replace(entry, body=b"{"), replace(entry, body=b"[]")])] == [{}, {}]


def test_a_page_shows_the_fact_and_its_place() -> None:
    entry = a_chain()[0]
    (shown,) = page([entry])
    assert (shown.sequence, shown.key, shown.fact["data"]["name"]) == (1, a_job_id("train"), "train")
    assert (shown.previous_hash, shown.hash) == (GENESIS.hex(), entry.hash.hex())
