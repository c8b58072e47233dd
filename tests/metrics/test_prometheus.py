"""The Prometheus exporter, scraped over HTTP and read with Prometheus' own parser."""

from __future__ import annotations

import math
import urllib.request

import pytest

from logstore.counting import HistogramValue
from logstore.errors import UsageError
from logstore.metrics.declared import TABLE, Kind
from tests.metrics.helpers import busy_store, work_in

prometheus_client = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")
exporter = pytest.importorskip("logstore.metrics.prometheus")


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def scrape(registry):
    """Asks a real server for the metrics: {family: (type, {(sample, labels): value})}."""
    server, thread = prometheus_client.start_http_server(0, addr="127.0.0.1", registry=registry)

    def ask():
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
        found = {}
        for family in parser.text_string_to_metric_families(text):
            samples = {(each.name, frozenset(each.labels.items())): each.value for each in family.samples}
            found[family.name] = (family.type, family.documentation, samples)
        return found

    yield ask
    server.shutdown()
    server.server_close()
    thread.join()


def expected_samples(metric, key, value, **more):
    labels = {label: str(each) for label, each in zip(metric.labels, key, strict=True)} | more
    if not isinstance(value, HistogramValue):
        suffix = "_total" if metric.kind is Kind.COUNTER else ""
        return {(metric.name + suffix, frozenset(labels.items())): value}
    found = {
        (f"{metric.name}_sum", frozenset(labels.items())): value.sum,
        (f"{metric.name}_count", frozenset(labels.items())): value.count,
    }
    total = 0
    for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
        total += count
        found[f"{metric.name}_bucket", frozenset((labels | {"le": bound}).items())] = total
    return found


def check(scraped, metrics, **labels):
    for metric in TABLE:
        expected = {}
        for key, value in metrics[metric.name].items():
            expected |= expected_samples(metric, key, value, **labels)
        kind, documentation, samples = scraped[metric.name]
        assert kind == metric.kind.value, metric.name
        assert documentation == metric.description
        assert samples.keys() == expected.keys(), metric.name
        for each, value in expected.items():
            assert math.isclose(samples[each], value, abs_tol=1e-9), each


def test_a_scrape_has_what_the_snapshot_has(registry, scrape):
    with busy_store() as store:
        registry.register(exporter.MetricsCollector(store))
        check(scrape(), store.metrics())
        work_in(store)
        check(scrape(), store.metrics())
        assert store.metrics().histogram("logstore_request_seconds", api="produce").count > 0


def test_several_stores_share_a_registry(registry, scrape):
    with busy_store() as one, busy_store() as other:
        work_in(other)
        registry.register(exporter.MetricsCollector(one=one, other=other))
        scraped = scrape()
        for name, store in (("one", one), ("other", other)):
            of_store = {
                family: (
                    kind,
                    said,
                    {key: value for key, value in samples.items() if ("store", name) in key[1]},
                )
                for family, (kind, said, samples) in scraped.items()
            }
            check(of_store, store.metrics(), store=name)


def test_what_is_no_store_is_refused(registry):
    with pytest.raises(UsageError, match="give one store"):
        exporter.MetricsCollector()
    with pytest.raises(UsageError, match="is no store"):
        exporter.MetricsCollector(orders=5)


def test_a_closed_store_has_no_metrics(registry, scrape):
    with busy_store() as store:
        registry.register(exporter.MetricsCollector(store))
    assert scrape() == {}
