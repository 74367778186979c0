"""The demonstration, as a person runs it."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.stacks import an_ordinary_user, embedded

DEMO_SECONDS = 500  # a machine with ten times its load; a quiet one needs 45


@pytest.mark.demos
@pytest.mark.timeout(540)
async def test_the_demonstration_ends_well_and_leaves_nothing_behind() -> None:
    prefix = an_ordinary_user() if os.geteuid() == 0 else ()
    folder = Path(tempfile.mkdtemp(prefix="triplane-"))
    folder.chmod(0o777)
    picture = folder / "picture.svg"
    environment = {"TMPDIR": str(folder)}
    outcome = await embedded("demo", "--picture", picture, environment=environment, prefix=prefix, seconds=DEMO_SECONDS)
    assert outcome.code == 0, outcome.said
    assert outcome.said.splitlines()[-1].startswith("All is well"), outcome.said
    assert list(folder.iterdir()) == [picture]
    shutil.rmtree(folder)  # what went wrong can be looked at there
