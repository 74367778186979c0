"""`python -m tests.simulation [--seed N] [--storms N] [--steps N]`: play storms and tell which fail; exit 1 for any."""

import argparse
import sys
import time
from collections import Counter
from typing import Final

from tests.simulation.storm import Told, kinds_needed, storm

PROGRESS_SECONDS: Final = 10.0


def main() -> int:
    """Play, and return the exit code."""
    asked = _asked()
    told = Tally(asked)
    for seed in range(asked.seed, asked.seed + asked.storms):
        told.add(storm(str(seed), asked.steps))
    told.report()
    return 1 if told.failed else 0


class Tally:
    """What was played, and how fast."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.failed: list[str] = []
        self._asked, self._played, self._steps = asked, 0, 0
        self._struck: Counter[str] = Counter()
        self._parts_alone = 0
        self._began, self._worked = time.monotonic(), time.process_time()
        self._said = self._began

    def add(self, told: Told) -> None:
        """Count a storm; tell of it when it failed, and how things go every ten seconds."""
        self._played += 1
        self._steps += told.steps + told.calm_steps
        self._struck += told.struck
        self._parts_alone += told.parts_alone
        if told.breach:
            self.failed.append(told.seed)
            _tell(told, self._asked.steps)
        if time.monotonic() - self._said > PROGRESS_SECONDS:
            self._said = time.monotonic()
            self._line()

    def report(self) -> None:
        """Say what it came to."""
        print("faults: " + ", ".join(f"{count} {kind}" for kind, count in sorted(self._struck.items()) if count))
        print(f"{self._parts_alone:,} parts of gangs were proved free before the rest")
        first, last = self._asked.seed, self._asked.seed + self._played - 1
        print(f"seeds {first} to {last}, {self._asked.steps:,} steps of bad weather each, then calm")
        self._line()
        print(f"breaches: {' '.join(self.failed)}" if self.failed else "breaches: none")

    def _line(self) -> None:
        seconds, worked = time.monotonic() - self._began, time.process_time() - self._worked
        print(
            f"{self._played:,} of {self._asked.storms:,} storms, {self._steps:,} steps in {seconds:,.0f} s: "
            f"{self._steps / seconds:,.0f} steps/s, {self._steps / worked:,.0f} per second of CPU; "
            f"{len(self.failed)} breaches",
            flush=True,
        )


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Play storms over the real cores.")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--storms", type=int, default=100, help="how many storms (100)")
    parser.add_argument("--steps", type=int, default=1_000, help="steps of bad weather in each (1,000)")
    return parser.parse_args()


def _tell(told: Told, steps: int) -> None:
    assert told.breach is not None
    print(f"seed {told.seed}, step {told.steps} + {told.calm_steps} of calm, {told.seconds:.1f} s: {told.breach}")
    print(f"  again: make storm SEED={told.seed} STORMS=1 STEPS={steps}")
    print(f"  needs {' '.join(kinds_needed(told.seed, told.steps, told.breach)) or 'no fault at all'}")
    print("\n".join(f"  {fact}" for fact in told.facts), flush=True)


if __name__ == "__main__":
    sys.exit(main())
