"""The scripts that find Python and make the virtual environment say what is missing and what mends it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import tree


def a_command(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(script: str, *words: str, path: Path) -> subprocess.CompletedProcess[str]:
    surroundings = {"PATH": str(path), "HOME": str(path), "PYENV_ROOT": str(path / "pyenv")}
    command = ["/bin/bash", str(tree.ROOT / ".ci" / script), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings, cwd=path)


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A path where every Python command is there and fails, as a version manager's do."""
    folder = tmp_path / "commands"
    folder.mkdir()
    for name in ("python3", "python3.11", "python3.12", "python3.13"):
        a_command(folder, name, "exit 127")
    for tool in ("env", "bash", "dirname", "cat", "sed", "sha256sum", "cut", "flock"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def test_the_newest_python_that_really_runs_is_taken(commands: Path) -> None:
    a_command(commands, "python3.12", f'exec {sys.executable} "$@"')
    a_command(commands, "python3", f'exec {sys.executable} "$@"')
    assert run("python", path=commands).stdout == "python3.12\n"


def test_a_version_managers_own_folder_is_the_last_resort(commands: Path) -> None:
    folder = commands / "pyenv" / "versions" / "3.13.0" / "bin"
    folder.mkdir(parents=True)
    a_command(folder, "python", f'exec {sys.executable} "$@"')
    assert run("python", path=commands).stdout == f"{folder}/python\n"
    assert run("python", "3.13", path=commands).stdout == f"{folder}/python\n"


def test_no_python_is_said_with_the_command_that_mends_it(commands: Path) -> None:
    ended = run("python", path=commands)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Python 3.11, 3.12 or 3.13 is needed" in ended.stderr
    assert "apt-get install -y python3 python3-venv" in ended.stderr


def test_a_python_without_venv_is_said_with_the_command_that_mends_it(commands: Path, tmp_path: Path) -> None:
    a_command(commands, "bare", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    ended = run("venv", str(tmp_path / "venv"), "bare", path=commands)
    minor = f"3.{sys.version_info.minor}"
    assert (ended.returncode, (tmp_path / "venv").exists()) == (1, False)
    assert (
        ended.stderr == f"bare has no venv module. On Debian: apt-get update && apt-get install -y python{minor}-venv\n"
    )


def test_a_python_that_does_not_run_is_named(commands: Path, tmp_path: Path) -> None:
    ended = run("venv", str(tmp_path / "venv"), "python3.13", path=commands)
    assert (ended.returncode, ended.stderr.splitlines()[0]) == (
        1,
        "PYTHON=python3.13 does not run. Leave PYTHON out to take the newest that does.",
    )
