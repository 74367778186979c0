"""Leases as the live lines say them (L4, L5)."""

from collections import Counter

from libs.leases import Leases
from libs.service import Service
from services.placement.store import renewal


class Renewal:
    """Renews the leases of live lines, which is also their rebuild, and sees when the ledger went back (L4, L5)."""

    def __init__(self, service: Service, leases: Leases) -> None:
        self.counts: Counter[str] = Counter()
        self._service = service
        self._leases = leases

    async def run(self) -> None:
        """Renew once. Raises TransientError."""
        async with self._service.turn() as turn:
            live = await renewal.live_leases(turn.connection)
        raised = await self._leases.rebuild(live)
        self.counts.update(renewed=len(live), missing=len(raised.missing))
        if raised.missing:
            self._service.log.info("leases written again", n=len(raised.missing))
        if not raised.higher:
            return
        async with self._service.turn() as turn:
            ahead = await renewal.stop_when_behind(turn.connection, raised.higher)
        for lease in ahead:
            self._service.log.error("the ledger went back", device=lease.device, lease_epoch=lease.epoch)
