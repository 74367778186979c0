"""Words of a person on a node."""

from pathlib import Path

from services.agent.handlers.by_hand import USAGE, Outcome, by_hand
from services.agent.settings import Settings


def test_a_run_that_does_not_live_here_and_words_without_a_meaning_end_nothing(tmp_path: Path) -> None:
    here = Settings(runtime_dir=tmp_path)
    assert by_hand(["cancel", "run-1"], here) == Outcome("no run run-1 lives here", 1)
    assert by_hand(["--help"], here) == by_hand(["cancel", "--help"], here) == Outcome(USAGE, 0)
    assert by_hand(["cancel"], here) == by_hand(["kill", "run-1"], here) == Outcome(USAGE, 2)
