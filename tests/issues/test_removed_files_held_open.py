"""Files that were removed stayed open in the cache of open segments, so the disk did not free them: up to 256
segments of a process's life long, whatever retention, truncations and deletions of topics had removed, in the
writer and in every process that had read them. What an erasure had removed stayed on the disk, too. And a
reader of a deleted topic took the files of a new one of its name for those that it had not yet opened."""

import contextlib
import gc
import os

import pytest

import logstore
from logstore import TopicConfig
from logstore.errors import ClosedError, UnknownTopicError
from logstore.testing import ManualClock

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at descriptors in /proc")

CONFIG = TopicConfig(segment_bytes=1000, file_delete_delay_ms=0)


def held(path):
    """The removed files below a path that this process has open or mapped."""
    gc.collect()
    with open("/proc/self/maps") as file:
        names = [line.split(None, 5)[-1].strip() for line in file]
    for number in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return sorted({name for name in names if name.startswith(str(path)) and name.endswith("(deleted)")})


def fill(log, text=b"value"):
    for number in range(40):
        log.extend([(b"key %d" % number, text * 60)])
    assert log.segment_count > 8


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path, clock=ManualClock()) as store:
        fill(store.create_topic("t", config=CONFIG)[0])
        yield store


@pytest.fixture
def reader(store):
    with logstore.open(store.path, read_only=True, clock=ManualClock()) as reader:
        yield reader


REMOVALS = {
    "retention": lambda store: (store["t"].configure(retention_bytes=1000), store.enforce_retention()),
    "delete_before": lambda store: store["t"][0].delete_before(30),
    "truncate_to": lambda store: store["t"][0].truncate_to(5),
    "truncate_fully": lambda store: store["t"][0].truncate_fully_and_start_at(7),
    "erase": lambda store: store["t"].erase(keys=[b"key 3", b"key 17"]),
    "delete_topic": lambda store: store.delete_topic("t"),
}


@pytest.mark.parametrize("action", REMOVALS.values(), ids=REMOVALS)
def test_the_writer_lets_go_of_what_it_removes(store, action):
    log = store["t"][0]
    assert len(list(log)) == 40
    action(store)
    store.run_background()
    assert held(store.path) == []
    assert log is not None


def test_an_idle_log_that_was_opened_after_a_clean_stop_lets_go(store):
    store.close()
    with logstore.open(store.path, clock=ManualClock()) as again:
        log = again["t"][0]
        assert len(list(log)) == 40
        log.delete_before(30)
        again.run_background()
        assert held(store.path) == []


@pytest.mark.parametrize("action", REMOVALS.values(), ids=REMOVALS)
def test_a_reader_elsewhere_lets_go_when_it_looks_again(store, reader, action):
    log = reader["t"][0]
    assert len(list(log)) == 40
    action(store)
    store.run_background()
    with contextlib.suppress(UnknownTopicError):
        assert log.log_end_offset > 0
    assert held(store.path) == []


def test_a_reader_elsewhere_lets_go_of_a_topic_that_is_deleted(store, reader):
    assert len(list(reader["t"][0])) == 40
    store.delete_topic("t")
    store.run_background()
    assert list(reader) == []
    assert held(store.path) == []


def test_a_closed_reader_has_nothing_open(store, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    reader = logstore.open(tmp_path, read_only=True)
    log = reader["t"][0]
    assert len(list(log)) == 40
    reader.close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before  # another thread of the run may close its own
    assert log.is_closed


def test_an_iterator_under_way_reads_what_it_has_open_to_its_end(store):
    log = store["t"][0]
    records = log.read()
    assert next(records).offset == 0
    log.delete_before(2)
    assert [record.offset for record in records][-1] == 39
    store.run_background()
    assert held(store.path) == []


def test_a_reader_of_a_deleted_topic_gets_nothing_of_a_new_one(store):
    records = store["t"][0].read()
    assert next(records).value.startswith(b"value")
    store.delete_topic("t")
    fill(store.create_topic("t", config=CONFIG)[0], b"other")
    seen = []
    with pytest.raises(ClosedError):
        seen.extend(records)
    assert all(record.value.startswith(b"value") for record in seen)


def test_a_flush_of_a_topic_that_is_deleted_meanwhile_is_told_so(store):
    log = store["t"][0]
    log.extend([b"unflushed"])
    plan = log.writer.durability._plan_flush_locked()
    store.delete_topic("t")
    with pytest.raises(ClosedError):
        log.writer.durability.flush_files(plan)
