"""Logs that are opened when somebody asks for them: for who changes a few partitions among thousands."""

from __future__ import annotations

import random

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError, LogstoreError, StorageError, UnknownTopicError
from logstore.files import read_whole_file, write_small_file
from logstore.logdir import open_logs
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.store import store_of
from logstore.testing import ManualClock, MemoryFiles
from tests.logdir.helpers import note_opened

PATH = "/store"
CONFIG = StoreConfig(linger_ms=0, log_cleaner_enable=False)


def open_when_asked(files, clock=None):
    return store_of(
        lambda: LogDirectory(
            PATH, files=files, clock=clock or ManualClock(), config=CONFIG, opens_when_asked=True
        )
    )


def open_all(files):
    return logstore.open(PATH, files=files, clock=ManualClock(), config=CONFIG)


def values(store):
    return {log.partition: [record.value for record in log.read()] for name in store for log in store[name]}


@pytest.fixture
def files():
    files = MemoryFiles()
    with open_all(files) as store:
        for log in store.create_topic("t", partitions=9):
            log.append(b"%d" % log.partition.partition)
    return files


@pytest.fixture
def opened(monkeypatch):
    return note_opened(monkeypatch)


def test_only_those_are_opened_that_are_asked_for(files, opened):
    with open_when_asked(files) as store:
        assert opened == []
        store["t"][3].append(b"more")
        assert store["t"][3] is store["t"][3]
        assert [record.value for record in store["t"][5].read()] == [b"5"]
    assert opened == ["t-3", "t-5"]
    with open_all(files) as store:
        assert store.was_clean
        assert values(store)[TopicPartition("t", 3)] == [b"3", b"more"]
        assert values(store)[TopicPartition("t", 7)] == [b"7"]


def test_after_a_crash_all_are_opened(files, opened):
    store = open_when_asked(files)
    store["t"][3].append(b"more")
    store.directory.abandon()
    opened.clear()
    with open_when_asked(files) as store:
        assert len(opened) == 9
        assert not store.was_clean
        assert values(store)[TopicPartition("t", 3)] == [b"3", b"more"]


def test_what_is_not_there_is_not_opened(files):
    with open_when_asked(files) as store, pytest.raises(UnknownTopicError, match="no partition t-9"):
        store.directory.log(TopicPartition("t", 9))


@pytest.mark.damaged
def test_damage_is_told_by_whom_it_concerns_and_by_the_next_open(files):
    path = f"{PATH}/t-4/00000000000000000000.log"
    files.open(path, write=True).write_at(20, [b"wrong"])
    with open_when_asked(files) as store:
        store["t"][3].append(b"more")
        assert store.damaged == {}
    with open_when_asked(files) as store:
        for _ in range(2):
            with pytest.raises(CorruptionError, match="t-4"):
                store["t"][4].append(b"more")
        assert list(store.damaged) == [TopicPartition("t", 4)]
    with open_all(files) as store:
        assert not store.was_clean
        assert list(store.damaged) == [TopicPartition("t", 4)]


def test_what_could_not_be_reopened_is_not_opened_as_if_nothing_had_been(files, monkeypatch):
    def refuse(*_, **__):
        raise StorageError(5, "no", PATH)

    with open_when_asked(files) as store:
        with monkeypatch.context() as patch:
            patch.setattr(open_logs, "open_log", refuse)
            with pytest.raises(StorageError):
                store["t"].reopen(4)
        with pytest.raises(StorageError):
            store["t"][4].append(b"more")
        store["t"].reopen(4)
        store["t"][4].append(b"more")


def test_a_log_without_a_recovery_point_gets_one_before_anything_is_appended(files):
    path = f"{PATH}/recovery-point-offset-checkpoint"
    whole = read_whole_file(files, path)
    write_small_file(files, path, whole.replace(b"t 4 1\n", b"").replace(b"\n9\n", b"\n8\n"))
    with open_when_asked(files) as store:
        assert b"t 4" not in read_whole_file(files, path)
        assert store["t"][4].log_end_offset == 1
        assert read_whole_file(files, path) == whole


def test_it_makes_no_difference(monkeypatch):
    """The same changes, chosen by chance, in a store that opens all and in one that opens what is asked for.
    1.5 s."""
    for seed in range(25):
        stores = [_after_changes(seed, opens) for opens in (open_all, open_when_asked)]
        assert stores[0] == stores[1], seed


def _after_changes(seed, opens):
    chance, files = random.Random(seed), MemoryFiles()
    with open_all(files) as store:
        for name in "abc":
            store.create_topic(name, partitions=4)
    found = []
    for _ in range(4):
        store = opens(files)
        for _ in range(8):
            _change(store, chance)
            found.append(_ask(store, TopicPartition(chance.choice("abcd"), chance.randrange(8))))
        if chance.random() < 0.3:
            store.flush()
            store.directory.abandon()
        else:
            store.close()
    with open_all(files) as store:
        assert store.damaged == {}
        settings = {name: (len(store[name]), store[name].config) for name in store}
        ends = {
            log.partition: (log.log_start_offset, log.high_watermark) for n in settings for log in store[n]
        }
        return found, store.was_clean, settings, ends, values(store)


def _ask(store, partition):
    try:
        return store.directory.log(partition).log_end_offset
    except LogstoreError as error:
        return str(error)


def _change(store, chance):
    kind, name = chance.random(), chance.choice("abc")
    if name not in store:
        store.create_topic(name, partitions=chance.randrange(1, 6))
    topic = store[name]
    number = chance.randrange(len(topic))
    if kind < 0.5:
        topic[number].extend([b"%d" % chance.randrange(100)] * chance.randrange(1, 4))
    elif kind < 0.6:
        topic.reopen(number)
    elif kind < 0.7:
        topic[number].delete_before(topic[number].log_end_offset // 2)
    elif kind < 0.8:
        topic.add_partitions(len(topic) + 1)
    elif kind < 0.9:
        topic.configure(TopicConfig(retention_ms=chance.randrange(10**6, 10**7)))
    elif kind < 0.95:
        store.delete_topic(name)
    else:
        store.checkpoint()
