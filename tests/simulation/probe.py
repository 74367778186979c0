"""Records that are made to differ in a world at rest: it must be told, and told again when it is over."""

from libs.leases import Lease
from libs.orchestrators.pretend_node import PretendNode
from schemas.ids import GrantId
from schemas.workload import DriftCleared, DriftFound, DriftKind
from tests.simulation.guests import start_stranger
from tests.simulation.stage import Stage
from tests.simulation.store import BreachError

STRANGER = GrantId("grant_of_a_stranger")


class Probe:
    """One difference, chosen by the world's dice: a holder whose grant no ledger knows, or a lease of no live line."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._said = len(stage.replicas[0].store.said)
        dice = stage.ground.weather.dice
        site = dice.choice(stage.sites)
        self._node: PretendNode = dice.choice([each for each in site.cluster.nodes.values() if not each.silent])
        self._device = self._node.devices[0].device
        self._epoch = stage.ledger.fleet.devices[self._device].last_epoch
        self._is_lease = self._epoch > 0 and dice.random() < 0.5
        if not self._is_lease:
            stage.overridden.add(STRANGER)  # it runs, and no ledger knows of it
            start_stranger(self._node, STRANGER)

    def keep(self) -> None:
        """Let it last: a lease that nobody renews goes by itself."""
        if self._is_lease:
            self._stage.leases.raise_many([Lease(self._device, STRANGER, self._epoch)])

    def end(self) -> None:
        """Make it go."""
        for key in [key for key, run in self._node.runs.items() if run.order.grant == STRANGER]:
            del self._node.runs[key]

    def check_told(self) -> None:
        """Raise BreachError when nobody has told of it."""
        kind = DriftKind.LEASE_OF_NOBODY if self._is_lease else DriftKind.HOLDER_OF_UNKNOWN_GRANT
        subject = self._device if self._is_lease else STRANGER
        if (kind, subject) not in self._told(DriftFound):
            raise BreachError(f"nobody tells of {kind.value} of {subject}")

    def check_cleared(self) -> None:
        """Raise BreachError when nobody has told of its end."""
        if not self._told(DriftCleared):
            raise BreachError("nobody tells that records do not differ any more")

    def _told(self, fact: type[DriftFound] | type[DriftCleared]) -> set[tuple[DriftKind, str]]:
        said = self._stage.replicas[0].store.said[self._said :]
        return {(each.data.kind, each.data.subject) for each in said if isinstance(each.data, fact)}
