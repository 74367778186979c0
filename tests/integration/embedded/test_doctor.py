"""The doctor sees what would keep a stack from coming up, and says what to do."""

import json
from pathlib import Path

from deploy.embedded.doctor import examine
from tests.support.stacks import embedded


async def test_a_machine_that_can_run_the_stack_is_well(state: Path) -> None:
    outcome = await embedded("doctor", "--state", state, "-o", "json")
    findings = {finding["name"]: finding for finding in json.loads(outcome.said)}
    assert outcome.code == 0
    assert [finding["name"] for finding in findings.values() if not finding["is_well"]] == []
    assert findings["postgres"]["seen"].startswith("postgres (PostgreSQL) 18")
    assert not state.exists()


def test_every_ailment_of_a_state_directory_has_a_remedy(tmp_path: Path) -> None:
    root = tmp_path / "state"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    (root / "format").write_text("7\n")
    ailing = {finding.name: (finding.seen, finding.remedy) for finding in examine(root) if not finding.is_well}
    assert ailing == {
        "state directory": (f"{root}, mode 755", f"chmod 700 {root}"),
        "state format": (
            "7; this release reads up to 1",
            "Install the release that wrote it, or name another directory with --state.",
        ),
    }


async def test_an_ailment_shows_in_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("7\n")
    outcome = await embedded("doctor", "--state", tmp_path)
    assert (outcome.code, "NOT OK" in outcome.said) == (1, True)


async def test_status_of_what_was_never_up_says_how_to_start_it(state: Path) -> None:
    outcome = await embedded("status", "--state", state)
    assert (outcome.code, outcome.said) == (
        5,
        f"{state} is no state directory. Start a stack with `triplane up`.\n",
    )
    assert (await embedded("down", "--state", state)).said == "Nothing was up.\n"
    assert not state.exists()
