"""What is put before a person, and what a person says of it."""

from collections.abc import Sequence

from libs.questions import question
from libs.service import Service, Turn
from schemas.calls import EscalationsPage, EscalationsQuery, Override, OverrideAnswer
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from services.placement.core.escalations import seen_by
from services.placement.core.grant import Word
from services.placement.store import escalations as store
from services.placement.store import grants
from services.placement.store.changes import Changes


class Escalations:
    """Answers who asks what is not known, and takes a named person's word."""

    def __init__(self, service: Service, changes: Changes) -> None:
        self._log = service.log
        self._changes = changes

    async def show(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[EscalationsPage]:
        """List them. Raises PoisonError."""
        queries = [question(EscalationsQuery, body) for body in bodies]
        found = await store.escalations(turn.connection)
        now = await grants.moment(turn.connection)
        return [EscalationsPage(now=now, items=seen_by(found, query.tenant)) for query in queries]

    async def settle(self, turn: Turn, bodies: Sequence[bytes]) -> Sequence[OverrideAnswer]:
        """Release escalated parts on a person's word (R11); asked again, the answer is the same."""
        return [await self._settle(turn, question(Override, body)) for body in bodies]

    async def _settle(self, turn: Turn, asked: Override) -> OverrideAnswer:
        await self._changes.override(turn, asked.grant, asked.node, Word(asked.person, asked.reason))
        devices = await store.overridden(turn.connection, asked.grant, asked.node)
        if devices is None:
            return await _refused(turn, asked)
        self._log.warning("released on a person's word", grant=asked.grant, node=asked.node, person=asked.person)
        return OverrideAnswer(done=True, devices=devices)


async def _refused(turn: Turn, asked: Override) -> OverrideAnswer:
    found = await store.standing(turn.connection, asked.grant, asked.node)
    if found is None:
        why = reason(Layer.PLACEMENT, Code.GRANT_UNKNOWN, "the ledger knows no such grant on this node")
        return OverrideAnswer(done=False, reason=why)
    state, _ = found
    told = "is over already" if state is PartState.RELEASED else f"is {state}, and not escalated"
    return OverrideAnswer(done=False, reason=reason(Layer.PLACEMENT, Code.NOT_ESCALATED, f"the part {told}"))
