from collections.abc import Iterator
from pathlib import Path

import pytest

from services.agent.shim.files import write
from services.agent.store.folder import RunFolder, RuntimeFolder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RuntimeFolder]:
    """An open runtime folder."""
    opened = RuntimeFolder(tmp_path / "run", "boot-1")
    opened.open()
    yield opened
    opened.close()


def names(folder: RuntimeFolder) -> list[str]:
    return [run.path.name for run in folder.all_runs()]


def test_a_run_that_is_being_made_is_no_run_yet(folder: RuntimeFolder) -> None:
    unborn = folder.runs / ".unborn"
    unborn.mkdir()
    write(unborn / "order.json", {})
    folder.create("job-a1-e1", {})
    assert names(folder) == ["job-a1-e1"]


def test_what_a_killed_agent_left_half_made_is_cleared_away_by_the_next(folder: RuntimeFolder, tmp_path: Path) -> None:
    (folder.runs / ".unborn").mkdir()
    folder.create("job-a1-e1", {})
    folder.close()
    RuntimeFolder(tmp_path / "run", "boot-1").open()
    assert [path.name for path in folder.runs.iterdir()] == ["job-a1-e1"]


def test_who_looks_at_a_run_that_is_dropped_meanwhile_takes_it_for_over(folder: RuntimeFolder) -> None:
    run = folder.create("job-a1-e1", {})
    seen = RunFolder(run.path)
    assert not seen.told("ended")
    folder.drop(run)
    assert (seen.told("ended"), list(folder.runs.iterdir())) == (True, [])


def test_runs_are_told_apart_by_name_and_by_their_record(folder: RuntimeFolder) -> None:
    ended, lives = folder.create("job_a-a1-e1", {}), folder.create("job_b-a1-e2", {})
    write(ended.path / "exit.json", {})
    assert [run.path for run in folder.unrecorded()] == [lives.path]
    assert [run.path for run in folder.all_runs(besides={"job_b-a1-e2"})] == [ended.path]
