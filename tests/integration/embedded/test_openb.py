"""The public trace, as a person plays it."""

from pathlib import Path

import pytest

from tests.support.stacks import embedded

SECONDS = 280  # a busy machine; a quiet one needs 30


@pytest.mark.demos
@pytest.mark.timeout(300)
async def test_the_sample_of_the_public_trace_goes_through_the_stack_and_the_invariants_hold(tmp_path: Path) -> None:
    picture = tmp_path / "openb.svg"
    outcome = await embedded(
        "demo", "--trace", "openb", "--minutes", "0.1", "--stretch", "3", "--picture", picture, seconds=SECONDS
    )
    assert outcome.code == 0, outcome.said
    said = outcome.said.splitlines()
    assert said[-1] == "All is well.", outcome.said
    assert "ok      the invariants I1 to I10 hold" in said
    assert picture.read_text().startswith("<svg")


async def test_a_folder_without_the_lists_is_refused_in_words(tmp_path: Path) -> None:
    outcome = await embedded("demo", "--trace", "openb", tmp_path)
    assert outcome.code == 1
    assert outcome.said.startswith(f"{tmp_path}/openb_node_list_gpu_node.csv cannot be read:")
