"""Backups of all that services have committed, and the restore of an old one: the world is later than they know."""

from collections.abc import Callable
from typing import Any, Final

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

    def make(self) -> None:
        """Make a backup."""
        self._saved = [(store, store.save()) for store in self._stage.stores]
        self._recall = self._judge.remember()

    def misses(self, ledger: Ledger) -> bool:
        """Whether there is a backup, and something runs by a grant of this ledger that it does not have."""
        saved = next((saved.state for _, saved in self._saved if isinstance(saved.state, Ledger)), None)
        runs = (run.order.grant for site in self._stage.sites for _, run in site.running())
        return saved is not None and any(grant in ledger.grants and grant not in saved.grants for grant in runs)

    def restore(self) -> None:
        """Let everything be as the backup has it, with streams and leases empty; new grants are stopped (R12)."""
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
