"""A range that one process has found and another reads: only its files are opened, and what was replaced,
cut, deleted or damaged meanwhile is never passed over in silence."""

from __future__ import annotations

import os
import pickle

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import CorruptionError, OffsetOutOfRangeError, UnknownTopicError
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.reading import arrow
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog
from tests.logdir.helpers import CountingFiles, open_store

PLAN = arrow.plan_columns(["offset", "value"], 100, 1 << 20)
SMALL = TopicConfig(segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=0, retention_ms=-1)


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("t", config=SMALL)
        yield opened


@pytest.fixture
def log(store):
    return store["t"][0]


def add(log, batches, count=5):
    for _ in range(batches):
        first = log.log_end_offset
        log.extend([b"%d" % offset for offset in range(first, first + count)])


def pin(store, start, stop, isolation=Isolation.HIGH_WATERMARK):
    with logstore.open(store.path, read_only=True) as reader:
        return pickle.loads(pickle.dumps(reader["t"][0].pin(start, stop, isolation=isolation)))


def reader_of(store, pinned, on_damage=None, files=None):
    return PinnedReader(
        pinned,
        make_context(store.path, files=files),
        lambda position: pin(store, position, pinned.stop, pinned.isolation),
        on_damage,
    )


def offsets(store, pinned, on_damage=None, files=None):
    """What a reader gives; the values say the same."""
    found = []
    for batch in reader_of(store, pinned, on_damage, files).columns(PLAN):
        rows = batch.to_pydict()
        assert rows["value"] == [b"%d" % offset for offset in rows["offset"]]
        found += rows["offset"]
    return found


def flip(log, offset):
    """Damage the last byte of the batch that holds an offset."""
    fetched = log.fetch(offset, max_bytes=1)
    at = next(
        path
        for path in sorted(os.listdir(log.directory), reverse=True)
        if path.endswith(".log") and int(path[:-4]) <= offset
    )
    path = f"{log.directory}/{at}"
    with open(path, "r+b") as file:
        position = file.read().index(fetched.data) + len(fetched.data) - 1
        file.seek(position)
        file.write(bytes([fetched.data[-1] ^ 1]))
    return path


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 500), (3, 4), (120, 380), (250, 500), (497, 500), (0, 1), (7, 7)]
)
def test_the_rows_are_those_of_the_range(store, log, start, stop):
    add(log, 100)
    assert log.segment_count > 3
    assert offsets(store, pin(store, start, stop)) == list(range(start, stop))


def test_a_range_that_is_not_there_is_refused(store, log):
    add(log, 100)
    log.delete_before(100)
    for start, stop in ((50, 200), (100, 501), (300, 200)):
        with pytest.raises(OffsetOutOfRangeError, match=f"offsets {start} to {stop}"):
            pin(store, start, stop)


def test_only_the_files_of_the_range_are_opened_and_the_end_is_not_checked(store, log, monkeypatch):
    add(log, 100)
    pinned = pin(store, 120, 130)
    monkeypatch.setattr(ReadOnlyLog, "__init__", None)
    files = CountingFiles()
    assert offsets(store, pinned, files=files) == list(range(120, 130))
    assert files.counts["opens"] <= 3  # a segment's log and its indexes
    assert files.counts["lists"] == 0
    assert files.log_counts["read_bytes"] < 1_500


def test_the_aborted_are_left_out(store, log):
    for producer, kind in ((1, True), (2, False)):
        for sequence in range(0, 400, 5):
            identity = ProducerIdentity(producer, 0, sequence, transactional=True)
            log.extend([b"%d" % (log.log_end_offset + i) for i in range(5)], producer=identity)
        log.append_end_marker(producer, 0, committed=kind, coordinator_epoch=0)
    pinned = pin(store, 0, log.last_stable_offset, Isolation.COMMITTED)
    with logstore.open(store.path, read_only=True) as reader:
        expected = [record.offset for record in reader["t"][0].read(isolation=Isolation.COMMITTED)]
    assert offsets(store, pinned) == expected
    assert len(expected) == 400


# Meanwhile --------------------------------------------------------------------------------------------------


def test_what_is_appended_meanwhile_changes_nothing(store, log):
    add(log, 100)
    pinned = pin(store, 0, 500)
    add(log, 100)
    assert offsets(store, pinned) == list(range(500))


def test_a_segment_that_compaction_replaced_is_read_from_its_place(tmp_path):
    config = TopicConfig(segment_bytes=4_000, cleanup_policy="compact", file_delete_delay_ms=0)
    with open_store(tmp_path / "store") as store:
        log = store.create_topic("t", config=config)[0]
        for offset in range(500):
            log.append(b"%d" % offset, key=b"%d" % (offset % 7))
        log.flush()
        pinned = pin(store, 0, 500)
        log.compact(now=True)
        found = offsets(store, pinned)
        assert found == [record.offset for record in log.read()]
        assert len(found) < 300


