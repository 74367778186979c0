"""Where the time goes inside the services: samples of their stacks by py-spy, added up by file."""

import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SHOWN = 15
SERVERS = ("nats", "postgres", "redis")
IDLE = "_worker (concurrent/futures/thread.py:81)"
RATE = "100"  # samples a second


@contextmanager
def sampled(pids: Mapping[str, int], program: str | None) -> Iterator[None]:
    """Sample the services inside and print afterwards; without a program do nothing."""
    if program is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="triplane-profile-") as above:
        files = {name: Path(above) / name for name in pids if name not in SERVERS}
        spies = [
            subprocess.Popen(_command(program, pids[name], file), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name, file in files.items()
        ]
        yield
        for spy in spies:
            spy.send_signal(signal.SIGINT)
            spy.wait()
        _show({name: file.read_text().splitlines() for name, file in files.items() if file.exists()})


def _command(program: str, pid: int, file: Path) -> list[str]:
    return [
        program,
        "record",
        "--pid",
        str(pid),
        "--duration",
        "3600",
        "--rate",
        RATE,
        "--format",
        "raw",
        "--output",
        str(file),
    ]


def _show(found: Mapping[str, list[str]]) -> None:
    own: Counter[str] = Counter()
    for lines in found.values():
        for line in lines:
            stack, _, samples = line.rpartition(" ")
            if not stack.endswith(IDLE):
                own[_place(stack.split(";")[-1])] += int(samples)
    total = sum(own.values()) or 1
    print("samples by the file that was at work, all services:")
    for place, count in own.most_common(SHOWN):
        print(f"  {count / total:4.0%}  {place}")


def _place(frame: str) -> str:
    """``name (file.py:12)`` -> ``file.py``; asyncio's runner stands for C code: network, loop."""
    return frame.rpartition("(")[2].partition(":")[0].rpartition("site-packages/")[2]
