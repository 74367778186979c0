"""What nodes run and the ledger has no part for: it is asked for until it is proved over (R12)."""

import asyncio
from collections.abc import Callable, Sequence

from libs.errors import RefusedError, UnavailableError
from libs.questions import answer
from libs.service import Service
from schemas.calls import SealAnswer
from services.placement.core.recovery import Forgotten, proved_over, seal_of
from services.placement.handlers.recovery import ASKED_AT_ONCE
from services.placement.settings import Settings
from services.placement.store import recovery as store


class Strangers:
    """Asks for the seals of strangers once no stop stands any more. Nothing is said of their grants: another may live.

    ``wake_cycle`` is called when devices are offered again.
    """

    def __init__(self, service: Service, settings: Settings, wake_cycle: Callable[[], None]) -> None:
        self._service = service
        self._settings = settings
        self._wake_cycle = wake_cycle

    async def run(self) -> None:
        """Ask once for each. Raises TransientError."""
        async with self._service.turn() as turn:
            found = await store.strangers(turn.connection)
        for start in range(0, len(found), ASKED_AT_ONCE):
            await self._settle(found[start : start + ASKED_AT_ONCE])

    async def _settle(self, strangers: Sequence[Forgotten]) -> None:
        answers = await asyncio.gather(*(self._ask(stranger) for stranger in strangers))
        proved = [
            stranger
            for stranger, said in zip(strangers, answers, strict=True)
            if said is not None and proved_over(stranger, said)
        ]
        if not proved:
            return
        async with self._service.turn() as turn:
            await store.settle(turn.connection, proved)
            turn.after_commit(self._wake_cycle)
        for stranger in proved:
            self._service.log.warning(
                "a stranger is proved over", node=stranger.node, grant=stranger.order.grant, devices=stranger.devices
            )

    async def _ask(self, stranger: Forgotten) -> SealAnswer | None:
        subject = f"call.node.{stranger.node}.seal"
        try:
            body = await self._service.call(subject, seal_of(stranger), timeout=self._settings.seal_call_seconds)
            return answer(SealAnswer, body, subject)
        except (UnavailableError, RefusedError) as error:
            self._service.log.info("no seal of a stranger", node=stranger.node, why=str(error))
            return None
