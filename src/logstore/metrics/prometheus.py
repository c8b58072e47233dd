"""A store's metrics for Prometheus, through ``prometheus_client``: ``pip install
'embedded-logstore[prometheus]'``.

::

    from prometheus_client import REGISTRY, start_http_server
    from logstore.metrics.prometheus import MetricsCollector

    REGISTRY.register(MetricsCollector(store))
    start_http_server(9100)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logstore._version import how_to_install
from logstore.counting import HistogramValue
from logstore.errors import StorageError
from logstore.metrics.declared import TABLE, Kind, Metric
from logstore.metrics.snapshot import Value
from logstore.metrics.stores import ExportedStores, HasMetrics

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
except ImportError as error:
    raise ImportError(
        f"{error}; Prometheus needs its client library: {how_to_install('prometheus')}"
    ) from error

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class MetricsCollector:
    """Gives a store's metrics to a registry of ``prometheus_client``.

    Each scrape takes one snapshot; nothing runs in between. A closed store has no metrics. Cost of a scrape:
    that of :meth:`.Store.metrics`, and 10 µs for each value.
    """

    def __init__(self, store: HasMetrics | None = None, /, **stores: HasMetrics) -> None:
        """
        Args:
            store: an open store.
            stores: or several, by names, which become the label ``store``:
                ``MetricsCollector(orders=store, audit=other)``.

        Raises:
            UsageError: these are no stores.
        """
        self._stores = ExportedStores(store, stores)

    def describe(self) -> list[Family]:
        """The metrics without values: registering looks at no log."""
        return [self._family_of(metric) for metric in TABLE]

    def collect(self) -> Iterator[Family]:
        """The metrics now; the registry calls it."""
        snapshots = list(self._stores.metrics())
        for metric in TABLE if snapshots else ():
            family = self._family_of(metric)
            for labels, metrics in snapshots:
                for key, value in metrics[metric.name].items():
                    _add(family, [*labels, *map(str, key)], value)
            yield family

    def _family_of(self, metric: Metric) -> Family:
        names = (*self._stores.labels, *metric.labels)
        if metric.kind is Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.description, labels=names)
        if metric.kind is Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.description, labels=names)
        return HistogramMetricFamily(metric.name, metric.description, labels=names)


@contextmanager
def serve_metrics(store: HasMetrics, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve a store's metrics, and nothing else, by HTTP: the address in the block, such as
    ``http://127.0.0.1:9100/metrics``. Whoever reaches it may read the names of topics and groups.

    Args:
        store: an open store.
        host: where; ``0.0.0.0`` for all interfaces.
        port: 0 for any that is free.

    Raises:
        StorageError: the system refuses the address.
    """
    registry = CollectorRegistry()
    registry.register(MetricsCollector(store))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        where = f"metrics cannot be served at {host}:{port}"
        raise StorageError(error.errno, f"{where}: {error.strerror or error}") from error
    name = f"[{host}]" if ":" in host else host
    try:
        yield f"http://{name}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _add(family: Family, labels: list[str], value: Value) -> None:
    if isinstance(value, HistogramValue):
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, _buckets_of(value), value.sum)
    else:
        assert not isinstance(family, HistogramMetricFamily)
        family.add_metric(labels, value)


def _buckets_of(value: HistogramValue) -> list[tuple[str, float]]:
    """Upper bound -> how many values are no larger, as Prometheus has it."""
    found, total = [], 0
    for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
