"""Readers beside compaction, erasures and retention: at every step of those, in every way of reading, by the
writer's own threads and by readers that open the directory themselves.

Nothing runs at the same time here: a reader gets its turn at each operation of the writer on a file, or the
writer at each operation of the reader.
"""

from __future__ import annotations

import itertools

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import OffsetOutOfRangeError
from logstore.model import Isolation, NewRecord
from tests.logdir.helpers import QuickFiles, open_store
from tests.partition.helpers_readers import WAYS, Truth, ways_that_can
from tests.partition.helpers_rules import identity
from tests.rotation import rotating

RETENTION_MS = 1000
COMPACTED = TopicConfig(
    cleanup_policy="compact,delete",
    segment_bytes=500,
    delete_retention_ms=RETENTION_MS,
    file_delete_delay_ms=0,
    retention_ms=-1,
)


class SteppedFiles(QuickFiles):
    """Calls back before and after each operation of a kind."""

    def __init__(self):
        self.step = lambda: None
        self._is_stepping = False

    def _around(self, action):
        self._stepping()
        try:
            return action()
        finally:
            self._stepping()

    def _stepping(self):
        if not self._is_stepping:
            self._is_stepping = True
            try:
                self.step()
            finally:
                self._is_stepping = False


class SteppedChanges(SteppedFiles):
    """... that changes names."""

    def rename(self, old, new):
        self._around(lambda: super(SteppedChanges, self).rename(old, new))

    def remove(self, path):
        self._around(lambda: super(SteppedChanges, self).remove(path))


class SteppedLooks(SteppedFiles):
    """... that depends on names."""

    def open(self, path, *, write=False, create=False):
        return self._around(lambda: super(SteppedLooks, self).open(path, write=write, create=create))

    def size_bytes(self, path):
        return self._around(lambda: super(SteppedLooks, self).size_bytes(path))

    def stamp(self, path):
        return self._around(lambda: super(SteppedLooks, self).stamp(path))

    def list_directory(self, path):
        return self._around(lambda: super(SteppedLooks, self).list_directory(path))


class Written:
    """A store with one partition, and what was written to it. Keys are superseded within segments and across,
    transactions are committed and aborted in turn."""

    def __init__(self, path, files, config=COMPACTED):
        self.path = path
        self.store = open_store(path, files=files, config=StoreConfig(batch_cache_bytes=2**20))
        self.log = self.store.create_topic("t", config=config)[0]
        self.truth = Truth()
        self._sequences = itertools.count()
        self._count = 0

    def append(self, *keys):
        rows = [NewRecord(b"%d" % next(self._numbers()), key.encode()) for key in keys]
        self.truth.note(self.log.extend(rows), [(row.value, row.key) for row in rows])

    def _numbers(self):
        while True:
            self._count += 1
            yield self._count

    def transact(self, *keys, committed):
        rows = [NewRecord(b"t%d" % next(self._numbers()), key.encode()) for key in keys]
        sequence = next(self._sequences)
        offsets = self.log.extend(rows, producer=identity(sequence, transactional=True))
        for _ in keys[1:]:
            next(self._sequences)
        if committed:
            self.truth.note(offsets, [(row.value, row.key) for row in rows])
        self.log.append_end_marker(7, 0, committed=committed)

    def fill(self, rounds=4):
        for number in range(rounds):
            self.append("a", "b", "c")
            self.append(f"alone {number}", "b")
            self.transact("a", "lost", committed=False)
            self.append("d", "a")
            self.transact("e", f"kept {number}", committed=True)
            self.log.roll()

    def compact(self):
        """And nothing is left of the old files."""
        self.log.compact(now=True)
        self.remove()

    def remove(self):
        self.store._directory.context.clock.advance(1)
        self.store.run_background()

    def forget_files(self):
        """As if others had needed the descriptors."""
        self.log.writer.core.forget_files()

    def watch(self, files=None):
        return logstore.open(self.path, read_only=True, files=files or QuickFiles())

    def check(self, log, way, must):
        self.truth.check(WAYS[way](log), must)


def compact(written):
    written.compact()


def erase(written):
    gone = [o for o, (key, _) in written.truth.records.items() if key in (b"d", b"alone 1")]
    written.log.erase(keys=[b"d", b"alone 1"])
    written.remove()
    written.erased = set(gone)


def compact_twice(written):
    written.compact()
    written.append("a", "e")
    written.compact()


def retain(written):
    written.log.delete_before(20)
    written.remove()


ACTIONS = {action.__name__: action for action in (compact, erase, compact_twice, retain)}


def must_be_seen(written, action):
    """What no reader may miss who began before the action."""
    latest = written.truth.latest()
    if action == "erase":
        return {o for o in latest if written.truth.records[o][0] not in (b"d", b"alone 1")}
    if action == "retain":
        return {o for o in latest if o >= 20}
    if action == "compact_twice":
        return {o for o in latest if written.truth.records[o][0] not in (b"a", b"e")}
    return latest


