"""Dispatch in memory: the turns of its handlers, and its loops with the questions that they ask the nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

from pydantic import BaseModel

from schemas.base import Envelope, Event
from schemas.calls import Find, FindAnswer, Launch, LaunchAnswer, Stop, StopAnswer
from schemas.ids import GrantId, NodeId
from schemas.lifecycle import RunState
from schemas.workload import GrantIssued, GrantRevoked, RunFailed, RunSucceeded
from services.dispatch.core import Part, Run, Sighting, View, decide, evolve, plan
from services.dispatch.core.view import SightingKind
from services.dispatch.handlers import _order, _sighting
from services.dispatch.settings import Settings
from tests.simulation.ground import Ground
from tests.simulation.host import Host, listen
from tests.simulation.store import Store, Turn

AskNode = Callable[[NodeId, str, BaseModel, Callable[[BaseModel | None], None]], None]
Pair = tuple[Run, Part]


@dataclass(frozen=True, slots=True)
class Runs:
    """The view, what was heard of grants before they were known, and when runs were looked at and changed."""

    view: View = field(default_factory=View)
    early: dict[GrantId, tuple[Envelope, ...]] = field(default_factory=dict)
    looked_at: dict[GrantId, datetime] = field(default_factory=dict)
    changed_at: dict[GrantId, datetime] = field(default_factory=dict)


class DispatchDesk:
    """The turns."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def facts(self, turn: Turn[Runs], batch: Sequence[Envelope]) -> None:
        """Hear grants, and what nodes noticed."""
        about = [(grant, envelope) for envelope in batch if (grant := getattr(envelope.data, "grant", None))]
        early = dict(turn.state.early)
        view = turn.state.view
        late: list[tuple[GrantId, Envelope]] = []
        issued = {grant for grant, envelope in about if isinstance(envelope.data, GrantIssued)}
        for grant, envelope in about:
            if grant in view.runs or isinstance(envelope.data, GrantIssued):
                view = self._take(turn, view, grant, envelope.data, envelope)
            else:
                late.append((grant, envelope))
        for grant, envelope in [(g, e) for g in sorted(issued) for e in early.pop(g, ())] + late:
            if grant in view.runs:
                view = self._take(turn, view, grant, envelope.data, envelope)
            else:
                early[grant] = (*early.get(grant, ()), envelope)
        self._close(turn, view, early)

    def again(self, turn: Turn[Runs], batch: Sequence[Envelope]) -> None:
        """Say the results of runs once more whose revocation is told again."""
        for grant in [envelope.data.grant for envelope in batch if isinstance(envelope.data, GrantRevoked)]:
            run = turn.state.view.runs.get(grant)
            if run is not None and run.ended and run.fact is not None:
                turn.say_again([run.fact])

    def due(self, turn: Turn[Runs]) -> list[Run]:
        """Return the runs of which something is to be asked now."""
        return [run for run in turn.state.view.runs.values() if _is_due(run, turn.now)]

    def to_look_at(self, turn: Turn[Runs]) -> list[Run]:
        """Return open runs that nobody looked at for a while, and note that it is done now."""
        before = turn.now - timedelta(seconds=self.settings.look_seconds)
        looked_at = turn.state.looked_at
        found = [r for r in turn.state.view.runs.values() if not r.settled and looked_at[r.grant] <= before]
        turn.state = replace(turn.state, looked_at={**looked_at, **{run.grant: turn.now for run in found}})
        return found

    def take_in(self, turn: Turn[Runs], seen: Iterable[Sighting]) -> None:
        """Take in what destinations said."""
        view = turn.state.view
        for sighting in seen:
            view = self._take(turn, view, sighting.grant, sighting, None)
        self._close(turn, view, turn.state.early)

    def unanswered(self, turn: Turn[Runs]) -> list[UUID]:
        """Return the results of runs that are not settled."""
        before = turn.now - timedelta(seconds=self.settings.sweep_seconds / 2)
        changed_at = turn.state.changed_at
        open_ = [run for run in turn.state.view.runs.values() if run.ended and not run.settled]
        return [run.fact for run in open_ if run.fact is not None and changed_at[run.grant] <= before]

    def _take(
        self, turn: Turn[Runs], view: View, grant: GrantId, fact: Event | Sighting, cause: Envelope | None
    ) -> View:
        view = evolve(view, fact, now=turn.now)
        for said in tuple(decide(view.runs[grant], now=turn.now, vanished_seconds=self.settings.vanished_seconds)):
            view = evolve(view, said, now=turn.now)
            run = view.runs[grant]
            turn.emit(said, scope=run.tenant, key=run.name, version=run.version, cause=cause)
        return view

    def _close(self, turn: Turn[Runs], view: View, early: dict[GrantId, tuple[Envelope, ...]]) -> None:
        before = turn.state.view.runs
        known = {grant: run.state for grant, run in before.items()}
        changed = {grant: turn.now for grant, run in view.runs.items() if known.get(grant) is not run.state}
        state = turn.state
        looked_at = {**dict.fromkeys(changed, turn.now), **state.looked_at}
        turn.state = Runs(view, early, looked_at, {**state.changed_at, **changed})


