"""What a snapshot looks like: as text, in a notebook, and in JSON."""

from __future__ import annotations

import json
import pickle

import pytest

import logstore
import logstore.testing
from logstore.counting import SECONDS, Histogram, HistogramValue
from logstore.metrics.declared import TABLE
from logstore.metrics.snapshot import Metrics
from tests.metrics.helpers import busy_store, work_in


def times(*seconds):
    found = Histogram(SECONDS)
    for each in seconds:
        found.observe(each)
    return found.value


def test_text_has_a_line_for_each_value_that_is_not_0():
    series = {
        "logstore_topics": {(): 2},
        "logstore_open_segments": {(): 0},
        "logstore_log_size_bytes": {("t", 0): 12_345, ("t", 1): 0},
        "logstore_flush_seconds": {("t",): times(0.001, 0.003), ("u",): times()},
        "logstore_producer_batch_bytes": {(): HistogramValue((256.0,), (1, 0), (100.0, 0.0))},
    }
    found = Metrics("/s", 0, series, ("t-2: it is damaged",))
    assert str(found).splitlines() == [
        "logstore_topics                                2",
        "logstore_log_size_bytes{topic=t, partition=0}  12,345",
        "logstore_flush_seconds{topic=t}                2, on average 2 ms, 99 % up to 5 ms",
        "logstore_producer_batch_bytes                  1, on average 100 bytes, 99 % up to 256 bytes",
        "t-2: it is damaged",
    ]
    assert repr(found) == "<Metrics of '/s': 7 values>"


def test_text_of_many_partitions_is_short():
    series = {"logstore_log_size_bytes": {("t", number): 1 for number in range(5_000)}}
    lines = str(Metrics("/s", 0, series, ())).splitlines()
    assert len(lines) == 51
    assert lines[-1].split() == ["logstore_log_size_bytes", "and", "4,950", "more"]


def test_a_notebook_shows_the_same_and_escapes_it():
    series = {"logstore_group_lag": {("<b>", "t", 0): 7}}
    html = Metrics("/s", 0, series, ("<i>",))._repr_html_()
    assert "logstore_group_lag{group=&lt;b&gt;, topic=t, partition=0}" in html
    assert "<b>," not in html
    assert "<i>" not in html


def test_json_has_everything():
    with busy_store() as store:
        found = store.metrics()
        read = json.loads(json.dumps(found.as_dict()))
        assert (read["path"], read["taken_ms"]) == (store.path, found.taken_ms)
        for metric in TABLE:
            of_metric = read["metrics"][metric.name]
            assert (of_metric["kind"], of_metric["unit"]) == (metric.kind.value, metric.unit)
            values = {tuple(each["labels"].values()): each["value"] for each in of_metric["series"]}
            assert values.keys() == found[metric.name].keys()
            for key, value in found[metric.name].items():
                if isinstance(value, HistogramValue):
                    assert values[key]["count"] == value.count == sum(values[key]["counts"])
                    assert len(values[key]["bounds"]) + 1 == len(values[key]["counts"])
                else:
                    assert values[key] == value


def test_a_snapshot_does_not_change():
    with busy_store() as store:
        found = store.metrics()
        before = found.as_dict()
        with pytest.raises(TypeError):
            found["logstore_topics"][()] = 5
        work_in(store)
        assert found.as_dict() == before
        assert store.metrics().as_dict() != before


def test_the_sums_by_label_are_those_of_the_series():
    with logstore.open("/s", files=logstore.testing.MemoryFiles()) as store:
        for topic in ("a", "b"):
            for log in store.create_topic(topic, partitions=2):
                log.extend([b"v"] * 3)
                log.flush()
        found = store.metrics()
        assert found.total("logstore_log_appended_records") == 12
        assert found.total("logstore_log_appended_records", topic="a") == 6
        assert found.total("logstore_log_appended_records", topic="a", partition=1) == 3
        assert found.total("logstore_log_appended_records", partition=1) == 6
        assert found.total("logstore_log_appended_records", topic="c") == 0
        assert found.histogram("logstore_flush_seconds").count == 4
        assert found.histogram("logstore_flush_seconds", topic="b").count == 2
        assert found.histogram("logstore_flush_seconds", topic="c").count == 0


def test_it_goes_to_another_process_as_it_is():
    with busy_store() as store:
        found = store.metrics()
    copy = pickle.loads(pickle.dumps(found))
    assert copy == found
    assert (copy.path, copy.taken_ms, copy.incomplete) == (found.path, found.taken_ms, found.incomplete)
