"""The program that measures what counting costs measures what it says."""

from __future__ import annotations

import pytest
from benchmarks import metrics as program

import logstore
from logstore.metrics.declared import TABLE, Kind


def counted(store):
    """What was counted by the code that the program can switch off."""
    found = store.metrics()
    names = [metric.name for metric in TABLE if metric.kind is Kind.HISTOGRAM]
    return sum(found.histogram(name).count for name in names) + found.total("logstore_log_appended_records")


@pytest.mark.parametrize("work", program.WORK, ids=lambda work: work.__name__)
def test_nothing_is_counted_without_counting(work, tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")[0].extend([b"v"] * 200)
        before = counted(store)
        with program.without_counting():
            work(store, 200)
            store.flush()
        assert counted(store) == before
        work(store, 200)
        store.flush()
        assert counted(store) > before


def test_it_finds_a_ratio_for_each_pair_and_the_time_of_a_snapshot(tmp_path):
    assert all(ratio > 0 for ratio in program.ratios(program.extend_one, str(tmp_path), 100, 3))
    assert program.snapshot_seconds(5) > 0
