"""What the jobs themselves wrote down: each process notes its devices and the time when it begins and when it ends."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

NAME = "diary"
SCRIPT_NAME = "work.sh"
SCRIPT = f"""\
# work.sh SECONDS [EXIT CODE]: hold the devices for a while, and keep a diary.
note() {{
  echo "$1 $(date +%s.%N) $TRIPLANE_JOB_NAME $TRIPLANE_ATTEMPT $RANK $TRIPLANE_GRANT $TRIPLANE_DEVICES" >> {NAME}
}}
trap 'note end; exit 143' TERM
note begin
echo "rank $RANK of $WORLD_SIZE on devices $TRIPLANE_DEVICES"
sleep "$1" & wait $!
note end
exit "${{2:-0}}"
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """One process of one attempt; times in seconds since 1970. `end` None: it was killed before it could note it."""

    job: str
    attempt: int
    rank: int
    grant: str
    devices: tuple[str, ...]
    begin: float
    end: float | None


def lay_out(folder: Path) -> None:
    """Put the script and an empty diary where every user can reach them, since jobs do not run as root."""
    folder.chmod(0o755)
    script, diary = folder / SCRIPT_NAME, folder / NAME
    script.write_text(SCRIPT)
    script.chmod(0o644)
    diary.touch()
    diary.chmod(0o666)


def read(folder: Path) -> list[Entry]:
    """Return the entries in the order in which the processes began."""
    return list(_entries((folder / NAME).read_text().splitlines()))


def _entries(lines: Iterable[str]) -> Iterator[Entry]:
    begun: dict[tuple[str, ...], float] = {}
    ended: dict[tuple[str, ...], float] = {}
    for line in lines:
        kind, time, *by = line.split(" ")
        (begun if kind == "begin" else ended)[tuple(by)] = float(time)
    for writer, begin in begun.items():
        job, attempt, rank, grant, devices = writer
        yield Entry(job, int(attempt), int(rank), grant, tuple(devices.split(",")), begin, ended.get(writer))
