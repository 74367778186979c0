"""Values that are read from the same text again."""

import pytest

from libs.remembered import remembered
from schemas.base import Value
from schemas.workload import Work


def test_the_same_text_gives_the_same_value_and_another_text_another() -> None:
    read = remembered(Work)
    work = Work(command=("train",))
    assert read(work.model_dump_json()) == work
    assert read(work.model_dump_json()) is read(work.model_dump_json())
    assert read('{"command": ["serve"]}') == Work(command=("serve",))


def test_no_more_texts_are_kept_than_was_said() -> None:
    read = remembered(Work, texts=1)
    first = read('{"command": ["a"]}')
    read('{"command": ["b"]}')
    assert read('{"command": ["a"]}') is not first


def test_a_model_that_can_be_changed_is_not_remembered() -> None:
    class Loose(Value, frozen=False):
        pass

    with pytest.raises(AssertionError, match="Loose"):
        remembered(Loose)