def test_what_retention_took_is_an_error_that_says_what_is_there(store, log):
    add(log, 100)
    pinned = pin(store, 0, 500)
    log.delete_before(300)
    store.enforce_retention()
    with pytest.raises(OffsetOutOfRangeError, match="offsets 0 to 500 are not within what can be read"):
        offsets(store, pinned)


def test_a_log_that_was_cut_and_grew_again_is_not_taken_for_the_old_one(store, log):
    add(log, 100)
    pinned = pin(store, 480, 500)
    log.truncate_to(490)
    with pytest.raises(OffsetOutOfRangeError):
        offsets(store, pinned)
    add(log, 5)
    found = offsets(store, pinned)  # others of the same offsets: what the log has now
    assert found == list(range(480, 500))


def test_a_topic_that_was_deleted_and_made_again_is_another_one(store, log):
    add(log, 100)
    pinned = pin(store, 0, 500)
    store.delete_topic("t")
    store.run_background()
    with pytest.raises(UnknownTopicError):
        offsets(store, pinned)
    add(store.create_topic("t", config=SMALL)[0], 100)
    with pytest.raises(UnknownTopicError, match="a new topic with its name"):
        offsets(store, pinned)


# Damage -----------------------------------------------------------------------------------------------------


@pytest.mark.damaged
@pytest.mark.parametrize("offset", [0, 123, 498])
def test_a_damaged_batch_is_an_error_behind_what_is_before_it(store, log, offset):
    add(log, 100)
    pinned = pin(store, 0, 500)
    path = flip(log, offset)
    batches = []
    with pytest.raises(CorruptionError) as caught:
        batches.extend(reader_of(store, pinned).columns(PLAN))
    found = [each for batch in batches for each in batch.to_pydict()["offset"]]
    assert caught.value.path == path
    assert found == list(range(offset - offset % 5))


@pytest.mark.damaged
def test_damaged_batches_are_passed_over_and_told_where_that_is_asked_for(store, log):
    add(log, 100)
    for offset in (0, 120, 125, 301):
        flip(log, offset)
    pinned = pin(store, 2, 499)
    flip(log, 498)
    told = []
    found = offsets(store, pinned, told.append)
    lost = {*range(5), *range(120, 130), *range(300, 305), *range(495, 500)}
    assert found == [offset for offset in range(2, 499) if offset not in lost]
    assert [(damage.start, damage.stop) for damage in told] == [
        (2, 5),
        (120, 125),
        (125, 130),
        (300, 305),
        (495, 499),
    ]


@pytest.mark.damaged
def test_a_batch_whose_size_is_damaged_takes_those_up_to_the_next_index_entry_with_it(store, log):
    add(log, 100)
    log.checkpoint()  # with the producers, for which a reader would else read the segments
    path = f"{log.directory}/{0:020}.log"
    with open(path, "r+b") as file:
        position = file.read().index(log.fetch(20, max_bytes=1).data)
        file.seek(position + 8)
        file.write(b"\x7f\xff\xff\xff")
    pinned = pin(store, 0, 500)
    told = []
    found = offsets(store, pinned, told.append)
    assert len(told) == 1
    assert told[0].start == 20
    assert 25 <= told[0].stop <= 40
    assert found == [*range(20), *range(told[0].stop, 500)]


@pytest.mark.damaged
def test_a_segment_that_is_damaged_to_its_end_is_passed_over(store, log):
    add(log, 100)
    log.checkpoint()  # with the producers, for which a reader would else read the segments
    bases = [int(name[:-4]) for name in sorted(os.listdir(log.directory)) if name.endswith(".log")]
    with open(f"{log.directory}/{bases[1]:020}.log", "r+b") as file:
        size = file.seek(0, 2)
        file.seek(0)
        file.write(b"\xff" * size)
    pinned = pin(store, 0, 500)
    told = []
    assert offsets(store, pinned, told.append) == [*range(bases[1]), *range(bases[2], 500)]
    assert [(damage.start, damage.stop) for damage in told] == [(bases[1], bases[2])]


@pytest.mark.damaged
@pytest.mark.parametrize("offset", [0, 10, 290, 295])
def test_damage_at_the_end_of_a_log_that_was_flushed_is_passed_over_too(tmp_path, offset):
    path = tmp_path / "one"
    with open_store(path) as store:
        log = store.create_topic("t", config=TopicConfig(index_interval_bytes=300, retention_ms=-1))[0]
        add(log, 60)
    with logstore.open(path, read_only=True) as store:
        log = store["t"][0]
        flip(log, offset)
    with logstore.open(path, read_only=True) as store:
        log = store["t"][0]
        is_near_end = offset >= 290  # else nobody reads there before he is asked to
        with pytest.raises(
            CorruptionError, match="data up to offset 300 was durable" if is_near_end else "checksum"
        ):
            list(log.read())
        log.passes_damage = True
        last = 295 if offset == 295 else 300
        assert log.log_end_offset == last
        told = []
        found = offsets(store, log.pin(0, last), told.append)
    assert found == [each for each in range(last) if not offset <= each < offset + 5]
    assert [(damage.start, damage.stop) for damage in told] == [(offset, offset + 5)] * (offset != 295)