class Dispatch(Host[Runs]):
    """The process."""

    def __init__(self, store: Store[Runs], ground: Ground, desk: DispatchDesk, ask: AskNode) -> None:
        super().__init__(store, ground)
        self._desk, self._ask_node = desk, ask
        self.forget()
        self._work = self.loop(self.work, desk.settings.work_seconds)
        self.loop(self.look, desk.settings.look_seconds)
        self.sweep(desk.unanswered, desk.settings.sweep_seconds)
        listen([self], "dispatch-workload", [self.facts], desk.again)
        listen([self], "dispatch-runtime", [self.facts])

    def forget(self) -> None:
        """Lose what only the process knew."""
        self._working = self._looking = False

    def facts(self, turn: Turn[Runs], batch: Sequence[Envelope]) -> None:
        """Hear facts, and ask destinations at once what follows."""
        self._desk.facts(turn, batch)
        turn.after_commit(self._work.wake)

    def relay(self) -> bool:
        """Publish, unless the process stands still between noting a result and saying it."""
        if any(self.unsaid_results()) and self.weather.strikes("late", 0.1):
            self.pause(self.weather.dice_of("late").choice((15.0, 40.0)))
        return super().relay()

    def unsaid_results(self) -> Iterator[RunSucceeded | RunFailed]:
        """Yield the results that are noted and not said."""
        facts = (self.store.rows[identity].envelope.data for identity in self.store.unsent)
        return (fact for fact in facts if isinstance(fact, RunSucceeded | RunFailed))

    def work(self) -> bool:
        """Ask destinations whatever is due."""
        due: list[Run] = []
        if not self._working and any(_is_due(r, self.store.clock.now()) for r in self.store.state.view.runs.values()):
            self.turn(lambda turn: due.extend(self._desk.due(turn)))
        asked = plan(due, now=self.store.clock.now())
        if asked.empty:
            return False
        self._working = True
        round_ = _Round(self.in_this_life(self._worked))
        self._launch(asked.launch, round_)
        self._find(asked.find, round_)
        self._stop(asked.stop, round_)
        return True

    def look(self) -> bool:
        """Look at open runs of which nothing was heard for a while."""
        runs: list[Run] = []
        if not self._looking:
            self.turn(lambda turn: runs.extend(self._desk.to_look_at(turn)))
        pairs = [(run, part) for run in runs for part in run.parts if not part.over]
        if pairs:
            self._looking = True
            self._find(pairs, _Round(self.in_this_life(self._looked)))
        return bool(pairs)

    def _worked(self, seen: Sequence[Sighting]) -> None:
        self._working = False
        self._take_in(seen)

    def _looked(self, seen: Sequence[Sighting]) -> None:
        self._looking = False
        self._take_in(seen)

    def _take_in(self, seen: Sequence[Sighting]) -> None:
        self.turn(lambda turn: self._desk.take_in(turn, seen))
        self._work.wake()

    def _launch(self, pairs: Sequence[Pair], round_: "_Round") -> None:
        for node, held in _by_node(pairs).items():
            orders = Launch(orders=tuple(_order(run, part) for run, part in held))
            self._ask_node(node, "launch", orders, round_.expect(partial(_launched, held)))

    def _find(self, pairs: Sequence[Pair], round_: "_Round") -> None:
        for node, held in _by_node(pairs).items():
            question = Find(runs=tuple(run.name for run, _ in held))
            self._ask_node(node, "find", question, round_.expect(partial(_found, held)))

    def _stop(self, pairs: Sequence[Pair], round_: "_Round") -> None:
        for run, part in pairs:
            order = Stop(run=run.name, grant=run.grant, epoch=run.epoch, grace_seconds=run.work.grace_seconds)
            self._ask_node(part.node, "stop", order, round_.expect(partial(_stopped, run, part)))


class _Round:
    """Questions asked at the same time: done when each was answered or given up."""

    def __init__(self, done: Callable[[Sequence[Sighting]], None]) -> None:
        self._done = done
        self._open = 0
        self._seen: list[Sighting] = []

    def expect(self, read: Callable[[BaseModel | None], list[Sighting]]) -> Callable[[BaseModel | None], None]:
        """Return what takes one answer."""
        self._open += 1

        def take(answer: BaseModel | None) -> None:
            self._seen += read(answer)
            self._open -= 1
            if not self._open:
                self._done(self._seen)

        return take


def _is_due(run: Run, now: datetime) -> bool:
    begins = run.state in {RunState.LAUNCHING, RunState.LAUNCHED}
    return (run.due_at is None or run.due_at <= now) and not run.settled and (run.revoked is not None or begins)


def _by_node(pairs: Sequence[Pair]) -> dict[NodeId, list[Pair]]:
    held: dict[NodeId, list[Pair]] = {}
    for run, part in pairs:
        held.setdefault(part.node, []).append((run, part))
    return held


def _launched(pairs: Sequence[Pair], answer: BaseModel | None) -> list[Sighting]:
    replies = {reply.grant: reply for reply in answer.replies} if isinstance(answer, LaunchAnswer) else {}
    seen = []
    for run, part in pairs:
        reply, kind = replies.get(run.grant), SightingKind.UNREACHABLE
        if reply is not None:
            kind = SightingKind.ACCEPTED if reply.accepted else SightingKind.REFUSED
        seen.append(Sighting(run.name, run.grant, part.node, kind, reason=reply.reason if reply else None))
    return seen


def _found(pairs: Sequence[Pair], answer: BaseModel | None) -> list[Sighting]:
    known = answer if isinstance(answer, FindAnswer) else None
    return [_sighting(run, part, known) for run, part in pairs]


def _stopped(run: Run, part: Part, answer: BaseModel | None) -> list[Sighting]:
    kind = SightingKind.STOPPING if isinstance(answer, StopAnswer) else SightingKind.UNREACHABLE
    return [Sighting(run.name, run.grant, part.node, kind)]
