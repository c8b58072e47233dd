"""Reading by time, beside a list: a datetime instead of an offset."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone

import pytest

import logstore
from logstore.errors import InvalidTimestampError, UsageError
from logstore.testing import ManualClock

T0 = datetime(2026, 1, 1, tzinfo=UTC)
T0_MS = 1_767_225_600_000


def at(ms: float) -> datetime:
    return T0 + timedelta(milliseconds=ms)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store", clock=ManualClock(T0_MS)) as store:
        yield store


def fill(store, chance, *, is_rising):
    """A log of several segments, batches and codecs; returns (offset, milliseconds behind T0)."""
    config = logstore.TopicConfig(
        segment_bytes=3_000,
        index_interval_bytes=100,
        compression_type=chance.choice(["uncompressed", "zstd"]),
        cleanup_policy="delete,compact",
    )
    log = store.create_topic("t", config=config)[0]
    now = 0
    for _ in range(40):
        rows = []
        for _ in range(chance.randint(1, 8)):
            now += chance.randint(0, 5)
            stamp = now if is_rising else max(now - chance.choice([0, 0, 0, 3, 30]), 0)
            rows.append((b"%d" % chance.randrange(30), b"v" * chance.randint(1, 60), T0_MS + stamp))
        log.extend(rows)
        if chance.random() < 0.1:
            log.roll()
    if chance.random() < 0.5:
        log.compact(now=True)
    if chance.random() < 0.5:
        log.delete_before(log.log_end_offset // 3)
    return log, [(record.offset, record.timestamp_ms - T0_MS) for record in log.read()]


def first_from(stamps, ms, end):
    return next((offset for offset, stamp in stamps if stamp >= ms), end)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_rising", [True, False])
def test_a_range_of_times_is_what_a_list_says(store, seed, is_rising):
    chance = random.Random(seed)
    log, stamps = fill(store, chance, is_rising=is_rising)
    newest = max(stamp for _, stamp in stamps)
    with logstore.open(store.path, read_only=True) as elsewhere:
        reader = elsewhere["t"][0]
        for _ in range(25):
            low, high = sorted(chance.randint(-5, newest + 10) / chance.choice([1, 2]) for _ in range(2))
            start, stop = first_from(stamps, low, log.log_end_offset), first_from(stamps, high, 2**62)
            wanted = [offset for offset, stamp in stamps if start <= offset < stop and low <= stamp < high]
            if is_rising:
                assert wanted == [offset for offset, stamp in stamps if low <= stamp < high]
            for each in (log, reader):
                assert [r.offset for r in each.read(at(low), at(high))] == wanted
                assert [r.offset for r in each.read(at(low))] == [
                    offset for offset, stamp in stamps if offset >= start and stamp >= low
                ]
                assert next(each.follow(at(low), timeout=0), None) == next(iter(each.read(start)), None)
                assert each.offset_at(at(low)) == (None if start == log.log_end_offset else start)


@pytest.mark.parametrize("seed", range(3))
def test_columns_are_those_of_the_rows(store, seed):
    pytest.importorskip("pyarrow")
    chance = random.Random(seed)
    log, stamps = fill(store, chance, is_rising=False)
    for _ in range(20):
        low, high = sorted(chance.sample(range(stamps[-1][1]), 2))
        rows = list(log.read(at(low), at(high)))
        assert log.read_arrow(at(low), at(high))["offset"].to_pylist() == [r.offset for r in rows]
        values = log.read_arrow(at(low), at(high), columns=["value"])
        assert values.column_names == ["value"]
        assert values["value"].to_pylist() == [r.value for r in rows]


def test_a_record_says_its_time(store):
    log = store.create_topic("t")[0]
    log.extend([(None, b"1", at(5)), (None, b"2", -1)])
    times = [record.timestamp for record in log.read()]
    assert times == [at(5), None]
    assert times[0].tzinfo is UTC
    assert [record.timestamp for record in store["t"].serialized(value="text").read()] == times
    far = logstore.Record(0, 2**62, None, None)
    with pytest.raises(OverflowError):
        _ = far.timestamp


def test_offsets_and_times_mix(store):
    log = store.create_topic("t")[0]
    log.extend([(None, b"%d" % number, T0_MS + number) for number in range(10)])
    assert [r.offset for r in log.read(at(3), 7)] == [3, 4, 5, 6]
    assert [r.offset for r in log.read(3, at(7))] == [3, 4, 5, 6]
    assert list(log.read(at(7), at(3))) == []
    assert list(log.read(at(100))) == []
    assert [r.offset for r in log.read(at(2.5), at(4.5))] == [3, 4]
    assert [r.offset for r in log.read(datetime(1960, 1, 1, tzinfo=UTC), at(1))] == [0]


def test_a_datetime_goes_wherever_a_timestamp_does(store):
    log = store.create_topic("t", partitions=2)[0]
    berlin = timezone(timedelta(hours=1))
    log.append(b"1", timestamp_ms=at(1.9))
    log.append(b"2", timestamp_ms=at(2).astimezone(berlin), flush=True)
    log.extend([(None, b"3", at(3)), (None, b"4", T0_MS + 4), (None, b"5", None)])
    log.extend([logstore.NewRecord(b"6", timestamp_ms=at(6))])
    store["t"].append(b"7", partition=0, timestamp_ms=at(7))
    stamps = [record.timestamp_ms - T0_MS for record in log.read()]
    assert stamps == [1, 2, 3, 4, 0, 6, 7]


def test_a_datetime_without_a_time_zone_is_refused_with_both_ways_out(store):
    log = store.create_topic("t")[0]
    naive = datetime(2026, 1, 1)
    for call in (
        lambda: log.append(b"v", timestamp_ms=naive),
        lambda: log.extend([(None, b"v", naive)]),
        lambda: log.read(naive),
        lambda: log.read(0, naive),
        lambda: log.follow(naive),
        lambda: log.offset_at(naive),
        lambda: store["t"].read(naive),
    ):
        with pytest.raises(InvalidTimestampError, match=r"astimezone\(\) makes it local time.*UTC"):
            call()
    with pytest.raises(InvalidTimestampError, match="timestamp_ms of record 1 is"):
        log.extend([(None, b"v", None), (None, b"v", naive)])
    assert log.log_end_offset == 0
    with pytest.raises(UsageError, match="start is 'x'; it must be a whole number, or a datetime"):
        log.read("x")
