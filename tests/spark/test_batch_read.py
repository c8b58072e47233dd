"""``spark.read``: the rows are those that logstore's own reader gives."""

from __future__ import annotations

import pytest

import logstore

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as opened:
        yield opened


def read(spark, store, **options):
    return spark.read.format("logstore").options(path=store.path, **options).load()


def test_every_record_comes_once_and_as_it_is(spark, store):
    topic = store.require_topic("orders", partitions=2)
    topic[0].extend([(b"k%d" % i, b"v" * i, 1000 + i, [("h", b"x")] * (i % 2)) for i in range(10)])
    topic[1].extend([(None, None, 7, [("é", None)])])
    rows = read(spark, store, subscribe="orders", includeHeaders="true").collect()
    found = sorted((row.partition, row.offset, row.key, row.value, row.headers) for row in rows)
    assert found == [
        (number, record.offset, record.key, record.value, list(record.headers) or None)
        for number, log in enumerate(topic)
        for record in log
    ]
