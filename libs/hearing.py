"""For how long a service has been able to hear: who was deaf meanwhile cannot say that others were silent."""

from datetime import datetime
from typing import Final

from libs.service import Service

JUMP_SECONDS: Final = 5.0  # between two looks no clock that is kept by NTP is put right by so much at once


class Hearing:
    """Counts the seconds since anything last kept a service from hearing: its own start, NATS or Postgres away.

    What was said while it was deaf may still wait in a stream, and who could not say it says it only now.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since: float | None = None
        self._looked: tuple[datetime, float] | None = None
        service.bus.on_reconnect(self._anew)

    def seconds(self) -> float:
        """Return the seconds; 0 while something is missing. What is never asked about meanwhile is not noticed."""
        now = self._service.clock.monotonic()
        if self._service.missing():
            self._since = None
            return 0.0
        self._since = now if self._since is None else self._since
        return now - self._since

    def jump(self, now: datetime) -> float:
        """Return by how many seconds the store's clock, at which it is now, was put right since the last look, or 0.

        How long ago something was heard is told by that clock. After it jumped nobody can say who was silent, and the
        seconds begin anew.
        """
        counter, last = self._service.clock.monotonic(), self._looked
        self._looked = (now, counter)
        if last is not None:
            jump = (now - last[0]).total_seconds() - (counter - last[1])
            if abs(jump) > JUMP_SECONDS:
                self._service.log.warning(
                    "the store's clock jumped: who is silent is judged anew", seconds=round(jump, 1)
                )
                self._anew()
                return jump
        return 0.0

    def _anew(self) -> None:
        self._since = None
