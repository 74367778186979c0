from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.rules import docs, top

RECORD = """# Say it once

## Context
Things were said twice.

## Decision
They are said once.

## Consequences
Less to read.

## Alternatives
Saying them thrice.

## Enforced by
This test.
"""


def test_a_whole_decision_record_has_no_faults() -> None:
    assert docs.adr_faults("0001-say-it-once.md", RECORD) == []


@pytest.mark.parametrize("section", docs.SECTIONS)
def test_a_decision_record_without_a_section_is_found(section: str) -> None:
    assert docs.adr_faults("0001-say-it-once.md", RECORD.replace(f"## {section}\n", "")) == [
        f"has no words under {section}"
    ]


def test_a_decision_record_with_an_empty_section_is_found() -> None:
    emptied = RECORD.replace("Things were said twice.\n", "")
    assert docs.adr_faults("0001-say-it-once.md", emptied) == ["has no words under Context"]


def test_a_decision_record_without_number_or_title_is_found() -> None:
    faults = docs.adr_faults("say-it-once.md", RECORD.removeprefix("# Say it once\n"))
    assert faults == ["is not named NNNN-imperative-title.md", "has no title on its first line"]


def test_two_decision_records_of_one_number_are_found() -> None:
    assert docs.twice_numbered(["0001-a.md", "0002-b.md", "0002-c.md"]) == ["0002"]


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# Here `it` is, at last\n")
    page = """
    [gone](gone.md) [there](there.md) [heading](there.md#here-it-is-at-last) [no heading](there.md#nowhere)
    [outside](https://example.org/x) `[code](gone.md)` ![picture](gone.png)
    """
    assert docs.lost_links(Path("page.md"), page, tmp_path) == ["gone.md", "there.md#nowhere", "gone.png"]


def test_a_stranger_at_the_top_and_a_gap_are_found() -> None:
    places = [Path(name) / "x" for name in top.NEEDED - {"LICENSE"}] + [Path("utils.py"), Path("benchmarks/x")]
    assert top.faults(places) == [
        "utils.py is neither NEEDED nor ALLOWED in tests/tidy/rules/top.py",
        "LICENSE is missing",
    ]
    assert top.strange_tests([Path("tests/unit/test_x.py"), Path("tests/smoke/test_x.py")]) == ["smoke"]


def test_every_decision_record_is_whole() -> None:
    records = [(place, content) for place, content in tree.texts(".md") if place.parts[:2] == ("docs", "adr")]
    assert [f"{place}: {fault}" for place, content in records for fault in docs.adr_faults(place.name, content)] == []
    assert docs.twice_numbered(place.name for place, _ in records) == []


def test_every_link_leads_somewhere() -> None:
    pages = tree.texts(".md")
    assert [f"{p}: {link}" for p, content in pages for link in docs.lost_links(p, content, tree.ROOT)] == []


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    assert "[Unreleased]" in docs.headings((tree.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))


def test_the_top_of_the_tree_is_the_one_the_architecture_lists() -> None:
    assert top.faults(tree.files()) == []
    assert top.strange_tests(tree.files()) == []
