"""Readers beside compaction, erasures and retention. Found by giving a reader its turn at every operation of
the writer on files, and the writer at every one of the reader:

* A read met ENOENT when the old file of a segment was removed before the read came to it.
* The aborted transactions of a segment are read by name, its log by a descriptor. When the name was gone,
  or another segment's, nobody was left out: a committed read gave aborted records.
* A reader in another process took the new file under an old name for the old one; and refused to read while
  the writer was between two renames, for as long as nobody opened the directory for writing.
* Where its look was disturbed, it did not know which transactions were open, and showed their records.
* When the last segment was rolled and compacted during a look, its log end went back, and a follower was told
  that what it waits for was cut off.
* A reader that read the aborted transactions of the active segment for the first time, while the first one
  was added, put it out of memory; the next one overwrote it in the file.
"""

from __future__ import annotations

import errno
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.logdir.helpers import QuickFiles, crash
from tests.partition.helpers_rules import identity
from tests.partition.reading.test_readers_swap import COMPACTED, RETENTION_MS, Written, must_be_seen

from logstore.errors import OffsetOutOfRangeError, StorageError
from logstore.model import Isolation
from logstore.partition.segments.transaction_index import TransactionIndex

COMMITTED = Isolation.COMMITTED


class HookedFiles(QuickFiles):
    """Something happens in front of the opening of a file with a certain end, once."""

    def __init__(self):
        self.ending, self.action = "", None

    def open(self, path, *, write=False, create=False):
        action = self.action
        if action is not None and path.endswith(self.ending):
            self.action = None
            action()
        return super().open(path, write=write, create=create)


@pytest.fixture
def files():
    return HookedFiles()


@pytest.fixture
def written(tmp_path, files):
    written = Written(tmp_path / "store", files)
    written.fill()
    yield written
    written.store.close()


def places(written):
    """The same log for the writer's process and for another."""
    return [written.log, written.watch()["t"][0]]


def test_a_read_that_was_begun_before_the_removal_gives_no_aborted_record(written):
    for log in places(written):
        list(log.read())  # the logs are open
        start = log.log_start_offset
        reading = log.read(isolation=COMMITTED)
        written.log.delete_before(start + 12)
        written.remove()
        with pytest.raises(OffsetOutOfRangeError):
            list(reading)


def test_a_read_that_was_begun_before_compaction_gives_no_aborted_record(written):
    must = must_be_seen(written, "compact")
    readings = []
    for log in places(written):
        list(log.read())
        readings.append(log.read(isolation=COMMITTED))
    written.compact()
    for reading in readings:
        written.truth.check([(r.offset, r.key, r.value) for r in reading], must)


def test_the_aborted_transactions_of_another_file_are_not_those_of_the_one_that_is_open(tmp_path):
    """The first segment takes the place of the first, so that its name stays."""
    written = Written(tmp_path / "new", QuickFiles(), replace(COMPACTED, segment_bytes=100_000))
    written.fill(1)
    log = written.watch()["t"][0]
    list(log.read())
    reading = log.read(isolation=COMMITTED)
    for _ in range(3):  # at last the marker goes, and with it what is known of the transaction
        written.compact()
        written.store._directory.context.clock.advance(2 * RETENTION_MS)
        written.append("later")
    assert not list(Path(log.directory).glob("*.txnindex"))
    written.truth.check([(r.offset, r.key, r.value) for r in reading], written.truth.latest(13))
    written.store.close()


def test_a_directory_whose_writer_died_between_two_renames_can_be_read(written):
    """Until somebody opens it for writing."""

    class DiedError(BaseException):
        pass

    def die(path):
        if path.endswith(".log.swap"):
            raise DiedError

    rename = written.store._directory.context.files.rename
    written.store._directory.context.files.rename = lambda old, new: (die(old), rename(old, new))
    with pytest.raises(DiedError):
        written.log.compact(now=True)
    crash(written.store)
    names = [path.name for path in Path(written.log.directory).iterdir()]
    assert any(name.endswith(".log.swap") for name in names)
    with written.watch() as watched:
        written.check(watched["t"][0], "read", must_be_seen(written, "compact"))
        written.check(watched["t"][0], "record_at", must_be_seen(written, "compact"))


