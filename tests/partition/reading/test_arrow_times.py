"""The column ``timestamp``: the times that records have, in every way of reading columns."""

from datetime import UTC, datetime

import pytest

import logstore
from logstore import StoreConfig, TopicConfig

pa = pytest.importorskip("pyarrow")

COLUMNS = ["timestamp", "offset"]
DAY_MS = 86_400_000
STAMPS = [0, -1, 1_700_000_000_123, -1, 1_700_000_000_999, 253_402_300_799_999]


@pytest.fixture(params=["uncompressed", "zstd"])
def topic(tmp_path, request):
    """Two partitions: one with a time for each record, and one in which some have none."""
    config = TopicConfig(
        message_timestamp_unit_check=False,
        message_timestamp_after_max_ms=2**63 - 1,
        cleanup_policy="compact",
        compression_type=request.param,
    )
    with logstore.open(tmp_path / "store", config=StoreConfig(log_cleaner_enable=False)) as store:
        made = store.create_topic("t", partitions=2, config=config)
        made[0].extend([(b"%d" % n, b"v", n * DAY_MS + 7) for n in range(40)])
        made[1].extend([(b"%d" % n, b"v", stamp) for n, stamp in enumerate(STAMPS)], flush=True)
        yield made


def times_of(records):
    return [(record.timestamp, record.offset) for record in records]


def rows_of(table):
    assert table.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
    table.validate(full=True)
    return [(row["timestamp"], row["offset"]) for row in table.to_pylist()]


def test_it_is_the_timestamp_of_the_record(topic):
    for log in topic:
        expected = times_of(log.read())
        assert rows_of(log.read_arrow(columns=COLUMNS)) == expected
        assert rows_of(log.iterate_arrow(columns=COLUMNS, batch_rows=3).read_all()) == expected
        assert rows_of(log.latest_arrow(columns=COLUMNS).read_all()) == times_of(log.latest())
    with logstore.open(topic[0].directory.rpartition("/")[0], read_only=True) as store:
        assert rows_of(store["t"][1].read_arrow(columns=COLUMNS)) == times_of(topic[1].read())
    expected = times_of(topic.read(order="partition"))
    assert rows_of(topic.read_arrow(columns=COLUMNS)) == expected
    assert rows_of(topic.iterate_arrow(columns=COLUMNS, batch_rows=3).read_all()) == expected
    assert rows_of(topic.latest_arrow(columns=COLUMNS).read_all()) == expected


def test_a_range_of_times_needs_no_other_column(topic):
    start, stop = datetime(1970, 1, 3, tzinfo=UTC), datetime(1970, 1, 8, tzinfo=UTC)
    table = topic.read_arrow(start=start, stop=stop, columns=["timestamp"])
    assert table.column_names == ["timestamp"]
    found = table["timestamp"].to_pylist()
    assert found == [record.timestamp for record in topic.read(start, stop)]
    assert len(found) == 5


def test_it_shares_the_memory_of_the_numbers(topic):
    for log in topic:
        [batch] = log.iterate_arrow(columns=["timestamp_ms", "timestamp"])
        numbers, times = batch.columns
        assert numbers.buffers()[1].address == times.buffers()[1].address
        assert numbers.to_pylist() == [record.timestamp_ms for record in log.read()]
        assert times.null_count == numbers.to_pylist().count(-1)


def test_it_comes_if_it_is_named(topic):
    assert "timestamp" not in topic.read_arrow().column_names
    assert "timestamp" not in topic[0].latest_arrow().read_all().column_names
    table = topic.read_arrow(columns=["partition", "timestamp", "timestamp_ms", "timestamp_type"])
    assert table.column_names == ["partition", "timestamp", "timestamp_ms", "timestamp_type"]
    with pytest.raises(logstore.UsageError, match=r"the columns are .* timestamp,"):
        topic[0].read_arrow(columns=["time"])
