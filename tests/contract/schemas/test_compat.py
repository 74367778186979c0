"""The compatibility check catches each way of breaking a reader."""

import copy
import json
from pathlib import Path
from typing import Any

from schemas.__main__ import incompatible, stale, write
from schemas.compat import breaks

ROOT = Path(__file__).resolve().parents[3]
BASE: dict[str, Any] = {
    "$defs": {"Proof": {"type": "string", "enum": ["Seal", "Override"]}},
    "type": "object",
    "properties": {"job": {"type": "string"}, "attempt": {"type": "integer"}, "proof": {"$ref": "#/$defs/Proof"}},
    "required": ["job", "attempt"],
}


def changed(path: str, value: object) -> dict[str, Any]:
    schema = copy.deepcopy(BASE)
    node: Any = schema
    *parents, last = path.split("/")
    for step in parents:
        node = node[step]
    node[last] = value
    return schema


def test_the_same_schema_is_compatible_and_so_is_a_new_optional_field() -> None:
    assert breaks(BASE, BASE) == []
    assert breaks(BASE, changed("properties/note", {"type": "string", "default": ""})) == []


def test_a_new_enum_value_is_compatible_and_a_lost_one_is_not() -> None:
    assert breaks(BASE, changed("$defs/Proof/enum", ["Seal", "Override", "BootEnded"])) == []
    assert breaks(BASE, changed("$defs/Proof/enum", ["Seal"])) == ["proof: values ['Override'] are gone"]


def test_a_lost_field_a_changed_type_and_a_new_demand_break_readers() -> None:
    gone = copy.deepcopy(BASE)
    del gone["properties"]["attempt"]
    assert breaks(BASE, gone) == ["attempt: the field is gone"]
    assert breaks(BASE, changed("properties/attempt", {"type": "string"})) == [
        "attempt: type changed from 'integer' to 'string'"
    ]
    assert breaks(BASE, changed("required", ["job", "attempt", "proof"])) == [
        ".proof: the field is required now".lstrip(".")
    ]
    assert breaks(BASE, changed("required", ["job"])) == ["attempt: the field may be missing now"]


def test_an_older_checkout_with_one_more_fact_is_named(tmp_path: Path) -> None:
    old = tmp_path / "json" / "workload" / "job"
    old.mkdir(parents=True)
    (old / "forgotten.v1.json").write_text(json.dumps(BASE))
    assert incompatible(tmp_path / "json", ROOT) == ["workload/job/forgotten.v1.json: the fact is gone"]
    assert incompatible(ROOT / "schemas" / "json", ROOT) == []


def test_the_generated_files_are_up_to_date_and_a_stale_one_is_found(tmp_path: Path) -> None:
    assert stale(ROOT) == []
    write(tmp_path)
    assert stale(tmp_path) == []
    (tmp_path / "docs" / "events.md").write_text("old")
    (tmp_path / "schemas" / "json" / "left-over.json").write_text("{}")
    assert stale(tmp_path) == ["docs/events.md", "schemas/json/left-over.json"]
    assert write(tmp_path) == ["docs/events.md", "schemas/json/left-over.json"]
    assert stale(tmp_path) == []
