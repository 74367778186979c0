from pathlib import Path

import pytest

from tests.tidy import tree
from tests.tidy.rules import words


@pytest.mark.parametrize("word", words.REGISTRIES + words.WORKPLACE)
def test_a_registry_or_a_word_of_the_workplace_is_found(word: str) -> None:
    assert words.found(f"first line\nsee {word}here", words.REGISTRIES + words.WORKPLACE) == [f"2: {word}"]


def test_a_folder_of_this_machine_is_found() -> None:
    root = Path.home() / "code" / "triplane"
    folders = words.machine_folders(root)
    assert folders == (f"{Path.home()}/", f"{root}/")
    assert words.found(f"cd {Path.home()}/elsewhere", folders) == [f"1: {Path.home()}/"]


def test_an_open_end_needs_an_issue() -> None:
    word = "TO" + "DO"
    assert words.open_ends(f"# {word} later\n# {word}(#12) later\nnothing") == ["1"]


def test_no_registry_and_no_word_of_the_workplace_stands_in_this_tree() -> None:
    unwanted = words.REGISTRIES + words.WORKPLACE + words.machine_folders(tree.ROOT)
    # The makefile tells its tool to write no address; the workflow and the pins need none.
    texts = ((place, content) for place, content in tree.texts() if place != Path("Makefile"))
    assert [f"{place}:{fault}" for place, content in texts for fault in words.found(content, unwanted)] == []


def test_every_open_end_of_this_tree_names_an_issue() -> None:
    assert [f"{place}:{line}" for place, content in tree.texts() for line in words.open_ends(content)] == []
