"""What follows when time passes (R7)."""

from collections.abc import Callable

from libs.hearing import Hearing
from libs.log import get_logger
from libs.service import Service, Turn
from schemas.ids import GrantId, NodeId
from schemas.reasons import Code, Layer, reason
from services.placement.core.grant import escalate, heard, suspect
from services.placement.core.silence import judge
from services.placement.settings import Settings
from services.placement.store import comebacks, fleet, holds, nodes, overdue
from services.placement.store.changes import Action, Changes, chained, losing

log = get_logger(__name__)


class Deadlines:
    """Looks at what is past its deadline, by the ledger's clock; a restart resets nothing."""

    def __init__(self, service: Service, changes: Changes, settings: Settings, wake_seals: Callable[[], None]) -> None:
        self._service = service
        self._waits = Waits(changes, settings)
        self._wake_seals = wake_seals
        self._hearing = Hearing(service, look_seconds=settings.deadline_seconds)

    async def run(self) -> None:
        """Look once. Raises TransientError."""
        self._hearing.seconds()  # a store that is away is noticed, too
        async with self._service.turn() as turn:
            if await overdue.alone(turn.connection):
                await self._waits.follow(turn, await self._hearing.look(turn.connection))
        self._wake_seals()


class Waits:
    """What follows when time passes (R7)."""

    def __init__(self, changes: Changes, settings: Settings) -> None:
        self._changes = changes
        self._settings = settings
        self._deaf = False

    async def follow(self, turn: Turn, heard_seconds: float) -> None:
        """Let it follow.

        Whoever could not hear for so long cannot say that a node was silent, did not start, or gave no proof.
        """
        if heard_seconds >= self._settings.suspect_after_seconds:
            await self._silence(turn)
        await self._overdue(turn, heard_seconds)
        await self._drained(turn)
        await comebacks.end_late(turn.connection)

    async def _silence(self, turn: Turn) -> None:
        silence = judge(await nodes.listening(turn.connection), self._settings.silence, now=turn.now)
        if silence.deaf and not self._deaf:
            log.error("too many nodes fell silent at once: nothing follows")
        self._deaf = silence.deaf
        await nodes.mark_silence(turn.connection, silence)
        marked = {*silence.suspect, *silence.fresh, *silence.lost}
        if not marked:
            return
        held = await nodes.held_on(turn.connection, marked)
        actions: dict[GrantId, list[Action]] = {}
        for node, grants in held.items():
            follows = following(node, lost=node in silence.lost, fresh=node in silence.fresh)
            for grant in grants:
                actions.setdefault(grant, []).extend(follows)
        await self._changes.take(turn, {grant: chained(each) for grant, each in actions.items()})

    async def _drained(self, turn: Turn) -> None:
        """End the grants on nodes that are to be drained or to move, also those that a wall let through meanwhile."""
        drained = await fleet.drained_grants(turn.connection) | await holds.stopped_grants(turn.connection)
        why = {grant: reason(Layer.PLACEMENT, Code.DRAINED, text) for grant, text in drained.items()}
        await self._changes.revoke_all(turn, why)

    async def _overdue(self, turn: Turn, heard_seconds: float) -> None:
        late = await overdue.overdue(turn.connection, stuck_seconds=self._settings.stuck_after_seconds)
        if heard_seconds >= self._settings.late_start_grace_seconds:
            why = reason(Layer.PLACEMENT, Code.PODS_READY_TIMEOUT, "not started before the start deadline")
            await self._changes.revoke_all(turn, dict.fromkeys(late.unclaimed, why))
        may_be_stuck = heard_seconds >= self._settings.stuck_after_seconds
        stuck: dict[GrantId, list[Action]] = {}
        for grant, node in late.stuck if may_be_stuck else ():
            stuck.setdefault(grant, []).append(escalating(node, Code.STUCK_TERMINATION))
        await self._changes.take(turn, {grant: chained(each) for grant, each in stuck.items()})


def following(node: NodeId, *, lost: bool, fresh: bool) -> list[Action]:
    """Return what a node's silence, or its end, does to each grant that it holds."""
    if fresh:
        return [lambda grant, now: heard(grant, node, now=now)]
    why = reason(Layer.FLEET, Code.HEARTBEAT_LOST, "the node's agent is silent")
    marked: list[Action] = [lambda grant, now: suspect(grant, node, why, now=now)]
    if not lost:
        return marked
    over = reason(Layer.FLEET, Code.NODE_LOST, "the node's agent has been silent for too long")
    return [*marked, losing(node, over), escalating(node, Code.NODE_LOST)]


def escalating(node: NodeId, code: Code) -> Action:
    """Return the action that puts the part on this node before a person."""
    why = reason(Layer.PLACEMENT, code, "no proof of release in time; a person must look")
    return lambda grant, now: escalate(grant, node, why, now=now)
