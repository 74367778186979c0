"""For how long a service has been able to hear: who was deaf meanwhile cannot say that others were silent."""

from collections.abc import Awaitable, Callable
from typing import Final

from libs.pg import heard
from libs.pg.pool import Connection
from libs.service import Service

Correct = Callable[[Connection, float], Awaitable[None]]
JUMP_SECONDS: Final = 5.0  # no clock that is kept by NTP is put right by so much at once, and no look takes so long


class Hearing:
    """Counts the seconds since anything last kept a service from hearing: its own start, NATS or Postgres away.

    What was said while it was deaf may still wait in a stream, and who could not say it says it only now.
    ``look_seconds``: how often the service looks at who is silent; ``correct``: lets so many seconds not count.
    """

    def __init__(self, service: Service, *, look_seconds: float, correct: Correct = heard.shift) -> None:
        self._service = service
        self._look_seconds = look_seconds
        self._correct = correct
        self._since: float | None = None
        service.bus.on_reconnect(self._anew)

    def seconds(self) -> float:
        """Return the seconds; 0 while something is missing. What is never asked about meanwhile is not noticed."""
        now = self._service.clock.monotonic()
        if self._service.missing():
            self._since = None
            return 0.0
        self._since = now if self._since is None else self._since
        return now - self._since

    async def look(self, connection: Connection) -> float:
        """Return the seconds, after the times of who is waited for have been corrected by what nobody could hear.

        Each look that hears is noted in the store, for all replicas and their next lives. What lies between two of them
        beyond the usual is nobody's silence: NATS, Postgres or every replica was away or stood still, or the store's
        clock was put right. Then the seconds begin anew.
        """
        if self._service.missing():
            return self.seconds()
        gap = await heard.listen(connection)
        if is_gap(gap, self._look_seconds):
            await self._correct(connection, gap)
            log = self._service.log
            log.warning("nobody could hear, or the clock jumped: who is silent is judged anew", seconds=round(gap, 1))
            self._anew()
        return self.seconds()

    def _anew(self) -> None:
        self._since = None


def is_gap(seconds: float, look_seconds: float) -> bool:
    """Whether so much between two looks, by the store's clock, is more than looks that come late, or less than none."""
    return not -JUMP_SECONDS <= seconds <= 2 * look_seconds + JUMP_SECONDS
