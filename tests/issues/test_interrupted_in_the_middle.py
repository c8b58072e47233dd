"""Ctrl-C between two lines of ours could leave a lock held or a place in line taken for ever: where a context
manager written in Python was about to release the log's lock, where a flush was about to hand over to the
next thread, where closing was about to give the directory free, and where a partition was opened again."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore.config import StoreConfig
from logstore.errors import ReopenRequiredError
from logstore.partition.log import Log
from logstore.partition.recovery import loader
from logstore.partition.state import home
from logstore.partition.writing import group_commit, guard
from logstore.testing import ManualClock, MemoryFiles


class Once:
    """Stands in front of a function, and is interrupted the first time."""

    def __init__(self, function):
        self._function = function
        self.has_struck = False

    def __get__(self, instance, owner):
        return lambda *arguments: self(instance, *arguments)

    def __call__(self, *arguments):
        if not self.has_struck:
            self.has_struck = True
            raise KeyboardInterrupt
        return self._function(*arguments)


def open_log(files, linger_ms=0):
    return Log.open("/t-0", files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=linger_ms))


def in_another_thread(action):
    found = []
    thread = threading.Thread(target=lambda: found.append(action()), daemon=True)
    thread.start()
    thread.join(5)
    assert found, "the other thread waits for ever"
    return found[0]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (guard.Guard, "__enter__"),
        (guard.Guard, "__exit__"),
        (group_commit.GroupCommit, "_leave"),
        (group_commit.GroupCommit, "_hand_over_locked"),
    ],
)
def test_an_interrupted_flush_leaves_no_lock(monkeypatch, owner, name):
    log = open_log(MemoryFiles(), linger_ms=1_000)
    log.append(b"a")  # it gathers: the flush writes it first
    monkeypatch.setattr(owner, name, Once(getattr(owner, name)))
    with pytest.raises(KeyboardInterrupt):
        log.flush()
    assert in_another_thread(lambda: log.extend([b"b"], flush=True)) == range(1, 2)


def test_an_interrupted_close_can_be_finished(monkeypatch):
    files = MemoryFiles()
    log = open_log(files)
    log.extend([b"a"])
    monkeypatch.setattr(home.LogHome, "release", Once(home.LogHome.release))
    with pytest.raises(KeyboardInterrupt):
        log.close()
    log.close()
    assert [record.value for record in open_log(files).read()] == [b"a"]


def test_a_partition_whose_reopening_was_interrupted_says_so(monkeypatch):
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        topic = store.create_topic("t")
        topic[0].extend([b"a"])
        with monkeypatch.context() as patch:
            patch.setattr(loader.Loader, "load", Once(loader.Loader.load))
            with pytest.raises(KeyboardInterrupt):
                topic.reopen(0)
        with pytest.raises(ReopenRequiredError, match="must be reopened"):
            topic[0].extend([b"b"])
        assert [record.value for record in topic.reopen(0).read()] == [b"a"]
