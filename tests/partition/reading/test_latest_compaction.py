"""The table view beside compaction: whenever that runs, before, between the passes or in the middle of one, a
key has its latest record below the end offset; or none, if that is gone because there is a later one."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager

import pytest

from logstore.model import Isolation, NewRecord
from logstore.partition.reading import latest
from tests.partition.helpers_compaction import RETENTION_MS, end, open_compacted, put, transact
from tests.partition.helpers_rules import bases_of, run_background

SMALL = latest.LEAST_MAP_BYTES


@pytest.fixture(params=["runs", "batch by batch"], autouse=True)
def way(request, monkeypatch):
    if request.param == "batch by batch":
        monkeypatch.setattr(latest, "put_run", None)
        monkeypatch.setattr(latest, "latest_run", None)


def table(view):
    return {record.key.decode(): record.value.decode() for record in view}


def compact(log):
    """A round, after which nothing is left of the files that it replaced."""
    log.compact(now=True)
    log.writer.core.forget_files()
    run_background(log)


def forget_everything(view):
    """As if the files had been closed for the sake of others."""
    for segment in view.segments:
        segment.forget_files()


@contextmanager
def meanwhile(at, action):
    """Do something in front of the read of segment number ``at``, counted through all passes."""
    plain, count = latest.segment_runs, itertools.count()

    def acting(view, *arguments):
        if next(count) == at:
            action()
            forget_everything(view)
        return plain(view, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest, "segment_runs", acting)
        yield


def test_before_and_after_compaction_the_table_is_the_same(tmp_path):
    log = open_compacted(tmp_path / "t-0")
    put(log, a="1", b="1", c="1")
    log.roll()
    put(log, a="2", b=None)
    before = list(log.latest())
    compact(log)
    assert len(list(log.read())) == 3
    assert list(log.latest()) == before
    log._context.clock.advance(2 * RETENTION_MS)
    put(log, d="1")
    compact(log)  # the tombstone goes
    assert table(log.latest()) == {"a": "2", "c": "1", "d": "1"}


@pytest.mark.parametrize("at", range(9))
def test_a_tombstone_that_expires_meanwhile_brings_nothing_back(tmp_path, at):
    log = open_compacted(tmp_path / "t-0")
    put(log, a="old", b="1")
    log.roll()
    put(log, a=None, c="1")
    log.roll()
    put(log, d="1")

    def expire():
        for _ in range(2):
            compact(log)
            log._context.clock.advance(2 * RETENTION_MS)
            log.append(b"%d" % log.log_end_offset, key=b"later")

    with meanwhile(at, expire):
        assert table(log.latest()) == {"b": "1", "c": "1", "d": "1"}


@pytest.mark.parametrize("at", range(9))
def test_a_key_that_was_written_anew_behind_the_end_has_its_value_or_none(tmp_path, at):
    log = open_compacted(tmp_path / "t-0", segment_bytes=300)
    put(log, a="old", b="1")
    log.roll()
    put(log, a="new", c="1")
    log.roll()
    put(log, d="1")
    view = log.latest()

    def supersede():
        put(log, a="newest")
        compact(log)

    with meanwhile(at, supersede):
        found = table(view)
    assert found.pop("a", "new") == "new"
    assert found == {"b": "1", "c": "1", "d": "1"}
    followed = [record.value for record in log.follow(view.end_offset, timeout=0)]
    assert followed == ([b"newest"] if bases_of(log)[0] == 0 and at < 6 else [])


def history(log, chance, count, last):
    """Random batches. ``last`` notes key -> (offset, value) of what is not aborted."""
    for _ in range(count):
        keys = [b"key %d" % chance.randrange(25) for _ in range(chance.randrange(1, 9))]
        rows = [
            NewRecord(None if chance.random() < 0.3 else b"%d" % chance.randrange(1000), key) for key in keys
        ]
        offsets = log.extend(rows)
        last.update({row.key: (offset, row.value) for row, offset in zip(rows, offsets, strict=True)})
        if chance.random() < 0.3:
            log.roll()


@pytest.mark.parametrize("map_bytes", [SMALL, None])
@pytest.mark.parametrize("seed", range(25))
def test_whenever_compaction_runs_no_value_is_wrong(tmp_path, seed, map_bytes):
    chance, last = random.Random(seed), {}
    log = open_compacted(tmp_path / "t-0", segment_bytes=chance.choice((400, 2000, 2**20)))
    history(log, chance, 40, last)
    if chance.random() < 0.5:
        compact(log)
        history(log, chance, 20, last)
    view = log.latest(map_bytes=map_bytes)
    expected = {key: offset for key, (offset, value) in last.items() if value is not None}

    def change():
        history(log, chance, chance.randrange(20), last)
        log._context.clock.advance(chance.choice((0, 2 * RETENTION_MS)))
        compact(log)

    with meanwhile(chance.randrange(len(view._view.segments) * 2 + 1), change):
        found = {record.key: record.offset for record in view}
    assert found.items() <= expected.items()
    missed = expected.keys() - found.keys()
    assert all(last[key][0] >= view.end_offset for key in missed)
    assert {record.key: record.offset for record in log.latest()} == {
        key: offset for key, (offset, value) in last.items() if value is not None
    }


def test_aborted_records_count_neither_before_nor_after_compaction(tmp_path):
    log = open_compacted(tmp_path / "t-0")
    put(log, a="1", b="1")
    transact(log, 1, 0, a="wrong", b=None, c="wrong")
    end(log, 1, committed=False)
    transact(log, 2, 0, b="2")
    end(log, 2, committed=True)
    log.roll()
    put(log, d="1")
    for _ in range(3):
        for isolation in (Isolation.LOG_END, Isolation.COMMITTED):
            assert table(log.latest(isolation=isolation)) == {"a": "1", "b": "2", "d": "1"}
        compact(log)
        log._context.clock.advance(2 * RETENTION_MS)


@pytest.mark.parametrize("times", [1, 2])
def test_a_reader_of_what_was_the_active_segment_finds_it_when_it_was_compacted(tmp_path, times):
    """Its descriptor was given up meanwhile, and another file has its name."""
    log = open_compacted(tmp_path / "t-0", file_delete_delay_ms=10**9)
    put(log, z="1")
    log.roll()
    put(log, a="1", b="1")
    put(log, a="2")
    expected, reading, view = list(log.read()), log.read(), log.latest()
    active = log._current_view().segments[-1]
    for number in range(times):
        put(log, a=f"{number}", c="1")
        log.compact(now=True)
    active.forget_files()
    if times == 1:
        assert list(reading) == expected
    assert {record.offset for record in view} <= {0, 2, 3}
