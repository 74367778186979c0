import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from deploy.embedded import ports
from deploy.embedded.runtime import remove_runtime_folder
from deploy.embedded.state import StateFolder, open_state
from tests.support.stacks import embedded
from tests.support.work_log import WorkLog


@pytest.fixture
async def state() -> AsyncIterator[Path]:
    """A state directory below a folder that lets every user pass; whatever runs on it is stopped afterwards."""
    above = Path(tempfile.mkdtemp(prefix="triplane-"))
    above.chmod(0o711)
    yield above / "state"
    await embedded("down", "--state", above / "state")
    remove_runtime_folder(StateFolder(above / "state"))
    shutil.rmtree(above)


@pytest.fixture
def log() -> Iterator[WorkLog]:
    """The script that jobs run, and what they note of themselves."""
    above = Path(tempfile.mkdtemp(prefix="triplane-work-"))
    above.chmod(0o755)
    made = WorkLog(above / "work")
    made.lay_out()
    yield made
    shutil.rmtree(above)


@pytest.fixture
def free_ports(tmp_path: Path) -> list[int]:
    """Four ports nobody listens on."""
    return list(ports.settle(open_state(tmp_path / "ports"), "abcd", {}).values())


@pytest.fixture
def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
