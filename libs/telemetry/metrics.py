"""The numbers of one service, as Prometheus reads them. A label has few values: never a job, a tenant by itself, an id.

Names end with their unit, counters with ``_total``. What a service counts in its tables is asked for only when somebody
reads, and at most every few seconds.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Info,
    Summary,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from libs.errors import TransientError
from libs.log import get_logger

SERIES: Final = 1_000  # lines of one table: what is beyond is added up under OTHER
OTHER: Final = "other"
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MEASURE_SECONDS: Final = 1.5  # of all measures together: who asks waits two seconds
AGAIN_SECONDS: Final = 5.0  # so that many readers cost no more than one
Lines = Mapping[tuple[str, ...], float]
Measure = Callable[[], Awaitable[None]]

_once: Callable[[], None] = disable_created_metrics
_once()  # or each counter would be shown twice
log = get_logger(__name__)


class Table(Collector):
    """Gauges that are set whole, so that what is gone is not shown any more."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._name, self._text, self._labels = name, text, tuple(labels)
        self._lines: Lines = {}

    def fill(self, lines: Lines) -> None:
        """Show these lines and no others: label values in the labels' order, to the number."""
        self._lines = _bounded(lines, len(self._labels))

    def describe(self) -> Iterable[Metric]:
        """Return the family without lines."""
        return [GaugeMetricFamily(self._name, self._text, labels=self._labels)]

    def collect(self) -> Iterable[Metric]:
        """Return the family with its lines."""
        family = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for values, number in self._lines.items():
            family.add_metric(values, number)
        return [family]


class Reading(Collector):
    """One number that is read when somebody asks; ``read`` must be quick and raise nothing."""

    def __init__(self, family: type[GaugeMetricFamily | CounterMetricFamily], name: str, text: str) -> None:
        self._family, self._name, self._text = family, name, text
        self.read: Callable[[], float] = float

    def describe(self) -> Iterable[Metric]:
        """Return the family without its number."""
        return [self._family(self._name, self._text)]

    def collect(self) -> Iterable[Metric]:
        """Return the family with its number."""
        return [self._family(self._name, self._text, value=self.read())]


class Metrics:
    """The registry of one service."""

    def __init__(self, *, again_seconds: float = AGAIN_SECONDS) -> None:
        self.again_seconds = again_seconds
        self._registry = CollectorRegistry()
        self._tables: list[Table] = []
        self._measures: list[Measure] = []
        self._measured_at = -math.inf
        self._one_at_a_time = asyncio.Lock()
        ProcessCollector(registry=self._registry)
        self._failures = self.counter("triplane_measure_errors", "Times that a service's tables could not be counted.")

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        """Return a counter; ``_total`` is added to its name."""
        return Counter(name, text, labels, registry=self._registry)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """Return a histogram, of seconds where no other buckets are given."""
        return Histogram(name, text, labels, registry=self._registry, buckets=buckets)

    def summary(self, name: str, text: str, labels: Sequence[str] = ()) -> Summary:
        """Return a sum and a count."""
        return Summary(name, text, labels, registry=self._registry)

    def info(self, name: str, text: str, **words: str) -> None:
        """Show words as labels of a 1; ``_info`` is added to the name."""
        Info(name, text, registry=self._registry).info(words)

    def table(self, name: str, text: str, labels: Sequence[str]) -> Table:
        """Return gauges that are set whole, by a measure."""
        table = Table(name, text, labels)
        self._registry.register(table)
        self._tables.append(table)
        return table

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show what ``read`` returns."""
        self._show(GaugeMetricFamily, name, text, read)

    def counted(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Show what ``read`` returns: a number that only rises. ``_total`` is added to the name."""
        self._show(CounterMetricFamily, name, text, read)

    def measure(self, work: Measure) -> None:
        """Do this, which fills tables, before somebody reads. A TransientError empties the tables: unknown is not 0."""
        self._measures.append(work)

    async def text(self) -> bytes:
        """Return everything in Prometheus' text form. Raises nothing that a measure raises but defects."""
        async with self._one_at_a_time:
            if self._measures and asyncio.get_running_loop().time() - self._measured_at >= self.again_seconds:
                await self._measure()
                self._measured_at = asyncio.get_running_loop().time()
        return generate_latest(self._registry)

    async def _measure(self) -> None:
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                for work in self._measures:
                    await work()
        except (TransientError, TimeoutError) as error:
            self._failures.inc()
            log.warning("tables not counted", why=repr(error))
            for table in self._tables:
                table.fill({})

    def _show(
        self,
        family: type[GaugeMetricFamily | CounterMetricFamily],
        name: str,
        text: str,
        read: Callable[[], float],
    ) -> None:
        reading = Reading(family, name, text)
        reading.read = read
        self._registry.register(reading)


def _bounded(lines: Lines, width: int) -> Lines:
    """Return the lines, and those beyond the limit as one: the first by name stay, so that the same ones are shown."""
    if len(lines) <= SERIES:
        return dict(lines)
    ordered = sorted(lines.items())
    return {**dict(ordered[: SERIES - 1]), (OTHER,) * width: sum(number for _, number in ordered[SERIES - 1 :])}
