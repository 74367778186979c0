"""Steps of grants inside a turn: load under lock, let the core decide, save, say, and let go the leases."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from libs.bus.turn import Turn
from libs.leases import Lease
from schemas.base import Envelope
from schemas.ids import GrantId, NodeId
from schemas.reasons import Reason
from schemas.runtime import ObservationNoticed
from services.placement.core.comeback import comes_back
from services.placement.core.grant import Grant, Step, Word, lose, override, revoke
from services.placement.core.narrow import narrow
from services.placement.store import comebacks
from services.placement.store.grants import Change, causes, load, moment, save

Action = Callable[[Grant, datetime], Step]  # the moment is the ledger's, after the grant's lock was had
Cause = Envelope | UUID | None
Causes = Mapping[GrantId, Cause]


class Changes:
    """Changes of grants; ``freed`` gets the leases of released parts once their release is committed."""

    def __init__(self, freed: Callable[[Sequence[Lease]], None]) -> None:
        self._freed = freed

    async def take(self, turn: Turn, actions: Mapping[GrantId, Action], because: Causes | None = None) -> int:
        """Do each action on its grant; return how many changed. Grants that are unknown are left out.

        What is said answers ``because``, or else what admission said last of the attempt.
        """
        if not actions:
            return 0
        held = await load(turn.connection, list(actions))
        now = await moment(turn.connection)
        steps = {grant.id: actions[grant.id](grant, now) for grant in held.values()}
        return await self.take_steps(turn, held, steps, because)

    async def take_steps(
        self,
        turn: Turn,
        held: Mapping[GrantId, Grant],
        steps: Mapping[GrantId, Step],
        because: Causes | None = None,
    ) -> int:
        """Save and say steps of grants that were loaded under lock in this turn; return how many changed."""
        changed = [Change(held[grant], step.grant) for grant, step in steps.items() if step.grant != held[grant]]
        await save(turn.connection, changed)
        if lost := [change.after.id for change in changed if comes_back(change.before, change.after)]:
            await comebacks.keep(turn.connection, lost)
        admitted = await causes(turn.connection, [change.after.id for change in changed]) if changed else {}
        for change in changed:
            grant = change.after
            cause = (because or {}).get(grant.id) or admitted[grant.id]
            for said in steps[grant.id].facts:
                turn.emit(said.fact, scope=grant.tenant, key=grant.id, version=said.version, cause=cause)
        freed = [lease for change in changed for lease in _freed(change)]
        if freed:
            turn.after_commit(lambda: self._freed(freed))
        return len(changed)

    async def revoke_all(self, turn: Turn, reasons: Mapping[GrantId, Reason], because: Causes | None = None) -> int:
        """Revoke grants (R4); return how many were not over yet."""
        return await self.take(turn, {grant: revoking(why) for grant, why in reasons.items()}, because)

    async def override(self, turn: Turn, grant: GrantId, node: NodeId, word: Word) -> bool:
        """Release an escalated part on a named person's word (R5c, R11); False: not escalated, or not Revoking."""
        changed = await self.take(turn, {grant: lambda held, now: override(held, node, word, now=now)})
        if changed:
            await turn.connection.execute(_OVERRIDE, grant, node, word.person, word.reason)
        return bool(changed)


def revoking(why: Reason) -> Action:
    """Return the action that revokes a grant for this reason."""
    return lambda grant, now: revoke(grant, why, now=now)


def narrowing(notice: ObservationNoticed) -> Action:
    """Return the action that revokes the part alone whose end is noticed, if it ended well and others go on."""
    return lambda grant, now: narrow(grant, notice, now=now)


def losing(node: NodeId, why: Reason) -> Action:
    """Return the action that ends a grant for a node that is given up, unless all that was there had ended well."""
    return lambda grant, now: lose(grant, node, why, now=now)


def chained(actions: Collection[Action]) -> Action:
    """Return the action that does these one after the other."""

    def action(grant: Grant, now: datetime) -> Step:
        step = Step(grant)
        for each in actions:
            after = each(step.grant, now)
            step = Step(after.grant, step.facts + after.facts)
        return step

    return action


def _freed(change: Change) -> list[Lease]:
    released = [part for part in change.parts if not part.live]
    before = {part.node: part for part in change.before.parts}
    devices = {device for part in released for device in (*part.device_ids, *before[part.node].device_ids)}
    devices |= {device for part in change.rebound for device in before[part.node].device_ids}
    return [Lease(device, change.after.id, change.after.epoch) for device in sorted(devices)]


_OVERRIDE = "INSERT INTO overrides (grant_id, node, person, reason) VALUES ($1, $2, $3, $4)"
