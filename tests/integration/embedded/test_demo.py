"""The demonstration, as a person runs it."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.stacks import an_ordinary_user, embedded

DEMO_SECONDS = 280  # a busy machine


@pytest.mark.timeout(300)
@pytest.mark.parametrize("user", ["whoever runs this", "nobody"])
async def test_the_demonstration_ends_well_and_leaves_nothing_behind(user: str, tmp_path: Path) -> None:
    if user == "nobody" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    prefix = an_ordinary_user() if user == "nobody" else ()
    with tempfile.TemporaryDirectory(prefix="triplane-") as folder:
        Path(folder).chmod(0o777)
        outcome = await embedded(
            "demo",
            "--picture",
            tmp_path / "picture.svg" if not prefix else f"{folder}/picture.svg",
            environment={"TMPDIR": folder},
            prefix=prefix,
            seconds=DEMO_SECONDS,
        )
        left = {path.name for path in Path(folder).iterdir()} - {"picture.svg"}
    assert outcome.code == 0, outcome.said
    assert outcome.said.splitlines()[-1].startswith("All is well"), outcome.said
    assert left == set()
