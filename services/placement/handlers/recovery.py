"""After the ledger went back: nodes say what they run, and claims are rebuilt from that (R12)."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from libs.errors import ConflictError, RefusedError, UnavailableError
from libs.service import Service, Turn
from schemas.calls import HeldRun, Holders, HoldersAnswer
from schemas.ids import GrantId, NodeId
from schemas.lifecycle import PartState
from schemas.reasons import Code, Layer, reason
from services.placement.core.grant import Grant, Step, confirm, issue, superseded
from services.placement.core.recovery import Forgotten, Rebuilt, by_grant, rebuilt
from services.placement.settings import Settings
from services.placement.store import grants, nodes, renewal
from services.placement.store import recovery as store
from services.placement.store.changes import Action, Changes, chained

ASKED_AT_ONCE: Final = 64
FORGOTTEN = "the ledger went back behind its grant, and knows no job that it is for"


class Recovery:
    """Asks every node once after the ledger went back, and takes up what runs there.

    What an attempt that waits has running is its claim, and goes on to its end. What no attempt is known for stays as
    it is until a person lifts the stop; then it holds its devices as a revoked grant until its node seals. A stranger
    is not taken up: see ``Strangers``.
    """

    def __init__(self, service: Service, changes: Changes, settings: Settings) -> None:
        self._service = service
        self._changes = changes
        self._settings = settings

    async def run(self) -> None:
        """Ask who has not told, and take up what can be. Raises TransientError."""
        async with self._service.turn() as turn:
            untold = await store.untold(turn.connection)
        for start in range(0, len(untold), ASKED_AT_ONCE):
            answers = await asyncio.gather(*(self._ask(node) for node in untold[start : start + ASKED_AT_ONCE]))
            await self._take([answer for answer in answers if answer is not None and answer.ready])
        async with self._service.turn() as turn:
            await self._take_up(turn)

    async def _ask(self, node: NodeId) -> HoldersAnswer | None:
        try:
            body = await self._service.call(
                f"call.node.{node}.holders", Holders(node=node), timeout=self._settings.seal_call_seconds
            )
            answer = HoldersAnswer.model_validate_json(body)
        except (UnavailableError, RefusedError, ValidationError) as error:
            self._service.log.info("a node has not told what it runs", node=node, why=str(error))
            return None
        return answer if answer.node == node else None

    async def _take(self, answers: Sequence[HoldersAnswer]) -> None:
        """Note what nodes told; a grant that the ledger holds as Issued is Claimed by what runs of it."""
        if not answers:
            return
        runs = [(run.order.grant, answer, run) for answer in answers for run in answer.runs]
        async with self._service.turn() as turn:
            await nodes.note_boots(turn.connection, {(answer.node, answer.boot) for _, answer, _ in runs})
            self._tell(await store.forget_not(turn.connection, answers))
            held = await grants.load(turn.connection, {grant for grant, _, _ in runs})
            now = await grants.moment(turn.connection)
            steps: dict[GrantId, Step] = {}
            for grant, answer, run in runs:
                if grant in held:
                    before = steps.get(grant, Step(held[grant]))
                    after = _claimed(before.grant, answer, run, now)
                    steps[grant] = Step(after.grant, before.facts + after.facts)
            await self._changes.take_steps(turn, held, steps)
            await store.note_told(turn.connection, [answer.node for answer in answers])
        self._service.log.info("nodes have told what they run", nodes=len(answers), runs=len(runs))

    async def _take_up(self, turn: Turn) -> None:
        found = by_grant(await store.forgotten(turn.connection))
        if not found:
            return
        lifted = await renewal.lifted(turn.connection)
        for parts in found:
            await self._rebuild(turn, parts, lifted=lifted)
        self._tell(await store.estrange(turn.connection))

    async def _rebuild(self, turn: Turn, parts: Sequence[Forgotten], *, lifted: bool) -> None:
        devices = {d.device for part in parts for replica in part.order.replicas for d in replica.devices}
        slots = await store.slots(turn.connection, devices)
        grant = rebuilt(parts, slots, now=await grants.moment(turn.connection))
        if grant is None:
            return
        wanted = await store.waits(turn.connection, grant) and grant.whole
        older = await store.holding(turn.connection, grant.devices)
        if not lifted and not (wanted and all(older.values())):
            return  # dispatch may still find how an older run there ended, and a person decides about strangers
        try:
            async with turn.savepoint():
                await self._insert(turn, grant, older)
        except ConflictError as error:
            self._service.log.error("what a node runs does not fit the ledger", grant=grant.grant.id, why=str(error))
            if lifted and store.has_no_place(error):
                self._tell(await store.estrange(turn.connection, parts))
            return
        self._service.log.warning("taken up from its node", grant=grant.grant.id, known=wanted)
        if not wanted:
            why = reason(Layer.PLACEMENT, Code.LEDGER_BEHIND, FORGOTTEN)
            await self._changes.revoke_all(turn, {grant.grant.id: why})

    def _tell(self, strangers: Sequence[Forgotten]) -> None:
        for stranger in strangers:
            order, devices = stranger.order, stranger.devices
            self._service.log.warning(
                "a stranger keeps its devices",
                node=stranger.node,
                grant=order.grant,
                epoch=order.epoch,
                devices=devices,
            )

    async def _insert(self, turn: Turn, found: Rebuilt, older: Collection[tuple[GrantId, NodeId]]) -> None:
        """Release what an older part of the ledger still says of its devices, then claim them for what runs there."""
        await self._supersede(turn, found, older)
        now = await grants.moment(turn.connection)
        grant = replace(found.grant, issued_at=now)
        await store.insert(turn.connection, found, grant)
        step = issue(grant)
        for part in found.parts:
            replicas = step.grant.part(part.node)
            assert replicas is not None, part
            after = confirm(
                step.grant,
                part.node,
                instance=part.instance,
                boot=part.boot,
                replicas=replicas.replicas,
                now=now,
            )
            step = Step(after.grant, step.facts + after.facts)
        await self._changes.take_steps(turn, {grant.id: grant}, {grant.id: step})

    async def _supersede(self, turn: Turn, found: Rebuilt, older: Collection[tuple[GrantId, NodeId]]) -> None:
        actions: dict[GrantId, list[Action]] = {}
        for grant, node in sorted(older):
            actions.setdefault(grant, []).append(_superseding(node, found.grant.epoch))
        await self._changes.take(turn, {grant: chained(each) for grant, each in actions.items()})


def _superseding(node: NodeId, epoch: int) -> Action:
    return lambda grant, now: superseded(grant, node, epoch, now=now)


def _claimed(grant: Grant, answer: HoldersAnswer, run: HeldRun, now: datetime) -> Step:
    part = grant.part(answer.node)
    if part is None or part.state is not PartState.ISSUED or grant.epoch != run.order.epoch:
        return Step(grant)
    return confirm(grant, answer.node, instance=run.instance, boot=answer.boot, replicas=part.replicas, now=now)
