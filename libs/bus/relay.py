"""The relay says what is committed: in order, with receipts, and again when a stream turns out to have lost it."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Final

from libs.bus.ports import Bus, Outbox, Receipt, Store
from libs.errors import TransientError
from libs.log import get_logger
from libs.pg.outbox import Sent, Unsent
from libs.telemetry.meters import Meters
from libs.telemetry.telemetry import unread
from schemas.catalog import STREAMS

WINDOW: Final = 500
POLL_SECONDS: Final = 1.0  # also heals a wake-up that was lost
LOOK_SECONDS: Final = 5.0  # how long a stream's loss may go unnoticed while nothing is said
RETRY_SECONDS: Final = 0.5
DOUBT_SECONDS: Final = 115.0  # NATS syncs its disk every 120 s, and knows message ids for as long
DOUBT_LIMIT: Final = 20_000
_MAX_AGE: Final = {stream.name: stream.max_age_seconds for stream in STREAMS}
log = get_logger(__name__)


class Relay:
    """Publishes one service's outbox; of several replicas, one at a time."""

    def __init__(self, store: Store, bus: Bus, streams: Sequence[str], *, meters: Meters | None = None) -> None:
        self._store = store
        self._bus = bus
        self._streams = tuple(streams)
        self._meters = meters or unread().meters
        self._known: dict[str, int] = {}  # stream -> highest sequence it gave a receipt for
        self._wake = asyncio.Event()
        self._look = asyncio.Event()
        self._doubt = asyncio.Event()
        self._end = asyncio.Event()
        store.on_commit(self._wake.set)
        bus.on_reconnect(self.look)

    def look(self) -> None:
        """Look now for what the streams had given receipts for: a server that was away may have lost it."""
        self._look.set()
        self._doubt.set()
        self._wake.set()

    async def run(self) -> None:
        """Say what is committed, until drained. Raises defects only."""
        while True:
            try:
                await self._lead()
            except TransientError as error:
                log.warning("relay waits", why=str(error))
            if self._end.is_set():
                return
            await _pause(self._end, RETRY_SECONDS)  # who has no outbox is woken by no commit: it would ask all the time

    def end(self) -> None:
        """Let ``run`` return when the outbox is empty, or cannot be emptied now."""
        self._end.set()
        self._wake.set()

    async def _lead(self) -> None:
        async with self._store.outbox() as outbox:
            if outbox is None:
                return
            self._known = {stream: await outbox.last_sequence(stream) for stream in self._streams}
            self.look()
            await self._serve(outbox)

    async def _serve(self, outbox: Outbox) -> None:
        clock = asyncio.get_running_loop()
        looked = clock.time()
        while True:
            self._wake.clear()
            if self._look.is_set() or clock.time() - looked > LOOK_SECONDS:
                await self._compare(outbox)
                await self._doubt_the_latest(outbox)
                looked = clock.time()
            ending = self._end.is_set()  # before the last look: what is committed until the end is said
            all_said = await self._meters.spending("relay", self._say(outbox))
            if ending:
                return
            await _pause(self._wake, POLL_SECONDS if all_said else RETRY_SECONDS)

    async def _doubt_the_latest(self, outbox: Outbox) -> None:
        """Say once more, under the same message ids, what a server that crashed had perhaps not yet on its disk.

        What the stream has, it answers as a duplicate with the sequence of the first receipt; what it lost, it stores.
        """
        if self._doubt.is_set():
            self._doubt.clear()
            await outbox.doubt(DOUBT_SECONDS, DOUBT_LIMIT)

    async def _say(self, outbox: Outbox) -> bool:
        """Say what is unsent, window by window. Return False when something could not be said."""
        while window := await outbox.unsent(WINDOW):
            receipts = await self._bus.publish(window)
            doubtful = await self._note(outbox, window, receipts)
            if None in receipts:
                return False
            if len(window) < WINDOW and not doubtful:
                break  # that was all; what was committed meanwhile has set the wake-up
        return True

    async def _note(self, outbox: Outbox, window: Sequence[Unsent], receipts: Sequence[Receipt | None]) -> bool:
        """Note receipts, and return whether a message has to be said under a new id."""
        pairs = [(item, receipt) for item, receipt in zip(window, receipts, strict=True) if receipt]
        stored = [(item, receipt.sequence) for item, receipt in pairs if not receipt.duplicate]
        await self._note_losses(outbox, stored)
        known = [(item, item.sequence) for item, receipt in pairs if _confirmed(item, receipt)]
        if sent := stored + known:
            await outbox.mark_sent([Sent(item.position, item.said, sequence) for item, sequence in sent])
        # a stream that claims to have a message may have lost it (its memory outlives it): say it under a new id
        if doubtful := [item for item, receipt in pairs if receipt.duplicate and not _confirmed(item, receipt)]:
            await outbox.rename(doubtful)
        return bool(doubtful)

    async def _note_losses(self, outbox: Outbox, sent: Sequence[tuple[Unsent, int]]) -> None:
        """A receipt at or below an earlier one says that the stream went back: what was beyond is lost."""
        lowest: dict[str, int] = {}
        for item, sequence in sent:
            lowest[item.message.stream] = min(sequence, lowest.get(item.message.stream, sequence))
        for stream, sequence in lowest.items():
            if sequence <= self._known.get(stream, 0):
                await self._lost(outbox, stream, sequence - 1)
        for item, sequence in sent:
            self._known[item.message.stream] = max(sequence, self._known.get(item.message.stream, 0))

    async def _compare(self, outbox: Outbox) -> None:
        self._look.clear()
        for stream in self._streams:
            state = await self._bus.look(stream)
            if state is None:
                self._look.set()
                continue
            seen = await outbox.created_seen(stream)
            if seen != state.created:
                await self._new_incarnation(outbox, stream, seen, state.created)
            elif state.last_sequence < self._known.get(stream, 0):
                await self._lost(outbox, stream, state.last_sequence)

    async def _new_incarnation(self, outbox: Outbox, stream: str, seen: datetime | None, created: datetime) -> None:
        if seen is not None:
            await self._lost(outbox, stream, 0)
        await outbox.note_created(stream, created)

    async def _lost(self, outbox: Outbox, stream: str, sequence: int) -> None:
        count = await outbox.lost_beyond(stream, sequence, since_seconds=_MAX_AGE[stream])
        self._known[stream] = sequence
        self._wake.set()
        log.warning("stream lost messages", stream=stream, beyond=sequence, said_again=count)


async def _pause(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _confirmed(item: Unsent, receipt: Receipt) -> bool:
    """Whether the stream names the very place that it had named before."""
    return receipt.duplicate and receipt.sequence == item.sequence
