"""What placement's ledger keeps after it went back, in memory; see ``ledger``."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.calls import HoldersAnswer, LaunchOrder
from schemas.ids import GrantId, NodeId
from schemas.lifecycle import PartState
from services.placement.core.grant import Grant, Part


@dataclass(frozen=True, slots=True)
class ForgottenRow:
    """A row of ``forgotten``: what a node runs and the ledger does not know."""

    boot: str
    instance: str
    order: LaunchOrder


@dataclass(slots=True)
class RecoveryTables:
    """When the ledger last went back, which nodes have told since what they run, and what of that is not known."""

    stopped_at: datetime | None = None
    told_at: dict[NodeId, datetime] = field(default_factory=dict)
    forgotten: dict[tuple[GrantId, NodeId], ForgottenRow] = field(default_factory=dict)

    def copy(self) -> "RecoveryTables":
        """Return what a transaction may change without being seen."""
        return type(self)(self.stopped_at, dict(self.told_at), dict(self.forgotten))

    def has_told(self, node: NodeId) -> bool:
        """Whether the node has said what it runs since the ledger last went back."""
        if self.stopped_at is None:
            return True
        told_at = self.told_at.get(node)
        return told_at is not None and told_at >= self.stopped_at

    def doubted(self, grant: Grant) -> Grant:
        """Return a grant with what its nodes may have started, and have not told since the ledger went back."""
        if self.stopped_at is None or not any(map(self._is_doubtful, grant.parts)):
            return grant
        parts = (replace(part, doubtful=True) if self._is_doubtful(part) else part for part in grant.parts)
        return replace(grant, parts=tuple(parts))

    def note_told(self, nodes: Iterable[NodeId], now: datetime) -> None:
        """Note that these nodes have said what they run."""
        self.told_at |= dict.fromkeys(nodes, now)

    def keep(self, answers: Iterable[HoldersAnswer], known: Collection[GrantId]) -> None:
        """Keep the runs of grants that the ledger does not know."""
        for answer in answers:
            for run in answer.runs:
                if run.order.grant not in known:
                    row = ForgottenRow(answer.boot, run.instance, run.order)
                    self.forgotten.setdefault((run.order.grant, answer.node), row)

    def known(self, grant: GrantId) -> None:
        """Forget the rows of a grant that is known now."""
        for key in [key for key in self.forgotten if key[0] == grant]:
            del self.forgotten[key]

    def _is_doubtful(self, part: Part) -> bool:
        return part.state is PartState.ISSUED and not self.has_told(part.node)


def undoubted(part: Part) -> Part:
    """Return a part as it is kept: a doubt is nothing that a row has."""
    return replace(part, doubtful=False) if part.doubtful else part
