"""Segments of which records were erased, under Kafka's dump tool: it finds no fault with their indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.model import NewRecord
from logstore.partition.log import Log
from tests.interop.dump import dump_log
from tests.interop.kafka import require_kafka

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_an_erased_log_is_without_fault(tmp_path: Path, is_rebuilt: bool) -> None:
    """The newest records of each segment go, and with them all of one batch."""
    require_kafka()
    config = TopicConfig(segment_bytes=4000, index_interval_bytes=300)
    settings = StoreConfig(linger_ms=0)
    with Log.open(str(tmp_path / "t-0"), config=config, store_config=settings) as log:
        for number in range(60):
            at_ms = 1_600_000_000_000 + (number * 10 if number % 6 else number * 10 + 500)
            name = b"gone" if number % 6 == 0 else b"kept"
            log.extend([NewRecord(b"v" * 150, key=name, timestamp_ms=at_ms)] * 2)
        assert log.erase(keys=[b"gone"])
    if is_rebuilt:
        for path in (tmp_path / "t-0").glob("*index"):
            path.unlink()
        with Log.open(str(tmp_path / "t-0"), config=config, store_config=settings) as log:
            assert sum(1 for _ in log.read()) == 100
            assert log.offset_at(0) == 2
    dumped = dump_log(tmp_path / "t-0", allow_gaps=True)
    assert sum(len(file.records) for file in dumped.values()) == 100
