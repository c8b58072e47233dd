"""Received batches as columns: any range of offsets, and no more at a time than is asked for."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition
from logstore.clients.received import ReceivedRecords
from logstore.format.column_buffers import Wanted
from logstore.format.loops import Columns
from logstore.model import TopicPartition

ALL_ROWS = 2**31 - 1


def received(log, start, stop):
    found = log.fetch(0, max_bytes=1 << 30)
    fetched = FetchedPartition(TopicPartition("t", 0), ErrorCode.NONE, found.data)
    return ReceivedRecords(fetched, start, stop)


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_a_range_of_offsets(tmp_path, codec):
    """As columns and as records. 0.5 s."""
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t", config=logstore.TopicConfig(compression_type=codec))[0]
        for first in range(0, 30, 5):
            log.extend([b"%d" % number for number in range(first, first + 5)])
        for start in range(0, 31, 3):
            for stop in range(start, 31):
                columns = Columns(Wanted.OFFSET)
                by_columns, by_records = received(log, start, stop), received(log, start, stop)
                while not by_columns.is_over:
                    by_columns.fill(columns, ALL_ROWS, ALL_ROWS)
                assert columns.row_count == stop - start
                found = []
                while not by_records.is_over:
                    found += by_records.next()
                assert [each.offset for each in found] == list(range(start, stop))


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_no_more_at_a_time_than_is_asked_for(tmp_path, codec):
    """30 MB of values, which are a few KiB when they are compressed."""
    config = logstore.TopicConfig(compression_type=codec, max_message_bytes=2 << 20)
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t", config=config)[0]
        for _ in range(30):
            log.extend([b"x" * 10_000] * 100)
        records, count = received(log, 0, 3_000), 0
        while not records.is_over:
            columns = Columns(Wanted.VALUE)
            records.fill(columns, ALL_ROWS, 3_000_000)
            assert columns.used_bytes < 5_000_000
            count += columns.row_count
        assert count == 3_000
