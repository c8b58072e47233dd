"""The OpenTelemetry exporter, collected by the SDK's reader."""

from __future__ import annotations

import math

import pytest

from logstore.counting import HistogramValue
from logstore.errors import UsageError
from logstore.metrics.declared import TABLE, Kind
from tests.metrics.helpers import busy_store, work_in

sdk = pytest.importorskip("opentelemetry.sdk.metrics")
export = pytest.importorskip("opentelemetry.sdk.metrics.export")
exporter = pytest.importorskip("logstore.metrics.opentelemetry")


@pytest.fixture
def readers():
    return export.InMemoryMetricReader(), export.InMemoryMetricReader()


@pytest.fixture
def provider(readers):
    provider = sdk.MeterProvider(metric_readers=readers)
    yield provider
    provider.shutdown()


def collect(reader):
    """{name: (the metric's data, {attributes: point})}."""
    data = reader.get_metrics_data()
    found = {}
    for of_resource in data.resource_metrics if data is not None else ():
        for scope in of_resource.scope_metrics:
            assert scope.scope.name == "logstore"
            for metric in scope.metrics:
                points = {frozenset(each.attributes.items()): each for each in metric.data.data_points}
                found[metric.name] = (metric, points)
    return found


def check(collected, metrics, **more):
    """The collected values are those of the snapshot, for the points with the attributes ``more``."""
    for metric in TABLE:
        series = {
            frozenset((dict(zip(metric.labels, key, strict=True)) | more).items()): value
            for key, value in metrics[metric.name].items()
            if not (isinstance(value, HistogramValue) and not value.count)
        }
        if not series:
            continue
        shown, points = collected[metric.name]
        assert (shown.unit, shown.description) == (metric.unit, metric.description)
        points = {key: point for key, point in points.items() if frozenset(more.items()) <= key}
        assert points.keys() == series.keys(), metric.name
        for key, value in series.items():
            check_point(metric, shown, points[key], value)


def check_point(metric, shown, point, value):
    if metric.kind is Kind.HISTOGRAM:
        assert tuple(point.explicit_bounds) == value.bounds
        assert tuple(point.bucket_counts) == value.counts
        assert point.count == value.count
        assert math.isclose(point.sum, value.sum, rel_tol=1e-9)
    else:
        assert point.value == value, metric.name
        assert isinstance(shown.data, export.Sum if metric.kind is Kind.COUNTER else export.Gauge)


def test_a_collection_has_what_the_snapshot_has(provider, readers):
    """Each reader collects when it wants, and histograms grow by what has come since."""
    with busy_store() as store:
        exporter.export_metrics(store, meter_provider=provider)
        check(collect(readers[0]), store.metrics())
        work_in(store)
        check(collect(readers[0]), store.metrics())
        check(collect(readers[1]), store.metrics())
        work_in(store)
        check(collect(readers[1]), store.metrics())
        check(collect(readers[0]), store.metrics())
        assert store.metrics().histogram("logstore_request_seconds", api="produce").count > 2


def test_one_snapshot_answers_for_all_instruments(provider, readers):
    with busy_store() as store:

        class Counted:
            count = 0

            def metrics(self):
                self.count += 1
                return store.metrics()

        counted = Counted()
        exporter.export_metrics(counted, meter_provider=provider)
        for number in range(1, 4):
            collect(readers[0])
            assert counted.count == number


def test_several_stores_are_told_apart_by_an_attribute(provider, readers):
    with busy_store() as one, busy_store() as other:
        work_in(other)
        exporter.export_metrics(one=one, other=other, meter_provider=provider)
        collected = collect(readers[0])
        check(collected, one.metrics(), store="one")
        check(collected, other.metrics(), store="other")


def test_a_log_that_begins_anew_counts_on(provider, readers):
    """Its histogram begins at 0 again; that of OpenTelemetry goes on."""
    with busy_store() as store:
        store.create_topic("again")[0].extend([b"v"])
        store["again"][0].extend([b"v"])
        exporter.export_metrics(store, meter_provider=provider)
        collect(readers[0])
        store.delete_topic("again")
        store.create_topic("again")[0].extend([b"v"])
        _, points = collect(readers[0])["logstore_write_seconds"]
        assert points[frozenset({("topic", "again")})].count == 3


def test_a_closed_store_has_no_metrics(provider, readers):
    with busy_store() as store:
        exporter.export_metrics(store, meter_provider=provider)
    assert collect(readers[0]) == {}


def test_what_is_no_store_is_refused(provider):
    with pytest.raises(UsageError, match="give one store"):
        exporter.export_metrics(meter_provider=provider)
