"""How a batch is judged: what is acknowledged, what comes again, what dies."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from libs.bus.batch import Batches, retry_seconds
from libs.bus.memory_store import MemoryStore, MemoryTurn
from libs.bus.turn import Turn
from libs.clock import ManualClock
from libs.errors import ConflictError, PoisonError, TransientError
from libs.pg.outbox import ASKS
from schemas import codec
from schemas.base import Envelope
from schemas.spec.queue import Queue
from tests.support.shell_services import submitted


@dataclass
class Given:
    """A delivery that notes its own fate."""

    envelope: Envelope
    attempt: int = 1
    said: int = 1
    asks: bool = False
    fate: list[Any] = field(default_factory=list)
    place: str = ""

    @property
    def subject(self) -> str:
        return self.place or codec.subject_of(self.envelope)

    @property
    def body(self) -> bytes:
        return codec.encode(self.envelope)

    @property
    def headers(self) -> dict[str, str]:
        return {"Nats-Msg-Id": f"{self.envelope.id}.{self.said}"} | ({ASKS: ""} if self.asks else {})

    @property
    def origin(self) -> str:
        return f"WORKLOAD/{self.envelope.key}"

    async def ack(self) -> None:
        self.fate.append("ack")

    async def again(self, seconds: float) -> None:
        self.fate.append(seconds)

    async def working(self) -> None:
        self.fate.append("working")


async def effect(turn: Turn, heard: Envelope) -> None:
    assert isinstance(turn, MemoryTurn)
    turn.state[heard.key] = "done"


async def effects(turn: Turn, facts: Sequence[Envelope]) -> None:
    for heard in facts:
        await effect(turn, heard)


def a_store() -> MemoryStore:
    return MemoryStore("admission", ManualClock())


def the_batches(store: MemoryStore, errors: dict[str, Exception]) -> Batches:
    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        for heard in facts:
            await effect(turn, heard)
            if heard.key in errors:
                raise errors[heard.key]

    return Batches("admission", "admission-workload", handle, store)


def buried(store: MemoryStore) -> list[tuple[str, str]]:
    rows = [row.item.message for row in store.tables.rows.values() if row.item.message.stream == "DEAD"]
    return [(row.headers["Triplane-Kind"], row.headers["Triplane-Reason"]) for row in rows]


async def test_a_batch_that_takes_effect_is_acknowledged() -> None:
    store, batch = a_store(), [Given(submitted("one")), Given(submitted("two"))]
    await the_batches(store, {}).take(batch)
    assert [each.fate for each in batch] == [["ack"], ["ack"]]
    assert store.tables.state == {"one": "done", "two": "done"}


async def test_the_same_fact_twice_in_one_batch_takes_effect_once() -> None:
    calls: list[int] = []

    async def handle(_: Turn, facts: Sequence[Envelope]) -> None:
        calls.append(len(facts))

    batch = [Given(submitted("one")), Given(submitted("one"), said=2)]
    await Batches("admission", "admission-workload", handle, a_store()).take(batch)
    assert (calls, [each.fate for each in batch]) == ([1], [["ack"], ["ack"]])


async def test_what_was_taken_and_is_said_again_on_purpose_is_handed_over_to_be_answered_once_more() -> None:
    asked: list[list[str]] = []

    async def again(_: Turn, facts: Sequence[Envelope]) -> None:
        asked.append([heard.key for heard in facts])

    batches = Batches("admission", "admission-workload", effects, a_store(), again=again)
    await batches.take([Given(submitted("one")), Given(submitted("two"))])
    told_again = [Given(submitted(key), said=2, asks=key != "one") for key in ("one", "two", "new")]
    await batches.take(told_again)
    assert asked == [["two"]]


async def test_a_transient_failure_undoes_its_own_message_alone_and_comes_again_later_each_time() -> None:
    store, error = a_store(), TransientError("not yet")
    batch = [Given(submitted("one")), Given(submitted("bad"), attempt=3), Given(submitted("two"))]
    await the_batches(store, {"bad": error}).take(batch)
    assert [each.fate for each in batch] == [["ack"], [4.0], ["ack"]]
    assert store.tables.state == {"one": "done", "two": "done"}
    assert [retry_seconds(attempt) for attempt in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_batch_that_lost_a_race_is_taken_again_whole_and_no_message_pays_for_it() -> None:
    seen: list[list[str]] = []

    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        seen.append([heard.key for heard in facts])
        if len(seen) < 3:
            raise ConflictError("deadlock detected")
        await effects(turn, facts)

    store, batch = a_store(), [Given(submitted("one")), Given(submitted("two"))]
    await Batches("admission", "admission-workload", handle, store).take(batch)
    assert [each.fate for each in batch] == [["ack"], ["ack"]]
    assert (seen, store.tables.state) == ([["one", "two"]] * 3, {"one": "done", "two": "done"})


async def test_messages_that_go_apart_are_taken_in_a_turn_each_and_hold_nothing_of_their_neighbours() -> None:
    turns: dict[str, Turn] = {}

    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        if len(facts) > 1:
            raise PoisonError("no")
        turns[facts[0].key] = turn

    batch = [Given(submitted("one")), Given(submitted("two")), Given(submitted("three"))]
    await Batches("admission", "admission-workload", handle, a_store()).take(batch)
    assert len({id(turn) for turn in turns.values()}) == 3


async def test_the_last_delivery_of_what_fails_each_time_is_a_dead_letter() -> None:
    store, batch = a_store(), [Given(submitted("bad"), attempt=8)]
    await the_batches(store, {"bad": TransientError("never")}).take(batch)
    assert (batch[0].fate, buried(store)) == (["ack"], [("exhausted", "never")])


async def test_what_was_exhausted_has_another_chance_when_it_is_said_again() -> None:
    store = a_store()
    errors: dict[str, Exception] = {"bad": TransientError("never")}
    batches = the_batches(store, errors)
    await batches.take([Given(submitted("bad"), attempt=8)])
    errors.clear()
    await batches.take([Given(submitted("bad"), said=2)])
    assert store.tables.state == {"bad": "done"}


async def test_a_defect_is_raised_once_everything_else_is_settled() -> None:
    store, batch = a_store(), [Given(submitted("bad")), Given(submitted("one"))]
    with pytest.raises(ZeroDivisionError):
        await the_batches(store, {"bad": ZeroDivisionError()}).take(batch)
    assert [each.fate for each in batch] == [[1.0], ["ack"]]
    assert (store.tables.state, buried(store)) == ({"one": "done"}, [])


async def test_a_defect_on_the_last_delivery_is_buried_so_that_the_process_can_go_on() -> None:
    store, batch = a_store(), [Given(submitted("bad"), attempt=8)]
    with pytest.raises(ZeroDivisionError):
        await the_batches(store, {"bad": ZeroDivisionError("oh")}).take(batch)
    assert (batch[0].fate, buried(store)) == (["ack"], [("defect", "ZeroDivisionError('oh')")])


async def test_poison_is_acknowledged_and_buried() -> None:
    store, batch = a_store(), [Given(submitted("bad"))]
    await the_batches(store, {"bad": PoisonError("ümlaut\nand more")}).take(batch)
    assert (batch[0].fate, buried(store)) == (["ack"], [("poison", "?mlaut and more")])


async def test_a_fact_that_its_owner_did_not_say_is_no_fact() -> None:
    store = a_store()
    forged = Given(submitted("one"), place="workload.run.lost.v1.acme.one")
    claimed = Given(replace(submitted("two"), source="dispatch"))
    batch = [forged, claimed, Given(submitted("three"))]
    await the_batches(store, {}).take(batch)
    assert [each.fate for each in batch] == [["ack"]] * 3
    assert (store.tables.state, buried(store)) == (
        {"three": "done"},
        [
            ("undecodable", f"{forged.envelope.type} of acme and one was said elsewhere"),
            ("undecodable", "'dispatch' says a fact of gateway"),
        ],
    )


async def test_a_fact_that_an_older_release_said_with_its_key_in_the_subject_is_one() -> None:
    store, old = a_store(), Given(submitted("one"), place="workload.request.submitted.v1.acme.one")
    other = Given(submitted("two"), place="workload.request.submitted.v1.acme.one")
    await the_batches(store, {}).take([old, other])
    assert store.tables.state == {"one": "done"}
    assert [kind for kind, _ in buried(store)] == ["undecodable"]


async def test_a_document_that_fits_no_schema_is_poison_and_so_is_what_has_no_answer_that_can_be_said() -> None:
    async def handle(turn: Turn, facts: Sequence[Envelope]) -> None:
        for heard in facts:
            if heard.key == "document":
                Queue.model_validate({"kind": "Queue"})
            turn.emit(heard.data, scope="acme", key="No Token", version=1)

    store, batch = a_store(), [Given(submitted("document")), Given(submitted("answer"))]
    await Batches("admission", "admission-workload", handle, store).take(batch)
    assert [each.fate for each in batch] == [["ack"], ["ack"]]
    (document, why), (answer, said) = buried(store)
    assert (document, why.startswith("2 validation errors for Queue")) == ("poison", True)
    assert (answer, said.startswith("what comes of it can not be said: 'No Token' is not a subject token")) == (
        "poison",
        True,
    )