def test_a_disturbed_look_still_learns_which_transactions_are_open(written):
    start = written.log.log_end_offset
    written.log.extend([(b"u", b"undecided")], producer=identity(100, producer=9, transactional=True))
    written.log.roll()
    for snapshot in Path(written.log.directory).glob("*.snapshot"):
        snapshot.unlink()

    def fail():
        raise StorageError(errno.ENOENT, "it was just replaced", "x")

    files = HookedFiles()
    files.ending, files.action = ".log", fail
    with written.watch(files) as watched:
        assert watched["t"][0].last_stable_offset == start
        assert files.action is None


def test_the_log_end_does_not_go_back_when_the_last_segment_is_compacted_during_a_look(written):
    files = HookedFiles()
    with written.watch(files) as watched:
        log = watched["t"][0]
        written.append("large enough for a place alone" * 12)
        written.log.roll()
        written.append("a", "b")
        end = log.log_end_offset

        def compact():
            written.log.roll()
            written.append("a", "b", "too large for a place beside others" * 12)
            written.compact()

        log._names.has_changed()  # the directory has settled, as it would have after 50 ms
        log._names._settled_ns = QuickFiles().changed_ns(log.directory)
        log._watched.contents.forget()  # the segment has not: less than 50 ms went by
        files.ending, files.action = Path(log._watched.path).name, compact
        assert log.log_end_offset > end
        assert files.action is None
        assert log.log_end_offset == written.log.log_end_offset


def test_a_follower_elsewhere_goes_on_over_a_compaction(written):
    log = written.watch()["t"][0]
    following = log.follow(log.log_end_offset, timeout=5)
    for _ in range(3):
        written.append("a", "b")
        written.compact()
        written.append("c")
        assert next(following).value in (b"%d" % number for number in range(1, written._count + 1))
    assert {record.key for record in log.follow(log.log_end_offset - 1, timeout=0)} == {b"c"}


def test_the_first_look_at_aborted_transactions_loses_none_that_is_just_added(tmp_path, files, monkeypatch):
    written = Written(tmp_path / "new", files)
    written.log.roll()  # nobody has looked yet
    written.log.extend([(b"w", b"wrong")], producer=identity(0, transactional=True))
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        go_on.wait(0.3)

    opening = TransactionIndex.open

    def slowly(*arguments):
        found = opening(*arguments)
        if threading.current_thread() is reader:
            wait()
        return found

    monkeypatch.setattr(TransactionIndex, "open", slowly)
    segment = written.log._current_view().segments[-1]
    reader = threading.Thread(target=segment.read_transaction_index)
    reader.start()
    assert inside.wait(5)
    written.log.append_end_marker(7, 0, committed=False)
    go_on.set()
    reader.join()
    assert list(written.log.read(isolation=COMMITTED)) == []
    written.store.close()


@pytest.mark.parametrize("place", [0, 1])
def test_columns_that_are_held_stay_when_their_segments_go(written, place):
    pyarrow = pytest.importorskip("pyarrow")
    log = places(written)[place]
    reader = log.iterate_arrow(batch_rows=3)
    table, first = log.read_arrow(), next(reader)
    copies = [pyarrow.table(table.to_pydict(), table.schema), first.to_pydict()]
    written.compact()
    written.append("a")
    written.compact()
    assert [table, first.to_pydict()] == copies
    assert log.read_arrow().num_rows < table.num_rows


@pytest.mark.parametrize("place", [0, 1])
def test_a_batch_that_is_kept_does_not_answer_for_the_segment_that_took_its_place(tmp_path, place):
    written = Written(tmp_path / "new", QuickFiles(), replace(COMPACTED, segment_bytes=100_000))
    written.log.extend([(b"gone", b"v" * 40_000), (b"kept", b"w")])
    written.log.roll()
    log = places(written)[place]
    for _ in range(2):
        assert log.record_at(0).value == b"v" * 40_000
        assert log.record_at(1).value == b"w"
    written.log.erase(keys=[b"gone"])
    assert log.record_at(0) is None
    assert log.record_at(1).value == b"w"
    written.log.extend([(b"kept", b"x")])
    written.compact()
    assert log.record_at(1) is None
    assert log.record_at(2).value == b"x"
    written.store.close()
