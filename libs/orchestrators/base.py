"""What a destination must do: run. Every driver passes the same contract suite.

Nodes with an agent observe themselves (``runtime.observation``), and nobody else starts work on them, so that a mark in
the ledger is enough. A backend with a scheduler of its own brings the facets observe and mark.

None in place of an answer means that there was none in time: unknown, never no. After it, ``find`` before anything is
sent again. Launches are idempotent by the run's name with its grant and epoch.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from schemas.calls import FindAnswer, LaunchOrder, LaunchReply, Stop, StopAnswer
from schemas.ids import NodeId, RunName


class Runs(Protocol):
    """The run facet, used by dispatch. Everything is batched: one call a node at most."""

    async def launch(self, orders: Sequence[LaunchOrder]) -> list[LaunchReply | None]:
        """Ask for these starts; the answers come in the orders' order."""

    async def find(self, sought: Mapping[NodeId, Sequence[RunName]]) -> dict[NodeId, FindAnswer | None]:
        """Ask nodes what became of these runs (no names: all they know)."""

    async def stop(self, orders: Sequence[tuple[NodeId, Stop]]) -> list[StopAnswer | None]:
        """Ask for these ends: TERM now, KILL after the grace. Only for grants the ledger holds as over."""
