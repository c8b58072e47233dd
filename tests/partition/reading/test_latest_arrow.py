"""The table view as columns holds what it gives as records."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptionError, UsageError
from logstore.format.column_buffers import PlainColumns
from logstore.model import Isolation, Record
from tests.logdir.helpers import open_store
from tests.partition.log_shapes import LOOPS, SHAPES

pa = pytest.importorskip("pyarrow")

from logstore.partition.reading import arrow  # noqa: E402
from tests.partition.helpers_arrow import records_in  # noqa: E402


@pytest.fixture(params=LOOPS, autouse=True)
def way(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setattr(arrow, "Columns", PlainColumns)


@pytest.mark.parametrize("name", SHAPES)
def test_logs_of_every_shape(name, tmp_path):
    log = SHAPES[name](tmp_path / "t-0")
    expected = list(log.latest(isolation=Isolation.COMMITTED))
    assert records_in(log.latest_arrow(isolation=Isolation.COMMITTED).read_all()) == expected
    for limits in ({"batch_rows": 3}, {"batch_bytes": 200}):
        batches = list(log.latest_arrow(isolation=Isolation.COMMITTED, **limits))
        assert [record for batch in batches for record in records_in(batch)] == expected
        assert all(1 <= batch.num_rows <= limits.get("batch_rows", batch.num_rows) for batch in batches)


def test_columns_are_those_named_in_that_order(log):
    log.extend([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    table = log.latest_arrow(columns=["value", "key"]).read_all()
    assert table.to_pydict() == {"value": [b"2", b"3"], "key": [b"b", b"a"]}
    with pytest.raises(UsageError, match="colour"):
        log.latest_arrow(columns=["colour"])


def test_an_empty_table_has_its_columns(log):
    table = log.latest_arrow().read_all()
    assert (table.num_rows, table.column_names) == (0, ["offset", "timestamp_ms", "key", "value", "headers"])


def test_a_view_gives_columns_as_of_its_end_offset(log):
    log.extend([(b"a", b"1")])
    view = log.latest()
    log.extend([(b"a", b"2")])
    assert view.iterate_arrow(columns=["value"]).read_all().to_pydict() == {"value": [b"1"]}


def test_a_topic_says_the_partition(tmp_path):
    with open_store(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=3)
        topic.extend([(b"%d" % (number % 20), b"%d" % number) for number in range(100)])
        rows = topic.latest_arrow(columns=["partition", "key", "value"]).read_all().to_pylist()
        assert [(row["partition"], row["key"], row["value"]) for row in rows] == [
            (view.partition.partition, record.key, record.value) for view in topic.latest() for record in view
        ]


def test_what_is_before_damage_is_given_first():
    records = [Record(number, 0, b"%d" % number, b"v") for number in range(5)]

    def lists():
        yield records[:2]
        yield records[2:]
        raise CorruptionError("damaged")

    batches = arrow.columns_of_lists(lists(), arrow.plan_columns(None, 100, 10_000))
    assert records_in(next(batches)) == records
    with pytest.raises(CorruptionError, match="damaged"):
        next(batches)
