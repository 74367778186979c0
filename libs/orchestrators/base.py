"""What a destination must do: run, be marked, be looked at. Every driver passes the same contract suite.

Nodes with an agent report by themselves (``runtime.observation``); a backend with a scheduler of its own brings
snapshots and a watch with it.

None in place of an answer means that there was none in time: unknown, never no. After it, ``find`` before anything is
sent again. Launches are idempotent by the run's name with its grant and epoch.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from schemas.calls import FindAnswer, LaunchOrder, LaunchReply, Stop, StopAnswer
from schemas.ids import NodeId, RunName
from schemas.moves import MarkAnswer, MarkOrder, NodeLook, NodeLookAnswer


class Runs(Protocol):
    """The run facet, used by dispatch. Everything is batched: one call a node at most."""

    async def launch(self, orders: Sequence[LaunchOrder]) -> list[LaunchReply | None]:
        """Ask for these starts; the answers come in the orders' order."""

    async def find(self, sought: Mapping[NodeId, Sequence[RunName]]) -> dict[NodeId, FindAnswer | None]:
        """Ask nodes what became of these runs (no names: all they know)."""

    async def stop(self, orders: Sequence[tuple[NodeId, Stop]]) -> list[StopAnswer | None]:
        """Ask for these ends: TERM now, KILL after the grace. Only for grants the ledger holds as over."""


class Marks(Protocol):
    """The mark facet, used by inventory: a destination keeps off nodes that it does not own."""

    async def mark(self, order: MarkOrder) -> MarkAnswer | None:
        """Ask that a destination keeps off a node, or no longer does. Of its orders about a node the newest stands."""


class Looks(Protocol):
    """The observe facet, as far as a move needs it."""

    async def look(self, question: NodeLook) -> NodeLookAnswer | None:
        """Ask that somebody looks now whether a node's devices are clear, of whoever's processes."""
