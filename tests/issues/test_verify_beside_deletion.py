"""`verify()` reported segments as missing, and partitions as not opened, where a topic was deleted or the
store closed while it ran: what is gone because somebody wanted it gone is no damage.

A deleted topic is left out of its store's report, and a check of the topic itself says that there is none; a
check in a store or a log that is closed says that it is closed. The change is made at each step of the check.
Deletions between the looks of a check come through another thread here, as through another process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

import logstore
from logstore.errors import ClosedError, UnknownTopicError
from logstore.partition.checking.findings import VerifyReport
from logstore.testing import MemoryFiles

CONFIG = logstore.TopicConfig(segment_bytes=1000)


@pytest.fixture
def disk() -> MemoryFiles:
    return MemoryFiles()


def make(disk: MemoryFiles) -> logstore.Store:
    store = logstore.open("/s", files=disk)
    for name in ("a", "b"):
        for log in store.create_topic(name, partitions=2, config=CONFIG):
            for _ in range(30):
                log.extend([b"v" * 100])
    store.flush()
    return store


Verify = Callable[..., VerifyReport]


def verify_during(verify: Verify, change: Callable[[], object], step: int) -> tuple[bool, VerifyReport | str]:
    """Make the change after so many steps of the check; whether it came to that, and what came of the
    check."""
    steps = itertools.count(1)
    made = []

    def on_progress(progress: object) -> None:
        if next(steps) == step:
            made.append(change())

    try:
        return bool(made), verify(on_progress=on_progress)
    except (ClosedError, UnknownTopicError) as error:
        return bool(made), type(error).__name__


STEPS = [1, 2, 5, 9, 10, 13]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_reader", [False, True])
def test_a_topic_that_is_deleted_meanwhile_is_left_out(disk: MemoryFiles, step: int, is_reader: bool) -> None:
    writer = make(disk)
    store = logstore.open("/s", files=disk, read_only=True) if is_reader else writer
    _, report = verify_during(store.verify, lambda: writer.delete_topic("a"), step)
    assert isinstance(report, VerifyReport)
    assert report, report
    assert report.partition_count in {2, 3, 4}  # what was checked before it went is counted
    assert store.verify().partition_count == 2
    store.close()
    writer.close()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_reader", [False, True])
def test_a_topic_that_is_deleted_and_made_anew_meanwhile(
    disk: MemoryFiles, step: int, is_reader: bool
) -> None:
    writer = make(disk)
    store = logstore.open("/s", files=disk, read_only=True) if is_reader else writer

    def change() -> None:
        writer.delete_topic("a")
        writer.create_topic("a", partitions=1).extend([b"new"])

    _, report = verify_during(store.verify, change, step)
    assert isinstance(report, VerifyReport)
    assert report, report
    store.close()
    writer.close()


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_check_of_a_topic_that_is_deleted_meanwhile(disk: MemoryFiles, step: int) -> None:
    with make(disk) as store:
        topic = store["a"]
        _, report = verify_during(topic.verify, lambda: store.delete_topic("a"), step)
        assert report == "UnknownTopicError" or report


@pytest.mark.parametrize("step", STEPS)
def test_a_store_that_is_closed_meanwhile(disk: MemoryFiles, step: int) -> None:
    store = make(disk)
    _, report = verify_during(store.verify, store.close, step)
    assert report == "ClosedError"


@pytest.mark.parametrize("step", STEPS[:3])
def test_a_log_whose_topic_is_deleted_meanwhile(disk: MemoryFiles, step: int) -> None:
    with make(disk) as store:
        log = store["a"][0]
        _, report = verify_during(log.verify, lambda: store.delete_topic("a"), step)
        assert report == "ClosedError" or report


def test_a_log_of_a_reader_whose_topic_was_deleted(disk: MemoryFiles) -> None:
    with make(disk) as writer, logstore.open("/s", files=disk, read_only=True) as store:
        log = store["a"][0]
        writer.delete_topic("a")
        with pytest.raises(UnknownTopicError):
            log.verify()


@pytest.mark.parametrize("step", STEPS)
def test_a_partition_that_is_opened_again_meanwhile(disk: MemoryFiles, step: int) -> None:
    with make(disk) as store:
        topic = store["a"]
        _, report = verify_during(store.verify, lambda: topic.reopen(0), step)
        assert isinstance(report, VerifyReport)
        assert report, report


def test_topics_that_come_and_go_all_the_time(disk: MemoryFiles) -> None:
    """In threads: nothing is chosen here."""
    store = make(disk)
    reader = logstore.open("/s", files=disk, read_only=True)
    has_ended = threading.Event()

    def come_and_go() -> None:
        for number in range(25):
            name = f"passing-{number % 3}"
            store.require_topic(name, config=CONFIG).extend([b"v" * 100] * 5)
            if number % 2:
                store.delete_topic(name)
        has_ended.set()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        while not has_ended.is_set():
            for each in (store, reader):
                report = each.verify()
                assert report, report
    finally:
        thread.join()
        reader.close()
        store.close()
