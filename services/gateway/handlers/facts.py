"""Facts of admission, placement, dispatch, inventory, health and billing, folded into the read models."""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from libs.bus.batch import Handler, Remembering
from libs.bus.turn import Turn
from schemas.base import Envelope
from schemas.ids import JobId, NodeId, TenantId
from schemas.ledger import UsageRated
from services.gateway.core import fleet as fleets
from services.gateway.core import job as jobs
from services.gateway.core.fleet import NodeView
from services.gateway.core.job import JobView
from services.gateway.store import documents
from services.gateway.store import facts as store


class Folding(Remembering):
    """Turns over facts whose log of events is the memory of what was heard; what it has forgotten folds to the same."""

    def __init__(self, fold: Handler) -> None:
        self._fold = fold

    async def unseen(self, turn: Turn, ids: Collection[UUID]) -> set[UUID]:
        """Return what is in no log. One transaction at a time folds facts, of all planes and replicas."""
        await store.begin(turn.connection)
        return set(ids) - await store.known(turn.connection, ids)

    async def __call__(self, turn: Turn, facts: Sequence[Envelope]) -> None:
        """Fold facts that are new."""
        await self._fold(turn, facts)


class Facts:
    """The turns over facts, to be taken by ``Folding``. ``told`` is called when new events are committed."""

    def __init__(self, told: Callable[[], None]) -> None:
        self._told = told

    async def workload(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Fold facts about jobs and grants."""
        about = [(job, envelope) for envelope in batch if (job := jobs.job_of(envelope)) is not None]
        await self._fold_jobs(turn, about)
        await self._fold_parts(turn, batch)
        await store.add_history(turn.connection, about)
        await self._log(turn, batch)

    async def fleet(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Fold facts about nodes; keep the newest of clusters, incidents and drains."""
        await self._fold_nodes(turn, batch)
        await self._keep_latest(turn, [envelope for envelope in batch if fleets.node_of(envelope) is None])
        answers = {envelope.cause for envelope in batch if envelope.cause is not None}
        await documents.answered(turn.connection, answers, turn.now)
        await self._log(turn, batch)

    async def ledger(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Keep rated usage."""
        await store.add_usage(turn.connection, [e.data for e in batch if isinstance(e.data, UsageRated)])
        await self._log(turn, batch)

    async def _fold_jobs(self, turn: Turn, about: Sequence[tuple[JobId, Envelope]]) -> None:
        views = await store.jobs(turn.connection, {job for job, _ in about})
        for job, envelope in about:
            before = views.get(job) or JobView(job=job, tenant=TenantId(envelope.scope))
            views[job] = jobs.evolve(before, envelope)
        await store.save_jobs(turn.connection, list(views.values()))

    async def _fold_parts(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        told = [part for envelope in batch for part in fleets.parts_of(envelope)]
        if not told:
            return
        kept = await store.parts(turn.connection, {(part.grant, part.node) for part in told})
        await store.save_parts(turn.connection, fleets.merged([*kept, *told]).values())

    async def _fold_nodes(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        about = [(node, envelope) for envelope in batch if (node := fleets.node_of(envelope)) is not None]
        if not about:
            return
        views = await store.nodes(turn.connection, {NodeId(node) for node, _ in about})
        for node, envelope in about:
            views[node] = fleets.evolve(views.get(node) or NodeView(node=node), envelope)
        await store.save_nodes(turn.connection, list(views.values()))

    async def _keep_latest(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        newest: dict[tuple[str, str], Envelope] = {}
        for envelope in batch:
            key = envelope.type.split(".")[1], envelope.key
            if key not in newest or newest[key].version < envelope.version:
                newest[key] = envelope
        await store.save_latest(turn.connection, newest)

    async def _log(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        await store.add_events(turn.connection, batch)
        turn.after_commit(self._told)
