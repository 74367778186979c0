"""Backups of all that services have committed, and the restore of an old one: the world is later than they know."""

from collections.abc import Callable
from typing import Any, Final

from schemas.ids import GrantId, NodeId
from schemas.lifecycle import PartState
from tests.simulation.invariants import Judge
from tests.simulation.ledger import Ledger
from tests.simulation.stage import Stage
from tests.simulation.store import Saved, Store

AWAY_SECONDS: Final = 20.0
"""A restore takes longer than anybody waits for an answer, and than looks at who is silent may lie apart."""


class Backups:
    """One backup of a stage at a time, and the judge's memory with it."""

    def __init__(self, stage: Stage, judge: Judge) -> None:
        self._stage, self._judge = stage, judge
        self._saved: list[tuple[Store[Any], Saved]] = []
        self._recall: Callable[[], None] | None = None

    @property
    def are_there(self) -> bool:
        """Whether one can be restored."""
        return bool(self._saved)

    def make(self) -> None:
        """Make a backup."""
        self._saved = [(store, store.save()) for store in self._stage.stores]
        self._recall = self._judge.remember()

    def misses(self, ledger: Ledger) -> bool:
        """Whether something runs by a grant of this ledger whose claim the backup does not have."""
        saved = next(saved.state for _, saved in self._saved if isinstance(saved.state, Ledger))
        runs = ((node.id, run.order.grant) for site in self._stage.sites for node, run in site.running())
        return any(grant in ledger.grants and not _has(saved, grant, node) for node, grant in runs)

    def restore(self, *, again: bool) -> None:
        """Let everything be as the backup has it, with streams and leases empty; new grants are stopped (R12).

        ``again``: the same backup may be restored once more.
        """
        assert self._recall is not None, "there is no backup"
        self._stage.era += 1
        nodes = [node for site in self._stage.sites for node in site.cluster.nodes.values()]
        self._stage.forgotten |= {run.instance for node in nodes for run in node.runs.values()}
        for store, saved in self._saved:
            store.bring_back(saved)
        self._recall()
        replica = self._stage.replicas[0]
        turn = replica.store.turn()
        turn.state.go_back(turn.now)
        replica.store.commit(turn)
        self._stage.inventory.go_back()
        if not again:
            self._saved = []
        self._empty()
        for process in self._stage.processes:
            process.die()
            process.stay_dead(AWAY_SECONDS)

    def _empty(self) -> None:
        self._stage.leases.wipe()
        self._stage.leases.remember()
        broker = self._stage.ground.broker
        if broker.up:
            broker.go(AWAY_SECONDS)
        for stream in ("workload", "runtime", "fleet"):
            broker.lose(stream)
            for store in self._stage.stores:
                store.lose(stream)


def _has(saved: Ledger, grant: GrantId, node: NodeId) -> bool:
    """Whether a backup's ledger knows that a node may run what it was granted."""
    part = saved.grants[grant].part(node) if grant in saved.grants else None
    return part is not None and part.state is not PartState.ISSUED
