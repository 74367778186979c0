"""What workloads write down of themselves: each process notes which devices it was given, and when it ran."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.support.invariants import Stint

LOG, SCRIPT = "log", "work.sh"
TEXT = f"""\
# work.sh SECONDS|WORD [ATTEMPTS]: hold the devices for a while, or until a word is said; the first so many fail.
note() {{ echo "$1 $(date +%s.%N) $TRIPLANE_JOB_NAME $TRIPLANE_ATTEMPT $RANK $$ $TRIPLANE_DEVICES" >> {LOG}; }}
trap 'note end; exit 143' TERM
note begin
case $1 in [0-9]*) sleep "$1" ;; *) until [ -e "$1" ]; do sleep 0.1; done ;; esac & wait $!
note end
[ "$TRIPLANE_ATTEMPT" -gt "${{2:-0}}" ] || exit 3
"""


@dataclass(frozen=True, slots=True)
class Process:
    """One process of one attempt; times in seconds since 1970. ``end`` None: it has not noted it."""

    job: str
    attempt: int
    rank: int
    devices: tuple[str, ...]
    begin: float
    end: float | None

    def stints(self) -> Iterator[Stint]:
        """Yield its time on each of its devices."""
        ended = None if self.end is None else datetime.fromtimestamp(self.end, UTC)
        for device in self.devices:
            yield Stint(self.job, self.attempt, device, datetime.fromtimestamp(self.begin, UTC), ended)


@dataclass(frozen=True, slots=True)
class WorkLog:
    """The script and the log in a folder that every user can reach, since jobs do not run as root."""

    folder: Path

    def lay_out(self) -> None:
        """Put them there."""
        self.folder.mkdir()
        self.folder.chmod(0o755)
        script, log = self.folder / SCRIPT, self.folder / LOG
        script.write_text(TEXT)
        script.chmod(0o644)
        log.touch()
        log.chmod(0o666)

    def say(self, word: str) -> None:
        """Let the processes end that wait for a word."""
        (self.folder / word).touch()

    def read(self, prefix: str = "") -> list[Process]:
        """Return the processes of jobs whose names begin so, in the order in which they began."""
        lines = [line.split(" ") for line in (self.folder / LOG).read_text().splitlines()]
        noted = [(kind, float(time), tuple(by)) for kind, time, *by in lines if by[0].startswith(prefix)]
        ended = {by: time for kind, time, by in noted if kind == "end"}
        return [_process(by, time, ended.get(by)) for kind, time, by in noted if kind == "begin"]


def doubled(processes: Iterable[Process]) -> list[str]:
    """Return where one rank of one attempt was started more than once."""
    starts = Counter((each.job, each.attempt, each.rank) for each in processes)
    return [
        f"{job} attempt {attempt} rank {rank} began {n} times" for (job, attempt, rank), n in starts.items() if n > 1
    ]


def _process(by: tuple[str, ...], begin: float, end: float | None) -> Process:
    job, attempt, rank, _, devices = by
    return Process(job, int(attempt), int(rank), tuple(devices.split(",")), begin, end)
