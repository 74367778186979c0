"""Ids are the same for the same parts for ever, whatever works them out."""

from uuid import UUID, uuid5

from schemas.ids import NAMESPACE, derive, fact_id, named


def test_a_named_id_is_the_uuid_of_its_name() -> None:
    names = ["", "a", "job/acme/train/1", "über/größe", "x" * 1_000]
    assert [named(name) for name in names] == [uuid5(NAMESPACE, name) for name in names]


def test_ids_stay_what_they_were() -> None:
    assert derive("job", "acme", "train", 1) == "job_49fb2b56eec0556f9a6146544eebd236"
    assert fact_id("workload.job.admitted.v1", "job_1", 3) == UUID("35096231-d103-50bd-a886-886111a61ec9")
