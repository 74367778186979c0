"""What the shell counts of every service, whatever it does."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar

from libs.pg.outbox import Backlog
from libs.pg.pool import Pool
from libs.telemetry.metrics import OTHER, Metrics
from libs.telemetry.steps import Steps
from schemas.catalog import CALLS

MESSAGES: Final = (1, 2, 5, 10, 20, 50, 100, 200)
T = TypeVar("T")
_CALLS: Final = frozenset(call.subject for call in CALLS)


class Meters:
    """The counters of one service's turns, loops, calls and relay."""

    def __init__(self, service: str) -> None:
        self.metrics = metrics = Metrics()
        self._backlog = Backlog(0, 0.0)
        self._taken = metrics.counter("triplane_facts_taken", "Facts taken in, each once.", ("type",))
        self._said = metrics.counter("triplane_facts_said", "Facts committed to be said, each once.", ("type",))
        self.turn_seconds = metrics.histogram("triplane_turn_seconds", "From a batch to its commit.", ("durable",))
        self.turn_messages = metrics.histogram(
            "triplane_turn_messages", "Messages in a batch.", ("durable",), buckets=MESSAGES
        )
        self._spent = metrics.counter(
            "triplane_cpu_seconds", "Processor time by what it went into; the rest of the process is the bus.", ("hop",)
        )
        self.apart = metrics.counter(
            "triplane_batches_apart", "Batches whose messages were handled one by one, since some failed.", ("durable",)
        )
        self.redeliveries = metrics.counter("triplane_redeliveries", "Messages delivered again.", ("durable",))
        self.dead_letters = metrics.counter("triplane_dead_letters", "Messages set aside.", ("durable", "kind"))
        self.loop_seconds = metrics.summary("triplane_loop_seconds", "Rounds of a loop.", ("loop",))
        self.loop_errors = metrics.counter("triplane_loop_errors", "Rounds of a loop that failed for now.", ("loop",))
        self.call_seconds = metrics.histogram(
            "triplane_call_seconds", "From a question to its answer, as who asks sees it.", ("call", "outcome")
        )
        self.answer_seconds = metrics.histogram(
            "triplane_answer_seconds", "From a question, or a batch of them, to the commit of its answer.", ("call",)
        )
        metrics.gauge(
            "triplane_relay_backlog_facts", "Facts that are committed and not said yet.", lambda: self._backlog.facts
        )
        metrics.gauge(
            "triplane_relay_oldest_unsent_seconds",
            "Age of the oldest fact that was never said.",
            lambda: self._backlog.oldest_seconds,
        )
        metrics.info("triplane", "What this is.", service=service, version=_version())

    def taken(self, types: Iterable[str]) -> None:
        """Count facts that were taken in and committed."""
        for kind, count in Counter(types).items():
            self._taken.labels(kind).inc(count)

    def said(self, types: Iterable[str]) -> None:
        """Count facts that were committed to be said."""
        for kind, count in Counter(types).items():
            self._said.labels(kind).inc(count)

    async def spending(self, hop: str, work: Coroutine[Any, Any, T]) -> T:
        """Do work and count its processor time under a hop: a turn, a loop, the relay. Raises what the work raises."""
        steps = Steps(work)
        try:
            return await steps
        finally:
            self._spent.labels(hop).inc(steps.seconds)

    def show_pool(self, pool: Callable[[], Pool | None], limit: int) -> None:
        """Show the pool of Postgres; before it is open its numbers are 0."""

        def counted(count: Callable[[Pool], int]) -> Callable[[], float]:
            return lambda: count(found) if (found := pool()) is not None else 0

        show = self.metrics.gauge
        show("triplane_pool_connections", "Open to Postgres.", counted(Pool.get_size))
        show("triplane_pool_idle_connections", "Open and not lent.", counted(Pool.get_idle_size))
        show("triplane_pool_limit_connections", "How many may be open.", lambda: limit)

    def waits(self, backlog: Backlog) -> None:
        """Note what the relay has still to say."""
        self._backlog = backlog


def call_of(subject: str) -> str:
    """Return the call of the catalogue that a subject is: all nodes are one."""
    name = f"call.node.*.{subject.rpartition('.')[2]}" if subject.startswith("call.node.") else subject
    return name if name in _CALLS else OTHER


def _version() -> str:
    try:
        return version("triplane")
    except PackageNotFoundError:
        return "unknown"  # from a bare tree
