"""What placement's ledger keeps after it went back, in memory; see ``ledger``."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.calls import HoldersAnswer, LaunchOrder
from schemas.ids import DeviceId, GrantId, NodeId
from schemas.lifecycle import PartState
from services.placement.core.grant import Grant, Part

ForgottenKey = tuple[GrantId, NodeId, int]  # and the epoch


@dataclass(frozen=True, slots=True)
class ForgottenRow:
    """A row of ``forgotten``: what a node runs and the ledger has no part for; a stranger is not to be taken up."""

    boot: str
    instance: str
    order: LaunchOrder
    stranger: bool


@dataclass(slots=True)
class RecoveryTables:
    """When the ledger last went back, which nodes have told since what they run, and what of that is not known."""

    stopped_at: datetime | None = None
    told_at: dict[NodeId, datetime] = field(default_factory=dict)
    forgotten: dict[ForgottenKey, ForgottenRow] = field(default_factory=dict)

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

    @property
    def takes_up(self) -> bool:
        """Whether something may be taken up; no new grants are made meanwhile."""
        return any(not row.stranger for row in self.forgotten.values())

    def is_occupied(self, device: DeviceId) -> bool:
        """Whether something that the ledger has no part for runs on a device."""
        return any(device in devices_of(row.order) for row in self.forgotten.values())

    def keep(self, answers: Iterable[HoldersAnswer], grants: Mapping[GrantId, Grant]) -> None:
        """Keep the runs that the ledger has no part for; those of a grant that it knows are strangers."""
        for answer in answers:
            for run in answer.runs:
                order, grant = run.order, grants.get(run.order.grant)
                if grant is None or grant.epoch != order.epoch or grant.part(answer.node) is None:
                    row = ForgottenRow(answer.boot, run.instance, order, grant is not None)
                    self.forgotten.setdefault((order.grant, answer.node, order.epoch), row)

    def estrange(self, keys: Iterable[ForgottenKey], grants: Collection[GrantId]) -> None:
        """Take up neither these nor what is of grants that are known by now."""
        for key in {*keys, *(key for key in self.forgotten if key[0] in grants)}:
            self.forgotten[key] = replace(self.forgotten[key], stranger=True)

    def taken_up(self, grant: GrantId, epoch: int) -> None:
        """Forget the rows of a grant that is known now."""
        self.settle([key for key in self.forgotten if (key[0], key[2]) == (grant, epoch)])

    def settle(self, keys: Iterable[ForgottenKey]) -> None:
        """Forget what is taken up, or proved over."""
        for key in keys:
            self.forgotten.pop(key, None)

    def end_boots(self, ended: Mapping[NodeId, Collection[str]]) -> None:
        """Forget the strangers of boots that have ended."""
        rows = self.forgotten.items()
        self.settle([key for key, row in rows if row.stranger and row.boot in ended.get(key[1], ())])

    def _is_doubtful(self, part: Part) -> bool:
        return part.state is PartState.ISSUED and not self.has_told(part.node)


def devices_of(order: LaunchOrder) -> list[DeviceId]:
    """Return the devices of an order."""
    return [device.device for replica in order.replicas for device in replica.devices]


def undoubted(part: Part) -> Part:
    """Return a part as it is kept: a doubt is nothing that a row has."""
    return replace(part, doubtful=False) if part.doubtful else part
