"""What there is in a world, for those who play in it and those who look at it."""

from typing import Any, Protocol

from schemas.ids import NodeId
from services.admission.core import View
from tests.simulation.dispatch import Dispatch
from tests.simulation.ground import Ground
from tests.simulation.host import Host
from tests.simulation.inventory import Inventory
from tests.simulation.leases import MemoryLeases
from tests.simulation.ledger import Ledger
from tests.simulation.moving import Moves
from tests.simulation.nodes import Site
from tests.simulation.people import Gateway
from tests.simulation.placement import PlacementReplica
from tests.simulation.store import Store


class Stage(Protocol):
    """A world, as faults and judges see it."""

    ground: Ground
    sites: list[Site]
    replicas: list[PlacementReplica]
    gateway: Gateway
    inventory: Inventory
    moves: Moves
    dispatch: Dispatch
    leases: MemoryLeases
    overridden: set[str]
    heard: dict[NodeId, float]
    era: int  # how often a backup was restored
    forgotten: set[str]  # run instances from before a restore
    stores: list[Store[Any]]
    processes: list[Host[Any]]

    @property
    def ledger(self) -> Ledger:
        """What placement has committed."""

    @property
    def admission_view(self) -> View:
        """What admission has committed."""
