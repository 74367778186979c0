"""What placement's ledger knows of the holds of nodes that move, in memory; see ``ledger``."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from schemas.ids import DeviceId, GrantId, MoveId, NodeId
from schemas.moves import TransferDrop, TransferHold


@dataclass(frozen=True, slots=True)
class HoldRow:
    """A row of ``holds``. It stays when it is dropped, so that a late request takes nothing again."""

    node: NodeId
    owner_epoch: int
    stop: bool
    owner: str
    reason: str
    since: datetime
    held: bool = False
    dropped: bool = False


@dataclass(slots=True)
class HoldTables:
    """Holds by their moves, the one that stands on each node, and the devices that have a line of kind ``hold``."""

    rows: dict[MoveId, HoldRow] = field(default_factory=dict)
    standing: dict[NodeId, MoveId] = field(default_factory=dict)
    lines: dict[DeviceId, MoveId] = field(default_factory=dict)

    def copy(self) -> "HoldTables":
        """Return what a transaction may change without being seen."""
        return type(self)(dict(self.rows), dict(self.standing), dict(self.lines))

    def on(self, node: NodeId) -> HoldRow | None:
        """Return the hold that stands on a node."""
        move = self.standing.get(node)
        return self.rows[move] if move is not None else None

    def grant_on(self, device: DeviceId) -> GrantId | None:
        """Return what holds a device, as a claim is told of it: no grant that it is of."""
        move = self.lines.get(device)
        return GrantId(move) if move is not None else None

    def is_dropped(self, move: MoveId) -> bool:
        """Whether this hold was dropped, or outlived."""
        return move in self.rows and self.rows[move].dropped

    def keep(self, asked: TransferHold, now: datetime) -> None:
        """Let nothing new be placed on the node; asked again it changes nothing but that work is to end."""
        new = HoldRow(asked.node, asked.owner_epoch, asked.stop, asked.owner, asked.reason, now)
        known = self.rows.get(asked.move, new)
        self.rows[asked.move] = replace(known, stop=known.stop or asked.stop)
        self.standing[asked.node] = asked.move

    def take(self, move: MoveId, devices: Iterable[DeviceId]) -> None:
        """Take all slots of the hold's node."""
        self.rows[move] = replace(self.rows[move], held=True)
        self.lines |= dict.fromkeys(devices, move)

    def drop(self, asked: TransferDrop, now: datetime) -> None:
        """Give the slots back; what was never taken can not be taken any more."""
        new = HoldRow(asked.node, asked.owner_epoch, False, asked.owner, asked.reason, now)
        self.rows.setdefault(asked.move, new)
        self._free([asked.move])

    def outlive(self, node: NodeId, owner_epoch: int) -> None:
        """Drop the hold of a node whose owner epoch has passed (M4), whoever the owner is now."""
        found = self.on(node)
        if found is not None and found.owner_epoch < owner_epoch:
            self._free([self.standing[node]])

    def _free(self, moves: Collection[MoveId]) -> None:
        for move in moves:
            row = self.rows[move] = replace(self.rows[move], dropped=True)
            if self.standing.get(row.node) == move:
                del self.standing[row.node]
        self.lines = {device: move for device, move in self.lines.items() if move not in moves}
