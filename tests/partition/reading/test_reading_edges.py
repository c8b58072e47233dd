"""Edges that every way to read must keep: a high watermark inside a batch, a batch that overlaps the one in
front of it by one offset, a read beside a truncation; and what recovery and compaction say to readers."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptionError, OffsetOutOfRangeError
from logstore.format.checkpoint import EpochEntry
from logstore.model import Isolation, NewRecord, Role
from logstore.partition.reading import lookup
from tests.partition.helpers import Partition
from tests.partition.helpers_rules import add, identity, offsets_of, open_log

LOG_END, HIGH_WATERMARK, COMMITTED, DURABLE = Isolation


# A high watermark inside a batch


@pytest.mark.parametrize("codec", ["producer", "zstd"])
@pytest.mark.parametrize("kind", ["plain", "transactional", "behind an aborted one"])
@pytest.mark.parametrize("isolation", [HIGH_WATERMARK, COMMITTED])
def test_a_high_watermark_inside_a_batch_bounds_every_way_to_read(tmp_path, codec, kind, isolation):
    log = open_log(tmp_path / "t-0", compression_type=codec)
    log.set_role(Role.LEADER)
    start = 0
    if kind == "behind an aborted one":
        log.extend([b"x"], producer=identity(0, producer=3, transactional=True))
        start = log.append_end_marker(3, 0, committed=False).base_offset + 1
    rows = [NewRecord(b"%d" % number, key=b"k%d" % number) for number in range(6)]
    producer = identity(0, transactional=True) if kind == "transactional" else None
    log.extend(rows, producer=producer)
    if producer is not None:
        log.append_end_marker(producer.producer_id, 0, committed=True)
    for shown in range(7):
        mark = log.update_high_watermark(start + shown)
        is_undecided = kind == "transactional" and isolation is COMMITTED
        expected = [] if is_undecided else list(range(start, mark))
        of_range = {
            "rows": [record.offset for record in log.read(start, isolation=isolation)],
            "on demand": [record.offset for record in log.read(start, isolation=isolation, on_demand=True)],
            "columns": log.read_arrow(start, isolation=isolation)["offset"].to_pylist(),
            "follower": [record.offset for record in log.follow(start, timeout=0, isolation=isolation)],
        }
        assert of_range == dict.fromkeys(of_range, expected)
        table = [record.offset for record in log.latest(isolation=isolation) if record.offset >= start]
        columns = log.latest_arrow(isolation=isolation).read_all()["offset"].to_pylist()
        assert table == [offset for offset in columns if offset >= start] == expected
        for offset in range(start, log.log_end_offset):
            if offset in expected:
                assert log.record_at(offset, isolation=isolation).offset == offset
            else:
                with pytest.raises(OffsetOutOfRangeError):
                    log.record_at(offset, isolation=isolation)
        whole = start + 6 if len(expected) == 6 else start  # a fetch gives whole batches
        assert log.fetch(start, isolation=isolation).next_offset == whole


# Neighbours


@pytest.mark.damaged
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_that_overlaps_the_one_in_front_by_one_offset_is_refused(tmp_path, batch, count):
    """Its base offset, which no checksum covers, says that it begins with the last record of the other, which
    may lie in the segment in front."""
    partition = Partition(tmp_path / "t-0", index_interval_bytes=0)
    partition.write_segments(2 * count, 4 * count, batch=count)
    base_offset = 2 * count
    position, header = partition.batches(base_offset)[batch]
    with partition.file(base_offset).open("r+b") as file:
        file.seek(position)
        file.write((header.base_offset - 1).to_bytes(8, "big"))
    log = partition.log
    reads = {
        "rows": lambda: list(log.read(0)),
        "on demand": lambda: list(log.read(0, on_demand=True)),
        "columns": lambda: log.read_arrow(0),
        "table": lambda: list(log.latest()),
        "fetch": lambda: log.fetch(header.base_offset),
        "record": lambda: log.record_at(header.base_offset),
    }
    if batch:
        reads["record in front"] = lambda: log.record_at(header.base_offset - 1)
    for name, read in reads.items():
        try:
            read()
        except CorruptionError:
            continue
        pytest.fail(f"{name} took it")
    partition.crash()


# A read beside a truncation


def test_a_batch_that_was_read_before_a_truncation_is_not_kept_for_readers_after_it(tmp_path, monkeypatch):
    log = open_log(tmp_path / "t-0", compression_type="zstd")
    add(log, b"kept", b"kept")
    add(log, b"old", b"old")
    find = lookup._find_quickly

    def find_while_truncated(*arguments):
        found = find(*arguments)
        monkeypatch.setattr(lookup, "_find_quickly", find)
        log.truncate_to(2)
        add(log, b"new", b"new")
        return found

    monkeypatch.setattr(lookup, "_find_quickly", find_while_truncated)
    log.record_at(2)  # read before the truncation, and kept after it
    assert log.record_at(2).value == log.record_at(3).value == b"new"


# What recovery and compaction say


def test_recovery_finds_every_leader_epoch_among_ordinary_batches(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.size_bytes = 1000  # so many that they are taken in runs
    for epoch, count in ((1, 150), (2, 100), (5, 150)):
        partition.log.assign_leader_epoch(epoch)
        partition.write(count, batch=5)
    partition.crash()
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")  # as a power cut may leave it
    assert partition.recover().epoch_entries == (EpochEntry(1, 0), EpochEntry(2, 150), EpochEntry(5, 250))
    partition.close()


@pytest.mark.parametrize("newest", [1, 2, 3])
def test_a_newest_record_that_is_not_the_last_is_found_by_time_after_compaction(tmp_path, newest):
    """Compaction makes the batch anew, without its first and its last record; its header names the newest
    that stays. The batch behind it is of a producer, so that the two are not joined."""
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    now_ms = log._context.clock.now_ms()
    times = [now_ms - 5_000] * 5
    times[newest] = now_ms
    log.extend([NewRecord(b"v", key=b"%d" % n, timestamp_ms=at) for n, at in enumerate(times)])
    later = [NewRecord(b"later", key=key, timestamp_ms=now_ms - 9_000) for key in (b"0", b"4")]
    log.extend(later, producer=identity(0))
    log.compact(now=True)
    assert offsets_of(log) == [1, 2, 3, 5, 6]
    assert log.offset_at(now_ms - 1_000) == newest
    assert log.find_max_timestamp()[:2] == (newest, now_ms)
