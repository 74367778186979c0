"""What billing does in a turn: note facts about prices and parts; rate what is over."""

from collections.abc import Sequence

from libs.bus.turn import Turn
from libs.errors import PoisonError
from libs.log import get_logger
from schemas.base import Envelope
from services.billing import store
from services.billing.core import View, decide, evolve
from services.billing.settings import Settings

log = get_logger(__name__)


class Handlers:
    """The turns of billing."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def workload(self, turn: Turn, batch: Sequence[Envelope]) -> None:
        """Note prices, issues, claims and releases. Raises PoisonError for a class that cannot be read."""
        heard = View()
        for envelope in batch:
            try:
                heard = evolve(heard, envelope)
            except ValueError as error:
                raise PoisonError(str(error)) from error
        await store.note(turn.connection, heard)

    async def rate(self, turn: Turn) -> bool:
        """Rate some of the parts that are over, each once; return whether there may be more."""
        view = await store.settled(
            turn.connection, settle_seconds=self._settings.settle_seconds, limit=self._settings.rate_parts
        )
        usages = tuple(decide(view))
        booked = await store.book(turn.connection, usages)
        for usage in usages:
            if usage.usage in booked:
                turn.emit(usage, scope=usage.tenant, key=usage.usage, version=1)
            else:
                log.error(
                    "a device of this part was billed for the same time before", grant=usage.grant, node=usage.node
                )
        return bool(usages) and len(view.parts) == self._settings.rate_parts

    async def watch(self, turn: Turn) -> None:
        """Say in the log when parts that are over wait for a price or for facts that do not come."""
        waiting = await store.waiting(turn.connection, seconds=self._settings.waiting_seconds)
        if waiting:
            log.warning("parts that are over wait to be rated", n=waiting)
