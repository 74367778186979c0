"""What inventory does in a turn: take the facts in, say what changed, write down."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from libs.bus.turn import Turn
from libs.errors import PoisonError
from libs.log import get_logger
from libs.pg.pool import Connection
from libs.telemetry.metrics import Metrics
from schemas.base import Envelope
from schemas.fleet import DrainLifted, DrainRequested
from schemas.ids import ClusterId, cluster_id
from schemas.runtime import ObservationReported
from schemas.workload import GrantIssued, GrantReleased, RequestApplied
from services.inventory.core import Numbers, Said, Standing, View, count, decide, elapse, evolve, said
from services.inventory.settings import Settings
from services.inventory.store import fleet as store
from services.inventory.store import moves

DECLARES: Final = ("Cluster", "GpuClass")
log = get_logger(__name__)


class Handlers:
    """The turns of inventory."""

    def __init__(self, settings: Settings, *, wake_moves: Callable[[], None]) -> None:
        self._policy = settings.policy()
        self._wake_moves = wake_moves
        self._logged: dict[tuple[ClusterId, str | None], Numbers] = {}

    async def workload(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear documents and grants. Raises PoisonError for a document that cannot be read."""
        facts = [envelope.data for envelope in batch]
        issued = [fact for fact in facts if isinstance(fact, GrantIssued)]
        released = [fact for fact in facts if isinstance(fact, GrantReleased)]
        await store.note_grants(turn.connection, issued, released)
        if released:
            await moves.soon(turn.connection, {fact.node for fact in released})
            turn.after_commit(self._wake_moves)
        applied = [e for e in batch if isinstance(e.data, RequestApplied) and e.data.kind in DECLARES]
        if applied:
            await self._declare(turn, applied)

    async def fleet(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear drains: their marks come and go."""
        drains = [e.data for e in batch if isinstance(e.data, DrainRequested | DrainLifted)]
        before = await store.load(turn.connection, {d.cluster for d in drains}, {d.node for d in drains})
        await self._take(turn, before, batch)

    async def runtime(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear reports."""
        reports = [e.data for e in batch if isinstance(e.data, ObservationReported)]
        before = await store.load(turn.connection, {r.cluster for r in reports}, {r.node for r in reports})
        await self._take(turn, before, batch)

    async def watch(self, turn: Turn) -> None:
        """Say which nodes went stale, and retire those that were left out and have no grant any more."""
        before = await store.load_late(turn.connection, self._policy, turn.now)
        after = elapse(before, self._policy, now=turn.now)
        await store.save(turn.connection, before, say(turn, after, decide(before, after, after.nodes), None))

    async def census(self, turn: Turn) -> None:
        """Put the numbers of each cluster and class into the log, when they changed."""
        numbers = count(await store.stocks(turn.connection), by=lambda stock: (stock.cluster, stock.gpu_class))
        for key, each in numbers.items():
            if self._logged.get(key) != each:
                cluster, gpu_class = key
                log.info(
                    "devices",
                    cluster=cluster,
                    gpu_class=gpu_class,
                    total=each.total,
                    allocatable=each.allocatable,
                    reserved=each.reserved,
                    idle=each.idle,
                )
        self._logged = numbers

    async def _declare(self, turn: Turn, applied: Sequence[Envelope]) -> None:
        documents = [e.data for e in applied if isinstance(e.data, RequestApplied)]
        clusters = {cluster_id(document.name) for document in documents if document.kind == "Cluster"}
        everything = any(document.kind == "GpuClass" for document in documents)
        before = view = await store.load_declared(turn.connection, clusters, everything=everything)
        for envelope in applied:
            try:
                view = evolve(view, envelope.data, version=envelope.version, now=turn.now)
            except ValueError as error:
                raise PoisonError(str(error)) from error
        view = say(turn, view, decide(before, view, view.nodes), applied[-1])
        await store.save(turn.connection, before, view)
        _log_held(before, view)

    async def _take(self, turn: Turn, before: View, batch: Sequence[Envelope]) -> None:
        view = before
        for envelope in batch:
            match envelope.data:
                case ObservationReported() | DrainRequested() | DrainLifted() as fact:
                    after = evolve(view, fact, version=envelope.version, now=turn.now)
                    view = say(turn, after, decide(view, after, [fact.node]), envelope)
                case _:
                    continue
        await store.save(turn.connection, before, view)


def _log_held(before: View, after: View) -> None:
    for key, node in after.nodes.items():
        if node.standing is Standing.HELD and before.nodes[key].standing is not Standing.HELD:
            log.warning(
                "a document leaves out more than half of the nodes in service: cordon them first, or declare them",
                cluster=node.cluster,
                node=node.name,
            )


def say(turn: Turn, view: View, facts: Iterable[Said], cause: Envelope | None) -> View:
    """Say facts, and return the view in which they are said."""
    told = tuple(facts)
    for each in told:
        turn.emit(each.fact, scope=each.cluster, key=each.key, version=each.version, cause=cause)
    return said(view, told)


class FourNumbers:
    """The four numbers of the fleet, by cluster and class."""

    def __init__(self, metrics: Metrics) -> None:
        by = ("cluster", "gpu_class")
        self._total = metrics.table("triplane_inventory_devices", "Devices there are.", by)
        self._allocatable = metrics.table("triplane_inventory_allocatable_devices", "Known, unmarked, of a class.", by)
        self._reserved = metrics.table("triplane_inventory_reserved_devices", "Granted.", by)
        self._idle = metrics.table("triplane_inventory_idle_devices", "Allocatable and not granted.", by)

    async def measure(self, connection: Connection) -> None:
        """Count."""
        names = await store.cluster_names(connection)
        stocks = await store.stocks(connection)
        numbers = count(stocks, by=lambda stock: (names.get(stock.cluster, stock.cluster), stock.gpu_class or "none"))
        self._total.fill({key: each.total for key, each in numbers.items()})
        self._allocatable.fill({key: each.allocatable for key, each in numbers.items()})
        self._reserved.fill({key: each.reserved for key, each in numbers.items()})
        self._idle.fill({key: each.idle for key, each in numbers.items()})
