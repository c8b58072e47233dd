"""A reader met a segment that was never read before, and opened its file in the moment in which compaction
put another one under that name: it took the new file for the old segment's, and reported damage where there
was none; or it asked for the size in that moment. Verifying did the same, and did not look again. Found by
reading and verifying beside the log cleaner.
"""

from __future__ import annotations

import pytest
from tests.logdir.helpers import QuickFiles, open_store

from logstore.config import TopicConfig
from logstore.partition.checking.findings import FindingKind

COMPACTED = TopicConfig(cleanup_policy="compact", segment_bytes=1_000)


class DisturbedFiles(QuickFiles):
    """Something happens in front of the opening of a file."""

    ending, action = "", None

    def _disturb(self, path):
        action = self.action
        if action is not None and path.endswith(self.ending):
            self.action = None
            action()

    def open(self, path, *, write=False, create=False):
        self._disturb(path)
        return super().open(path, write=write, create=create)

    def size_bytes(self, path):
        self._disturb(path)
        return super().size_bytes(path)


@pytest.fixture
def files():
    return DisturbedFiles()


@pytest.fixture
def log(tmp_path, files):
    with open_store(tmp_path / "store", files=files) as store:
        log = store.create_topic("t", config=COMPACTED)[0]
        for number in range(40):
            log.extend([(b"%d" % (number % 3), b"v" * 50)])
        log.checkpoint()
        yield log


def disturb(log, files, action, ending="00000000000000000000.log"):
    for segment in log.writer.core.view.segments:
        segment.forget_files()
    files.ending, files.action = ending, action


def test_a_reader_gets_the_segment_of_its_view(log, files):
    disturb(log, files, lambda: log.compact(now=True))
    assert [record.offset for record in log.read()] == list(range(40))
    assert [record.offset for record in log.read()] == [37, 38, 39]


def test_a_reader_gets_the_size_of_that_segment(log, files):
    """It is asked when it is first needed."""
    segment = log.writer.core.view.segments[0]
    size_bytes, segment._size_bytes = segment.size_bytes, None
    disturb(log, files, lambda: log.compact(now=True))
    assert segment.size_bytes == size_bytes
    assert files.action is None


def test_so_does_one_whose_files_names_went_on(log, files):
    """Two compactions: the second one takes the names that the first one gave to the old files."""

    def twice():
        log.compact(now=True)
        for number in range(3):
            log.extend([(b"%d" % number, b"w" * 50)])
        log.compact(now=True)

    disturb(log, files, twice)
    assert [record.value for record in log.read()] == [b"v" * 50] * 40
    assert [record.value for record in log.read()] == [b"w" * 50] * 3


def test_a_reader_stores_no_index_for_a_segment_whose_files_are_being_renamed(log, files):
    """Between the renames of its log and of its indexes these are missing, and built again."""
    segment = log.writer.core.view.segments[0]
    segment.forget_files()
    index = segment.path_of(".index")
    rename, seen = files.rename, []

    def renaming(source, target):
        rename(source, target)
        if source == index:
            seen.append(segment.time_index.entry_count)
            seen.append(files.is_file(index))

    files.rename = renaming
    log.truncate_fully_and_start_at(100)
    assert seen[0] > 0
    assert seen[1] is False


def test_verifying_looks_again(log, files):
    disturb(log, files, lambda: log.compact(now=True))
    report = log.verify()
    assert report.is_sound, report
    assert not [note for note in report.notes if note.kind is FindingKind.CHANGED]
