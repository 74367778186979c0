"""What is to be asked of destinations now."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from services.dispatch.core.view import Part, PartState, Run


@dataclass(frozen=True, slots=True)
class Plan:
    """Parts to launch, parts to look for (verify before retry), parts to stop."""

    launch: tuple[tuple[Run, Part], ...]
    find: tuple[tuple[Run, Part], ...]
    stop: tuple[tuple[Run, Part], ...]

    @property
    def empty(self) -> bool:
        """Nothing is to be asked."""
        return not (self.launch or self.find or self.stop)


def plan(runs: Iterable[Run], *, now: datetime) -> Plan:
    """Return what is due. A run that was taken back is never launched; what may live of it is stopped."""
    due = [run for run in runs if run.is_due(now)]
    parts = [(run, part) for run in due for part in run.parts]
    return Plan(
        launch=tuple(pair for pair in parts if _wanted(pair[0]) and pair[1].state is PartState.PENDING),
        find=tuple(pair for pair in parts if _wanted(pair[0]) and pair[1].state is PartState.UNKNOWN),
        stop=tuple(pair for pair in parts if pair[0].revoked is not None and _may_live(pair[1])),
    )


def _wanted(run: Run) -> bool:
    return run.revoked is None and not run.ended


def _may_live(part: Part) -> bool:
    return part.state is not PartState.PENDING and not part.over
