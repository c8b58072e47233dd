"""A reader elsewhere took the last segment for as long as its batches followed each other.

It went over the whole of it, and where a batch did not fit, the log ended there: without an error if nobody
had called more durable, and else with one for the whole partition. Of a log that was closed, 569 of the 640
bits of base offsets, which no checksum covers, gave records under wrong offsets or a log that ended early.
And one damaged batch in front kept readers from the thousands of records behind it, which the writer serves.

Now the first look begins where recovery begins, at the last index entry below the recovery point, and holds
what it finds against the recovery point in the same way. ``tests/fuzz/test_reader_flips.py`` tries all bits.
"""

from __future__ import annotations

import os

import pytest
from tests.logdir.helpers import CountingFiles, crash, log_files, open_store, values

import logstore
from logstore.config import TopicConfig
from logstore.errors import CorruptionError

pytestmark = pytest.mark.damaged

BATCH = [(b"k%d" % number, b"%02d" % number * 20) for number in range(8)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


def write(log, batches):
    for _ in range(batches):
        log.extend(BATCH)


def make(path, batches=10, **config):
    with open_store(path) as store:
        log = store.create_topic("t", config=TopicConfig(retention_ms=-1, **config))[0]
        write(log, batches)
        return [(record.offset, record.value) for record in log.read()]


def batch_bytes(path, batches=10):
    return log_files(path / "t-0")[0].stat().st_size // batches


def flip(path, position, bit, number=0):
    with open(log_files(path / "t-0")[number], "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def read(path, start=None):
    with logstore.open(path, read_only=True) as reader:
        return [(record.offset, record.value) for record in reader["t"][0].read(start)]


def check(path, expected):
    try:
        found = read(path)
    except CorruptionError:
        return
    assert found == expected


def test_bits_of_the_last_base_offset_of_a_closed_log(path):
    expected = make(path)
    start = 9 * batch_bytes(path)
    for place in range(8):
        for bit in (0, place):
            flip(path, start + place, bit)
            with pytest.raises(CorruptionError, match=r"was durable|does not fit"):
                read(path)
            flip(path, start + place, bit)
            if not place:
                break
    assert read(path) == expected


@pytest.mark.parametrize("config", [{}, {"cleanup_policy": "compact"}], ids=["plain", "compacted"])
def test_writer_and_reader_refuse_a_closed_log_whose_last_offset_went_up(path, config):
    make(path, **config)
    flip(path, 9 * batch_bytes(path) + 6, 0)
    with pytest.raises(CorruptionError):
        read(path)
    with open_store(path) as store, pytest.raises(CorruptionError):
        list(store["t"][0].read())


def test_an_offset_out_of_the_segments_reach_does_not_make_the_writer_split_a_closed_log(path):
    """It took the segment for one of an old broker, and went on with the wrong offset."""
    make(path, 1, cleanup_policy="compact")
    flip(path, 3, 2)
    with pytest.raises(CorruptionError):
        read(path)
    with open_store(path) as store, pytest.raises(CorruptionError):
        list(store["t"][0].read())


def test_bits_of_every_base_offset_of_a_closed_log(path):
    expected = make(path)
    size = batch_bytes(path)
    for batch in (0, 4, 8, 9):
        for place, bit in ((7, 3), (6, 0), (0, 7)):
            flip(path, batch * size + place, bit)
            check(path, expected)
            flip(path, batch * size + place, bit)


def test_one_damaged_batch_leaves_all_others_to_readers_elsewhere(path):
    expected = make(path, 200, index_interval_bytes=200)
    flip(path, 3 * batch_bytes(path, 200) + 100, 2)
    with pytest.raises(CorruptionError, match="checksum"):
        read(path)
    assert read(path, 5 * len(BATCH)) == expected[5 * len(BATCH) :]
    with open_store(path) as store:
        log = store["t"][0]
        assert len(values(log, 5 * len(BATCH))) == len(expected) - 5 * len(BATCH)


def test_a_batch_above_the_recovery_point_that_does_not_follow_ends_the_log_of_a_killed_writer(path):
    store = open_store(path)
    log = store.create_topic("t")[0]
    write(log, 5)
    log.checkpoint()
    write(log, 5)
    expected = [(record.offset, record.value) for record in log.read()]
    crash(store)
    flip(path, 7 * batch_bytes(path) + 6, 1)
    found = read(path)
    assert found == expected[: 7 * len(BATCH)]
    with open_store(path) as again:
        assert [(record.offset, record.value) for record in again["t"][0].read()] == found


def test_a_segment_that_lost_its_end_ends_the_log_of_a_killed_writer(path):
    store = open_store(path)
    log = store.create_topic("t")[0]
    log.checkpoint()
    write(log, 4)
    log.roll()
    write(log, 4)
    crash(store)
    first = log_files(path / "t-0")[0]
    for file in (path / "t-0").glob("*0.*index"):
        file.unlink()
    os.truncate(first, first.stat().st_size // 4 * 3)
    with logstore.open(path, read_only=True) as reader:
        assert reader["t"][0].log_end_offset == 3 * len(BATCH)
    with open_store(path) as again:
        assert again["t"][0].log_end_offset == 3 * len(BATCH)


def test_a_log_start_behind_the_end_of_a_closed_log_is_not_believed(path):
    expected = make(path)
    (path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 5000\n")
    assert read(path) == expected


# What an open reads -----------------------------------------------------------------------------------------


def read_bytes(path, *, read_only):
    """Bytes that are read, and mapped indexes, until the log's end is known."""
    files = CountingFiles()
    with logstore.open(path, read_only=read_only, files=files) as store:
        assert store["t"][0].log_end_offset
        return files.counts["read_bytes"] + files.log_counts["read_bytes"]


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "killed"])
def test_a_read_only_open_reads_what_a_writers_open_reads(path, is_closed):
    store = open_store(path)
    log = store.create_topic("t")[0]
    value = os.urandom(4000)
    for _ in range(100):
        log.extend([value] * 16)
    log.checkpoint()
    if is_closed:
        store.close()
    else:
        log.extend([value] * 16)
        crash(store)
    reader = read_bytes(path, read_only=True)
    writer = read_bytes(path, read_only=False)
    assert log_files(path / "t-0")[0].stat().st_size > 6_000_000
    assert reader <= 2 * writer + 64 * 1024
    assert reader < 700_000


def test_beside_a_writer_only_what_is_above_the_recovery_point_is_read(path):
    with open_store(path) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=2_000_000))[0]
        value = os.urandom(4000)
        for _ in range(100):
            log.extend([value] * 16)
        log.checkpoint()
        log.extend([value] * 16)
        assert read_bytes(path, read_only=True) < 400_000


def test_damage_beside_a_writer_is_an_error_once_a_checkpoint_calls_it_durable(path):
    with open_store(path) as store:
        log = store.create_topic("t", config=TopicConfig(retention_ms=-1, index_interval_bytes=100))[0]
        write(log, 10)
        log.flush()
        flip(path, 5 * batch_bytes(path) + 70, 1)
        with logstore.open(path, read_only=True) as elsewhere:
            reader = elsewhere["t"][0]
            assert reader.log_end_offset == 40  # a power cut may have left this: nobody called it durable
            log.checkpoint()
            for each in (log, reader):
                with pytest.raises(CorruptionError) as raised:
                    values(each)
                assert raised.value.base_offset == 40
                assert [record.offset for record in each.read(48)] == [*range(48, 80)]
