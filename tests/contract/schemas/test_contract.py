"""The contract holds together: every fact has one owner, an example that survives the trip, and a schema it fits."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from schemas.base import fact_name
from schemas.catalog import CALLS, FACTS, SERVICES, STREAMS, durables
from schemas.codec import CodecError, decode, encode, schema_path, subject_of
from schemas.permissions import permissions

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "schemas" / "examples"
OWNERS = {
    "workload.request": "gateway",
    "workload.job": "admission",
    "workload.grant": "placement",
    "workload.run": "dispatch",
    "runtime.observation": "agent",
    "fleet.cluster": "inventory",
    "fleet.node": "inventory",
    "fleet.incident": "health",
    "fleet.drain": "health",
    "fleet.move": "inventory",
    "workload.drift": "placement",
    "ledger.usage": "billing",
}


def test_every_noun_has_the_one_owner_the_architecture_names() -> None:
    assert {fact.name.rpartition(".")[0]: fact.owner for fact in FACTS} == OWNERS
    assert all(OWNERS[fact.name.rpartition(".")[0]] == fact.owner for fact in FACTS)


def test_nobody_is_listed_who_is_no_service_and_audit_is_never_listed() -> None:
    listeners = {listener for fact in FACTS for listener in fact.listeners}
    assert listeners <= set(SERVICES) - {"audit"}
    assert {call.answered_by for call in CALLS} | {asker for call in CALLS for asker in call.asked_by} <= set(SERVICES)


def test_every_fact_stands_once_and_on_a_stream_that_is_declared() -> None:
    assert len({fact.type for fact in FACTS}) == len(FACTS)
    assert {fact.stream for fact in FACTS} == {stream.name for stream in STREAMS} - {"DEAD"}


def test_names_come_from_class_and_plane() -> None:
    names = [fact_name(fact.event) for fact in FACTS]
    assert "workload.job.quota_reserved" in names
    assert "fleet.node.went_stale" in names
    assert all(len(name.split(".")) == 3 for name in names)


def test_the_durables_of_a_service_filter_on_exactly_what_the_catalogue_lets_it_hear() -> None:
    for service in SERVICES:
        filters = {subject for durable in durables(service) for subject in durable.filter_subjects}
        heard = {fact.pattern for fact in FACTS if service == "audit" or service in fact.listeners}
        assert filters == heard
    assert len({durable.name for durable in durables()}) == len(durables())


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.type)
def test_an_example_of_every_fact_survives_the_trip_and_fits_the_committed_schema(fact) -> None:  # type: ignore[no-untyped-def]
    body = (EXAMPLES / f"{fact.type}.json").read_bytes()
    envelope = decode(body)
    assert decode(encode(envelope)) == envelope
    assert json.loads(encode(envelope)) == json.loads(body)
    assert subject_of(envelope) == f"{fact.type}.{envelope.scope}"
    schema = json.loads((ROOT / schema_path(fact.type)).read_text())
    Draft202012Validator(schema).validate(json.loads(body)["data"])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"type": "workload.job.forgotten.v1"}, "is not in the catalogue"),
        ({"specversion": "0.3"}, "is not 1.0"),
        ({"time": "2026-01-15T09:30:00"}, "no zone"),
        ({"time": "yesterday"}, "not a fact"),
        ({"id": 7}, "not a fact"),
        ({"data": {"job": "j"}}, "attempt: Field required"),
        ({"data": []}, "does not fit its schema"),
        ({"source": 7}, "source is not a text"),
        ({"scope": None}, "scope is not a text"),
        ({"subject": []}, "subject is not a text"),
        ({"traceparent": ["00"]}, "traceparent is not a text"),
        ({"entityversion": 1 << 63}, "entityversion is not a whole number"),
        ({"entityversion": 1.5}, "entityversion is not a whole number"),
        ({"source": "admission\0"}, "source is not a text"),
    ],
)
def test_bytes_that_are_no_fact_are_refused_with_what_is_wrong(change: dict[str, object], complaint: str) -> None:
    good = json.loads((EXAMPLES / "workload.job.cancelled.v1.json").read_bytes())
    with pytest.raises(CodecError, match=complaint):
        decode(json.dumps(good | change).encode())


@pytest.mark.parametrize("name", ["", "job.1", "Job", "j" * 65, "job\n"])
def test_an_id_that_is_no_token_is_refused_at_the_door(name: str) -> None:
    good = json.loads((EXAMPLES / "workload.job.cancelled.v1.json").read_bytes())
    with pytest.raises(CodecError, match="job: String should match pattern"):
        decode(json.dumps(good | {"data": good["data"] | {"job": name}}).encode())


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b"[1]", b"\xff\xfe", b"{" * 10_000, b"0" * 600_000])
def test_garbage_is_a_codec_error_and_nothing_else(body: bytes) -> None:
    with pytest.raises(CodecError):
        decode(body)


def test_unknown_fields_of_a_newer_writer_are_ignored() -> None:
    good = json.loads((EXAMPLES / "workload.job.cancelled.v1.json").read_bytes())
    newer = good | {"data": good["data"] | {"colour": "red"}, "futureextension": "x"}
    assert decode(json.dumps(newer).encode()) == decode(json.dumps(good).encode())


def test_a_service_may_say_its_own_nouns_only() -> None:
    for service in SERVICES:
        said = {
            subject
            for subject in permissions(service)["publish"]["allow"]
            if not subject.startswith(("$", "call", "dead"))
        }
        assert said == {fact.pattern for fact in FACTS if fact.owner == service}