def sampled(quick, *lists):
    """All combinations; those that are not ``quick`` are slow, and each has its turn."""
    combinations = list(itertools.product(*lists))
    slow = rotating([some for some in combinations if not quick(*some)], 4)
    return [
        *filter(lambda some: quick(*some), combinations),
        *(pytest.param(*some.values, marks=[pytest.mark.slow, *some.marks]) for some in slow),
    ]


SELDOM = ("on demand", "record_at", "fetch", "short reads", "follow")


@pytest.mark.parametrize(
    ("place", "way", "action"),
    sampled(
        lambda place, way, action: place != "another" or (way not in SELDOM and action == "compact"),
        ["the same process", "another"],
        list(ways_that_can()),
        ACTIONS,
    ),
)
def test_a_reader_at_any_step_of_the_writer_sees_a_right_log(tmp_path, way, place, action):
    files = SteppedChanges()
    written = Written(tmp_path / "store", files)
    written.fill(3)
    must = must_be_seen(written, action)
    watched = written.watch()
    log = written.log if place == "the same process" else watched["t"][0]
    steps = itertools.count()
    stride = 7 if place == "another" and way in SELDOM else 1  # to list the names again and again takes time

    def step():
        number = next(steps)
        if number % stride:
            return
        if number % 3 == 0:
            written.forget_files()
            for segment in watched["t"][0]._segments:
                segment.forget_files()
        written.check(log, way, must)

    files.step = step
    ACTIONS[action](written)
    assert next(steps) > 10
    written.check(log, way, must)
    with written.watch() as fresh:
        written.check(fresh["t"][0], way, must)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("place", ["the same process", "another"])
def test_iterators_from_any_step_go_on_at_any_other(tmp_path, place, action):
    """One is begun at each step; all of them are finished at the end, and every other one goes a bit further
    at each step."""
    files = SteppedChanges()
    written = Written(tmp_path / "store", files)
    written.fill(3)
    must = must_be_seen(written, action)
    log = written.log if place == "the same process" else written.watch()["t"][0]
    under_way = []

    def begin():
        reading = log.read(isolation=Isolation.COMMITTED, on_demand=len(under_way) % 4 == 1)
        under_way.append((reading, [next(reading)]))

    def step():
        for reading, seen in under_way[::2]:
            seen += itertools.islice(reading, 3)
        for segment in log._current_view().segments:
            segment.forget_files()
        begin()

    begin()
    files.step = step
    try:
        ACTIONS[action](written)
    except OffsetOutOfRangeError:
        assert action == "retain"  # overtaken
        return
    for reading, seen in under_way:
        try:
            seen += reading
        except OffsetOutOfRangeError:
            assert action == "retain"
            continue
        written.truth.check([(r.offset, r.key, r.value) for r in seen], must)


@pytest.mark.parametrize(
    ("way", "action"),
    sampled(
        lambda way, action: way == "read" and action == "compact",
        list(ways_that_can()),
        ["compact", "erase", "compact_twice"],
    ),
)
def test_the_writer_may_act_at_any_step_of_a_reader_elsewhere(tmp_path, way, action):
    for at in itertools.count(1, 3 if way == "read" else 11):
        files = SteppedLooks()
        written = Written(tmp_path / f"store {at}", QuickFiles())
        written.fill(2)
        must = must_be_seen(written, action)
        steps = itertools.count()
        with written.watch(files) as watched:
            log = watched["t"][0]
            log.log_end_offset  # noqa: B018 - it knows the old segments

            def step(steps=steps, at=at, written=written):
                if next(steps) == at:
                    ACTIONS[action](written)

            files.step = step
            written.check(log, way, must)
            files.step = lambda: None
            written.check(log, way, must)
        is_over = next(steps) < at
        written.store.close()
        if is_over:
            assert at > 5
            break


@pytest.mark.parametrize(
    ("way", "action"),
    sampled(lambda way, action: way not in SELDOM, list(ways_that_can()), ACTIONS),
)
def test_the_writer_may_act_at_any_step_of_a_reader_of_its_own(tmp_path, way, action):
    for at in itertools.count(0, 3):
        files = SteppedLooks()
        written = Written(tmp_path / f"store {at}", files)
        written.fill(2)
        must = must_be_seen(written, action)
        steps = itertools.count()
        written.forget_files()

        def step(steps=steps, at=at, written=written):
            if next(steps) == at:
                ACTIONS[action](written)

        files.step = step
        try:
            written.check(written.log, way, must)
        except OffsetOutOfRangeError:
            assert action == "retain"
        files.step = lambda: None
        written.check(written.log, way, must)
        is_over = next(steps) < at
        written.store.close()
        if is_over:
            break
