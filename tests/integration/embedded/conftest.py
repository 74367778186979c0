import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.stacks import embedded


@pytest.fixture
async def state() -> AsyncIterator[Path]:
    """A state directory below a folder that lets every user pass; whatever runs on it is stopped afterwards."""
    above = Path(tempfile.mkdtemp(prefix="triplane-"))
    above.chmod(0o711)
    yield above / "state"
    await embedded("down", "--state", above / "state")
    shutil.rmtree(above)


@pytest.fixture
def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
