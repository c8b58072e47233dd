"""An erasure or a round of compaction referred to all segments that it had replaced until it returned. Their
files stayed open for so long: an erasure needed room on the disk for all that it rewrote, instead of for the
largest segment, and a log of some hundred segments took all descriptors of the process."""

import os

import pytest

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.testing import ManualClock

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at descriptors in /proc")

SEGMENTS = 40


@pytest.fixture
def log(tmp_path):
    config = TopicConfig(segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    opened = StoreConfig(max_open_segments=2, log_cleaner_enable=False)
    with logstore.open(tmp_path, config=opened, clock=ManualClock()) as store:
        log = store.create_topic("t", config=config)[0]
        for number in range(SEGMENTS):
            log.extend([(b"other %d" % number, bytes(400)), (b"key", bytes(400))])
        yield log


def open_files(log):
    names = []
    for number in os.listdir("/proc/self/fd"):
        path = os.path.realpath(f"/proc/self/fd/{number}")
        if path.startswith(log.directory):
            names.append(path.rpartition("/")[2])
    return names


class Most:
    """The largest number of open files at any step."""

    def __init__(self, log):
        self.log, self.count, self.deleted_count = log, 0, 0

    def __call__(self, progress):
        names = open_files(self.log)
        self.count = max(self.count, len(names))
        self.deleted_count = max(self.deleted_count, sum("deleted" in name for name in names))


def test_an_erasure_lets_go_of_each_segment_that_it_has_replaced(log):
    most = Most(log)
    report = log.erase(keys=[b"key"], on_progress=most)
    assert report.rewritten_segment_count == SEGMENTS
    assert most.deleted_count <= 4
    assert most.count < 20


def test_compaction_lets_go_of_each_segment_that_it_has_replaced(log):
    most = Most(log)
    report = log.compact(now=True, on_progress=most)
    assert report.read_record_count - report.kept_record_count == SEGMENTS - 1
    assert most.deleted_count <= 8  # of one group
    assert most.count < 24


def test_a_reader_under_way_keeps_what_it_has_not_read(log):
    records = log.read()
    assert next(records).offset == 0
    log.erase(keys=[b"key"])
    assert [record.offset for record in records] == list(range(1, 2 * SEGMENTS))
