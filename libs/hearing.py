"""For how long a service has been able to hear: who was deaf meanwhile cannot say that others were silent."""

from libs.service import Service


class Hearing:
    """Counts the seconds since anything last kept a service from hearing: its own start, NATS or Postgres away.

    What was said while it was deaf may still wait in a stream, and who could not say it says it only now.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
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

    def _anew(self) -> None:
        self._since = None
