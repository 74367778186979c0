"""`up --detach`: the same stack in a process of its own, which outlives the terminal."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from deploy.embedded.failures import AlreadyUpError, BadDocumentError, StackError, StateRefusedError
from deploy.embedded.files import open_log
from deploy.embedded.state import StateFolder, holder

BY_KEY = " or Ctrl-C."  # how a stack is stopped that is in a terminal
READY_SECONDS = 120.0  # a first start on a slow machine
LOOK_SECONDS = 0.1
KINDS = {kind.exit_code: kind for kind in (AlreadyUpError, BadDocumentError, StateRefusedError)}


def start(
    folder: StateFolder,
    arguments: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """Start `python -m deploy.embedded up` and return its ready line. Raises what it failed with."""
    with open_log(folder.log_file("stack")) as log:
        begin = log.tell()
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "deploy.embedded", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    _wait(folder, process)
    said = folder.log_file("stack").read_text()[begin:].strip()
    if process.poll() is not None:
        raise KINDS.get(process.returncode, StackError)(said)
    return said.removesuffix(BY_KEY) + "."


def _wait(folder: StateFolder, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and not _is_ready(folder, process.pid):
        if time.monotonic() > deadline:
            process.terminate()
            raise StackError(f"Not ready after {READY_SECONDS:.0f} s. See {folder.log_file('stack')}.")
        time.sleep(LOOK_SECONDS)


def _is_ready(folder: StateFolder, pid: int) -> bool:
    return folder.ready_file.exists() and holder(folder) == pid
