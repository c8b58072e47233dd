"""One change of the store amid a backup, at each moment at which there can be one: the backup has the state
before the change or behind it, and nothing that comes later reaches it."""

from __future__ import annotations

import itertools

import pytest

from logstore import TopicConfig
from logstore.testing import MemoryFiles
from tests.backup.helpers import contents, fill, open_store
from tests.rotation import rotating


def truncate(store):
    store["orders"][0].truncate_to(9)  # into a sealed segment


def truncate_last(store):
    log = store["orders"][0]
    log.truncate_to(log.log_end_offset - 1)
    log.extend([(b"key", b"other" * 20)])


def start_over(store):
    store["orders"][0].truncate_fully_and_start_at(2)
    fill(store["orders"][0], 3)


def delete_front(store):
    store["orders"][0].delete_before(14)
    store.run_background()  # the files go at once


def roll(store):
    store["orders"][0].roll()
    fill(store["orders"][0], 12)


def compact(store):
    store["latest"].compact(now=True)
    store.run_background()


def erase(store):
    store["orders"][0].erase(offsets=[1, 13])


def delete_topic(store):
    store.delete_topic("orders")
    store.run_background()


def recreate_topic(store):
    delete_topic(store)
    fill(store.create_topic("orders")[0], 4)


def create_topic(store):
    fill(store.create_topic("new")[0], 2)


def reopen(store):
    store["orders"].reopen(0)


def let_go(store):
    store["many"].let_go(1)


def configure(store):
    store["orders"].configure(retention_ms=123_456)


CHANGES = [
    truncate,
    truncate_last,
    start_over,
    delete_front,
    roll,
    compact,
    erase,
    delete_topic,
    recreate_topic,
    create_topic,
    reopen,
    let_go,
    configure,
]


def prepared(*, has_earlier):
    files = MemoryFiles()
    with open_store("/data", files) as store:
        fill(store.create_topic("orders")[0], 20)
        fill(store.create_topic("many", partitions=2)[1], 2)
        latest = TopicConfig(cleanup_policy="compact", segment_bytes=400, file_delete_delay_ms=0)
        fill(store.create_topic("latest", config=latest)[0], 30)
        if has_earlier:
            store.backup("/backup")
            fill(store["orders"][0], 5)
            fill(store["latest"][0], 5)
    return files.now()


def logs_in(found):
    return {(name, number): log for name, entry in found.items() for number, log in entry[3].items()}


def backup_bytes(files):
    return {path: data for path, data in files.now().paths().items() if path.startswith("/backup/")}


@pytest.mark.parametrize("has_earlier", [False, True])
@pytest.mark.parametrize("change", rotating(CHANGES, 8))
def test_a_change_at_each_moment(change, has_earlier):
    image = prepared(has_earlier=has_earlier)
    for at in itertools.count(1):
        files = MemoryFiles(image)
        calls = itertools.count(1)
        with open_store("/data", files) as store:
            before = contents(store)

            def amid(progress, store=store, calls=calls, at=at):
                if next(calls) == at:
                    change(store)

            store.backup("/backup", on_progress=amid)
            if next(calls) <= at:
                break  # it has no such moment
            after = contents(store)
            check(files, before, after)
            kept = backup_bytes(files)
            for topic in store.values():
                for log in topic:
                    fill(log, 3)
                    log.truncate_to(max(log.log_start_offset, log.log_end_offset - 12))
                    fill(log, 3)
            assert backup_bytes(files) == kept
            assert store.verify()
        with open_store("/backup", files) as copy:
            for topic in copy.values():
                for log in topic:
                    log.truncate_to((log.log_start_offset + log.log_end_offset) // 2)
                    fill(log, 3)
            assert copy.verify()
    assert at > 5


def check(files, before, after):
    with open_store("/backup", files, read_only=True) as copy:
        assert copy.verify()
        found = contents(copy)
    old, new = logs_in(before), logs_in(after)
    assert logs_in(found).keys() <= old.keys()
    assert logs_in(found).keys() >= old.keys() & new.keys() or before["orders"][0] != after["orders"][0]
    for name, log in logs_in(found).items():
        assert log in (old[name], new.get(name))
    for name, entry in found.items():
        assert entry[:2] in (before[name][:2], after.get(name, before[name])[:2])
    assert files.list_directory("/")[0].name == "backup"
