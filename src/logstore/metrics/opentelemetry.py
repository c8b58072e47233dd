"""A store's metrics for OpenTelemetry, through ``opentelemetry-api``: ``pip install
'embedded-logstore[opentelemetry]'``.

::

    from logstore.metrics.opentelemetry import export_metrics

    export_metrics(store)  # to the program's meter provider
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial

from logstore._version import how_to_install
from logstore.counting import HistogramValue
from logstore.metrics.declared import TABLE, Kind, Metric
from logstore.metrics.snapshot import Labels, Metrics
from logstore.metrics.stores import ExportedStores, HasMetrics

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Histogram,
        Meter,
        MeterProvider,
        Observation,
        get_meter_provider,
    )
except ImportError as error:
    raise ImportError(
        f"{error}; OpenTelemetry needs its library: {how_to_install('opentelemetry')}"
    ) from error

Attributes = dict[str, str | int]


def export_metrics(
    store: HasMetrics | None = None,
    /,
    *,
    meter_provider: MeterProvider | None = None,
    **stores: HasMetrics,
) -> None:
    """Make an instrument for each metric. Call it once in a process.

    Counters and gauges are observable: the reader of the provider asks for them when it collects, and one
    snapshot answers for all. Histograms have the buckets of the snapshot. OpenTelemetry has no observable
    ones, so what was counted since the last collection is recorded in the next, with exact counts and sums;
    under a view that changes the buckets, the values are the means of ours.

    Cost of a collection: that of :meth:`.Store.metrics`, 25 µs for each value, most of it in the SDK, and 5
    µs for each write, flush, request and batch since the last one.

    Args:
        store: an open store. Nothing more is observed once it is closed.
        meter_provider: by default the program's.
        stores: instead of one store several, by names, which become the attribute ``store``:
            ``export_metrics(orders=store, audit=other)``.

    Raises:
        UsageError: these are no stores.
    """
    provider = meter_provider or get_meter_provider()
    _Instruments(ExportedStores(store, stores), provider.get_meter("logstore"))


class _Instruments:
    """The instruments. The meter keeps them, by their callbacks.

    Lock: ``_lock`` guards the snapshots, which instruments they have answered, and the histograms before.
    """

    def __init__(self, stores: ExportedStores, meter: Meter) -> None:
        self._stores = stores
        self._lock = threading.Lock()
        self._snapshots: list[tuple[tuple[str, ...], Metrics]] = []
        self._left: set[str] = set()
        self._recorded: dict[tuple[str, Labels], HistogramValue] = {}
        self._histograms = {
            metric: meter.create_histogram(
                metric.name,
                unit=metric.unit,
                description=metric.description,
                explicit_bucket_boundaries_advisory=metric.bounds,
            )
            for metric in TABLE
            if metric.kind is Kind.HISTOGRAM
        }
        self._observed = frozenset(metric.name for metric in TABLE if metric.kind is not Kind.HISTOGRAM)
        for metric in TABLE:
            if metric.name in self._observed:
                self._create(meter, metric)

    def _create(self, meter: Meter, metric: Metric) -> None:
        is_counter = metric.kind is Kind.COUNTER
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        create(
            metric.name,
            callbacks=[partial(self._observe, metric)],
            unit=metric.unit,
            description=metric.description,
        )

    def _observe(self, metric: Metric, _: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            if metric.name not in self._left:
                self._look_locked()
            self._left.discard(metric.name)
            return [
                Observation(value, self._attributes_of(metric, (*labels, *key)))
                for labels, metrics in self._snapshots
                for key, value in metrics[metric.name].items()
                if not isinstance(value, HistogramValue)
            ]

    def _look_locked(self) -> None:
        """New snapshots: an instrument that is asked again is in another collection."""
        self._left.update(self._observed)
        self._snapshots = list(self._stores.metrics())
        for labels, metrics in self._snapshots:
            for metric, histogram in self._histograms.items():
                for key, value in metrics[metric.name].items():
                    assert isinstance(value, HistogramValue)
                    place = metric.name, (*labels, *key)
                    before = self._recorded.get(place)
                    self._recorded[place] = value
                    _record(histogram, value, before, self._attributes_of(metric, place[1]))

    def _attributes_of(self, metric: Metric, key: Labels) -> Attributes:
        return dict(zip((*self._stores.labels, *metric.labels), key, strict=True))


def _record(
    histogram: Histogram, value: HistogramValue, before: HistogramValue | None, attributes: Attributes
) -> None:
    """Record what has come since. Within a bucket each value counts as their mean, which keeps the sum."""
    if before is not None and value.count < before.count:
        before = None  # a topic of the same name, or a log that was opened again, begins at 0
    for number, count in enumerate(value.counts):
        total = value.sums[number]
        if before is not None:
            count, total = count - before.counts[number], total - before.sums[number]
        if count > 0:
            mean = total / count
            if number < len(value.bounds):
                mean = min(mean, value.bounds[number])  # rounding must not move it to the next bucket
            for _ in range(count):
                histogram.record(mean, attributes)
