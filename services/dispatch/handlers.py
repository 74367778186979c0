"""What dispatch does: hear grants and news of runs in turns, and ask destinations between turns."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Final
from uuid import UUID

from pydantic import ValidationError

from libs.bus.turn import Turn
from libs.errors import PoisonError
from libs.log import get_logger
from libs.orchestrators.base import Runs
from schemas.base import Envelope, Event
from schemas.calls import FindAnswer, FoundRun, FoundState, LaunchOrder, PageQuery, RunsPage, Stop
from schemas.ids import GrantId, NodeId, RunName
from schemas.workload import GrantIssued, GrantRevoked
from services.dispatch import store
from services.dispatch.core import Part, Plan, Run, Sighting, View, decide, evolve, is_news, plan
from services.dispatch.core.view import SightingKind
from services.dispatch.settings import Settings

MASTER_PORTS: Final = (20_000, 40_000)
LOOKS: Final = 10  # so often in ``look_seconds`` dispatch sees who is due: a run is asked for at nine tenths of them
SEEN: Final = {
    FoundState.WAITING: SightingKind.ACCEPTED,
    FoundState.RUNNING: SightingKind.STARTED,
    FoundState.ENDED: SightingKind.ENDED,
}
OpenTurn = Callable[[], AbstractAsyncContextManager[Turn]]
log = get_logger(__name__)


class Handlers:
    """The turns of dispatch. ``wake`` is called when something is to be asked of a destination."""

    def __init__(self, settings: Settings, runs: Runs, turn: OpenTurn) -> None:
        self._settings = settings
        self._runs = runs
        self._turn = turn
        self.wake: Callable[[], None] = lambda: None

    async def facts(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Hear grants (workload) and what nodes noticed (runtime)."""
        about = [(grant, envelope) for envelope in batch if (grant := getattr(envelope.data, "grant", None))]
        before = await store.load(turn.connection, [grant for grant, _ in about])
        view = before
        issued = [grant for grant, envelope in about if isinstance(envelope.data, GrantIssued)]
        late: list[tuple[GrantId, Envelope]] = []
        for grant, envelope in about:
            if grant in view.runs or isinstance(envelope.data, GrantIssued):
                view = self._take(turn, view, grant, envelope.data, envelope)
            else:
                late.append((grant, envelope))
        late = [*(await store.take_early(turn.connection, issued) if issued else ()), *late]
        for grant, envelope in late:
            if grant in view.runs:
                view = self._take(turn, view, grant, envelope.data, envelope)
        await store.keep_early(turn.connection, [(grant, fact) for grant, fact in late if grant not in view.runs])
        await self._close(turn, before, view)

    async def again(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Say the results of runs once more whose revocation is told again: admission has not heard of them."""
        told = [envelope.data.grant for envelope in batch if isinstance(envelope.data, GrantRevoked)]
        if told:
            await turn.say_again(await store.results(turn.connection, told))

    async def work(self) -> None:
        """Ask destinations whatever is due, and take in what they say."""
        async with self._turn() as turn:
            now = turn.now
            due = await store.due(turn.connection, now, self._settings.batch_runs)
        asked = plan(due, now=now)
        if asked.empty:
            return
        await self._take_in(await self._ask(asked))
        if len(due) == self._settings.batch_runs:
            self.wake()

    async def look(self) -> None:
        """Look at all open runs again, each node asked once: any notice may have been lost, and any number of them."""
        due, now = await self._to_look_at()
        runs = {run.grant: run for run in due}
        seen = await self._find([(run, part) for run in due for part in run.parts if not part.over])
        news = [sighting for sighting in seen if is_news(runs[sighting.grant], sighting, now=now)]
        size = self._settings.batch_runs
        for start in range(0, len(news), size):
            await self._take_in(news[start : start + size])

    async def _to_look_at(self) -> tuple[list[Run], datetime]:
        """Return the open runs that nobody looked at for a while, and note that it is done now; now, too."""
        found: list[Run] = []
        while True:
            async with self._turn() as turn:
                seconds, limit = self._settings.look_seconds * (1 - 1 / LOOKS), self._settings.batch_runs
                page = await store.to_look_at(turn.connection, turn.now, seconds=seconds, limit=limit)
            found += page
            if len(page) < limit:
                return found, turn.now

    async def open(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[RunsPage]:
        """Answer which runs are not settled, a page a question. Raises PoisonError."""
        return [await _page(turn, body) for body in bodies]

    async def unanswered(self, turn: Turn) -> Sequence[UUID]:
        """Return the results of runs that are not settled."""
        return await store.unanswered(turn.connection, turn.now, seconds=self._settings.sweep_seconds / 2)

    def _take(self, turn: Turn, view: View, grant: GrantId, fact: Event | Sighting, cause: Envelope | None) -> View:
        view = evolve(view, fact, now=turn.now)
        for said in tuple(decide(view.runs[grant], now=turn.now, vanished_seconds=self._settings.vanished_seconds)):
            view = evolve(view, said, now=turn.now)
            run = view.runs[grant]
            turn.emit(said, scope=run.tenant, key=run.name, version=run.version, cause=cause)
        return view

    async def _take_in(self, sightings: Iterable[Sighting]) -> None:
        seen = tuple(sightings)
        if not seen:
            return
        async with self._turn() as turn:
            before = await store.load(turn.connection, [sighting.grant for sighting in seen])
            view = before
            for sighting in seen:
                view = self._take(turn, view, sighting.grant, sighting, None)
            await self._close(turn, before, view)

    async def _close(self, turn: Turn, before: View, view: View) -> None:
        await store.save(turn.connection, before, view)
        if not plan(view.runs.values(), now=turn.now).empty:
            turn.after_commit(self.wake)

    async def _ask(self, asked: Plan) -> list[Sighting]:
        launched, found, stopped = await asyncio.gather(
            self._launch(asked.launch), self._find(asked.find), self._stop(asked.stop)
        )
        return [*launched, *found, *stopped]

    async def _launch(self, pairs: Sequence[tuple[Run, Part]]) -> list[Sighting]:
        replies = await self._runs.launch([_order(run, part) for run, part in pairs])
        seen = []
        for (run, part), reply in zip(pairs, replies, strict=True):
            kind = SightingKind.UNREACHABLE
            if reply is not None:
                kind = SightingKind.ACCEPTED if reply.accepted else SightingKind.REFUSED
            seen.append(Sighting(run.name, run.grant, part.node, kind, reason=reply.reason if reply else None))
        return seen

    async def _find(self, pairs: Sequence[tuple[Run, Part]]) -> list[Sighting]:
        sought: dict[NodeId, list[RunName]] = {}
        for run, part in pairs:
            sought.setdefault(part.node, []).append(run.name)
        answers = await self._runs.find(sought) if sought else {}
        return [_sighting(run, part, answers.get(part.node)) for run, part in pairs]

    async def _stop(self, pairs: Sequence[tuple[Run, Part]]) -> list[Sighting]:
        orders = [
            (part.node, Stop(run=run.name, grant=run.grant, epoch=run.epoch, grace_seconds=run.work.grace_seconds))
            for run, part in pairs
        ]
        answers = await self._runs.stop(orders)
        return [
            Sighting(
                run.name, run.grant, part.node, SightingKind.UNREACHABLE if answer is None else SightingKind.STOPPING
            )
            for (run, part), answer in zip(pairs, answers, strict=True)
        ]


async def _page(turn: Turn, body: bytes) -> RunsPage:
    try:
        query = PageQuery.model_validate_json(body)
    except ValidationError as error:
        raise PoisonError("not a question for runs") from error
    items = await store.open_page(turn.connection, query.after, query.limit)
    return RunsPage(items=tuple(items), following=items[-1].grant if len(items) == query.limit else None)


def _order(run: Run, part: Part) -> LaunchOrder:
    low, high = MASTER_PORTS
    return LaunchOrder(
        run=run.name,
        grant=run.grant,
        epoch=run.epoch,
        job=run.job,
        attempt=run.attempt,
        tenant=run.tenant,
        name=run.job_name,
        queue=run.queue,
        node=part.node,
        replicas=part.replicas,
        world_size=run.world_size,
        master_addr=_first(run).node_name,
        master_port=low + run.epoch % (high - low),
        work=run.work,
        start_deadline=run.start_deadline,
        cluster=run.cluster,
    )


def _first(run: Run) -> Part:
    """Return the part of rank 0, where the others meet."""
    return min(run.parts, key=lambda part: min(replica.rank for replica in part.replicas))


def _sighting(run: Run, part: Part, answer: FindAnswer | None) -> Sighting:
    if answer is None or not answer.ready:
        return Sighting(run.name, run.grant, part.node, SightingKind.UNREACHABLE)
    found = _best(answer, run)
    if found is None:
        return Sighting(run.name, run.grant, part.node, SightingKind.ABSENT)
    kind = SEEN[found.state]
    return Sighting(run.name, run.grant, part.node, kind, instance=found.instance, exit=found.exit)


def _best(answer: FindAnswer, run: Run) -> FoundRun | None:
    """Return what the node knows of this grant's run; the liveliest of several instances."""
    order = (FoundState.RUNNING, FoundState.WAITING, FoundState.ENDED)
    known = [found for found in answer.runs if found.grant == run.grant and found.epoch == run.epoch]
    return min(known, key=lambda found: order.index(found.state), default=None)
