"""How long to wait before something that died is started again, and when to give up. Pure."""

from dataclasses import dataclass

FIRST_DELAY_SECONDS = 0.1  # a killed server comes back at once
LONGEST_DELAY_SECONDS = 10.0  # a person who mends something waits no longer than this
SETTLED_SECONDS = 20.0  # who lived this long did not die of its start
MOST_DEATHS = 8  # about 13 s of trying


@dataclass(frozen=True, slots=True)
class Patience:
    """The deaths in a row of one thing that ought to live. ``excused``: it could not help the last one."""

    deaths: int = 0
    excused: bool = False

    def after_death(self, lived_seconds: float, *, excused: bool = False) -> "Patience":
        """Count one more death; a life of SETTLED_SECONDS wipes the slate clean first, and so does the end of excuses.

        Excused deaths make the waits longer, and nobody gives up for them.
        """
        clean = lived_seconds >= SETTLED_SECONDS or (self.excused and not excused)
        return Patience(1 if clean else self.deaths + 1, excused)

    @property
    def delay_seconds(self) -> float:
        """Seconds to wait before the next start: doubling, bounded."""
        return min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** max(0, self.deaths - 1))

    @property
    def is_spent(self) -> bool:
        """Whether it died so often in a row that another start would not help."""
        return self.deaths >= MOST_DEATHS and not self.excused
