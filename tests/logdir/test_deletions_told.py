"""Every deletion is one line at the level INFO, from the module that did it; and nothing goes without a line.

The disk sees to the second: it notes each byte of records that goes, whoever takes it away.
"""

import logging
import random

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.partition.state.home import RECOVERY_POINTS_NAME
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.operations import Remove, Rename, Truncate
from tests.logdir.helpers import crash, run_python

MINUTE_MS = 60_000
SMALL = TopicConfig(segment_bytes=1_000, index_interval_bytes=100)
COMPACTED = TopicConfig(segment_bytes=1_000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
COPIES = (".cleaned", ".swap", ".tmp")
"""What ends with one of these has its records elsewhere."""


class SeeingFiles(MemoryFiles):
    """Notes what goes of the records: log files that are removed, renamed or cut. One that was renamed away
    is gone then, and not again when it is removed, unless another process finds it."""

    def __init__(self, image=None):
        super().__init__(image)
        self.gone = []
        self._renamed = set()

    def begin(self, operation):
        if isinstance(operation, Remove) and self._holds_records(operation.path):
            if operation.path not in self._renamed:
                self.gone.append(("remove", operation.path))
        elif isinstance(operation, Rename):
            folder = operation.path.rpartition("/")[0]
            self._note_rename(operation.path, f"{folder}/{operation.new_name}")
        elif isinstance(operation, Truncate) and self._is_cut(operation):
            self.gone.append(("truncate", operation.path))
        super().begin(operation)

    def _note_rename(self, old, new):
        if self.is_directory(old):
            if new.endswith("-delete"):
                self.gone.append(("rename", old))
                self._renamed |= {f"{new}/{entry.name}" for entry in self.list_directory(old)}
        elif self._holds_records(old) and (new.endswith(".deleted") or ".torn-" in new):
            self.gone.append(("rename", old))
            self._renamed.add(new)

    def _is_cut(self, operation):
        path = operation.path
        return self._holds_records(path) and operation.size_bytes < self.size_bytes(path)

    def _holds_records(self, path):
        is_log = ".log" in path.rpartition("/")[2] or ".torn-" in path
        return is_log and not path.endswith(COPIES) and self.is_file(path) and self.size_bytes(path) > 0


class Told(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def told():
    handler, logger = Told(), logging.getLogger("logstore")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


class Place:
    """A store on a clock set by hand and a disk that sees deletions."""

    def __init__(self, files=None, clock=None):
        self.files = files or SeeingFiles()
        self.clock = clock or ManualClock()
        self.open()

    def open(self, **options):
        self.store = logstore.open("/s", files=self.files, clock=self.clock, **options)

    def kill(self):
        """What a killed process leaves; another one sees it for the first time."""
        crash(self.store)
        self.files = SeeingFiles(self.files.now())

    def fill(self, config=SMALL, count=100, name="t"):
        log = self.store.create_topic(name, config=config)[0]
        for number in range(0, count, 10):
            log.extend([(b"key of %d" % (n % 7), b"value of %d" % n) for n in range(number, number + 10)])
        self.files.gone.clear()
        return log

    def pass_time(self, ms):
        self.clock.advance(ms)
        self.store.run_background()


@pytest.fixture
def place():
    return Place()


def retention_ms(place):
    log = place.fill()
    place.store["t"].configure(retention_ms=MINUTE_MS)
    place.clock.advance(2 * MINUTE_MS)
    return log.enforce_retention, ["t-0", "offsets 0 to 99", "retention_ms=60000"]


def retention_in_the_background(place):
    place.fill()
    place.store["t"].configure(retention_bytes=2_000)
    return lambda: place.pass_time(MINUTE_MS), ["t-0", "offsets 0 to ", "retention_bytes=2000"]


def retention_below_the_log_start(place):
    log = place.fill()
    log.writer.core.raise_log_start(50)  # as a broker leaves it, which removes files every five minutes
    return log.enforce_retention, ["t-0", "offsets 0 to ", "log start offset 50"]


def delete_before(place):
    log = place.fill()
    return lambda: log.delete_before(55), ["t-0", "offsets 0 to 54", "delete_before(55)"]


def truncate_to(place):
    log = place.fill()
    return lambda: log.truncate_to(30), ["t-0", "offsets 30 to 99", "truncate_to(30)"]


def truncate_to_below_all(place):
    log = place.fill()
    log.delete_before(50)
    place.pass_time(2 * MINUTE_MS)
    return lambda: log.truncate_to(5), ["t-0", "to 99", "truncate_to(5)"]


def truncate_fully(place):
    log = place.fill()
    act = lambda: log.truncate_fully_and_start_at(500)  # noqa: E731
    return act, ["t-0", "offsets 0 to 99", "truncate_fully_and_start_at(500)"]


def delete_topic(place):
    place.fill()
    return lambda: place.store.delete_topic("t"), ["'t'", "1 partitions", "delete_topic"]


def compact(place):
    log = place.fill(COMPACTED)
    return lambda: log.compact(now=True), ["t-0", "compaction removed 93 records"]


def compaction_in_the_background(place):
    log = place.fill(COMPACTED)
    log.roll()
    return lambda: place.pass_time(MINUTE_MS), ["t-0", "compaction removed 93 records"]


def compaction_that_is_ended_early(place):
    log = place.fill(TopicConfig(segment_bytes=300, cleanup_policy="compact"), count=300)
    size_bytes = log.size_bytes

    def stop(progress):
        if log.size_bytes < size_bytes // 2:
            raise KeyboardInterrupt

    def act():
        with pytest.raises(KeyboardInterrupt):
            log.compact(now=True, on_progress=stop)
        place.store["t"].configure(cleanup_policy="delete")  # else the background finishes it

    return act, ["t-0", "compaction removed "]


def erase(place):
    log = place.fill()
    return lambda: log.erase(keys=[b"key of 3"]), ["t-0", "erased 14 records"]


def recovery_of_a_torn_end(place):
    log = place.fill()
    log.flush()
    log.checkpoint()
    place.kill()
    _append_garbage(place.files)
    return place.open, ["/s/t-0", "cut 7 bytes from offset 100 on", ".torn-"]


def recovery_that_removes_the_oldest_cuts(place):
    place.fill().checkpoint()
    for number in range(8):
        file = place.files.open(f"/s/t-0/{number:020}.torn-0000000000", create=True)
        file.write_at(0, [b"bytes of an older cut"])
    place.kill()
    _append_garbage(place.files)
    return place.open, ["/s/t-0", "cut 7 bytes", "removed 1 files, 21 bytes"]


def what_a_killed_process_had_left_to_be_removed(place):
    log = place.fill()
    log.checkpoint()
    log.delete_before(50)
    place.kill()
    return place.open, ["/s/t-0", "removed ", " bytes, left by deletions"]


def what_was_left_of_a_deleted_topic(place):
    place.fill()
    place.store.delete_topic("t")
    place.kill()
    return place.open, ["/s", " files, ", "left of deleted topics by an earlier process"]


VERBS = [
    retention_ms,
    retention_in_the_background,
    retention_below_the_log_start,
    delete_before,
    truncate_to,
    truncate_to_below_all,
    truncate_fully,
    delete_topic,
    compact,
    compaction_in_the_background,
    compaction_that_is_ended_early,
    erase,
    recovery_of_a_torn_end,
    recovery_that_removes_the_oldest_cuts,
    what_a_killed_process_had_left_to_be_removed,
    what_was_left_of_a_deleted_topic,
]


def _append_garbage(files):
    path = max(path for path in files.now().paths() if path.endswith(".log"))
    file = files.open(path, write=True)
    file.write_at(file.size_bytes(), [b"garbage"])
    files.gone.clear()


@pytest.mark.damaged
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_deletion_is_one_line(place, told, verb):
    act, words = verb(place)
    told.records.clear()
    place.files.gone.clear()
    act()
    assert place.files.gone  # else it is no test
    (record,) = told.records
    assert record.levelno == logging.INFO
    assert record.name.startswith("logstore.")
    assert record.name != "logstore.warning"
    assert record.funcName != "inform"
    for word in words:
        assert word in record.getMessage()
    told.records.clear()
    place.files.gone.clear()
    place.pass_time(10 * MINUTE_MS)  # the files go now, of which the line has told
    place.store.close()
    assert (told.records, place.files.gone) == ([], [])


def test_a_deletion_of_records_that_leaves_their_files_is_one_line(place, told):
    log = place.fill()
    log.delete_before(3)
    assert [record.getMessage() for record in told.records] == [
        "t-0: deleted offsets 0 to 2, 0 bytes: delete_before(3)"
    ]


def test_what_deletes_nothing_says_nothing(place, told):
    log = place.fill()
    table = place.fill(COMPACTED, name="table")
    log.delete_before(0)
    log.truncate_to(100)
    log.enforce_retention()
    log.erase(keys=[b"no such key"])
    log.erase(keys=[b"key of 3"], dry_run=True)
    table.compact(now=True, dry_run=True)
    place.store.enforce_retention(dry_run=True)
    place.store.close()
    place.open()
    assert (told.records, place.files.gone) == ([], [])


@pytest.mark.damaged
def test_a_topic_that_was_being_deleted_when_the_process_died_has_its_line(place, told):
    place.fill()
    place.store._directory._topics.hide(place.store._directory.topic("t"))
    place.kill()
    told.records.clear()
    place.open()
    messages = [record.getMessage() for record in told.records]
    assert len([message for message in messages if "deleted topic 't'" in message]) == 1


@pytest.mark.damaged
@pytest.mark.parametrize("lost", [RECOVERY_POINTS_NAME, None])
def test_a_cut_of_what_may_have_been_durable_is_a_warning(place, told, lost):
    """Garbage in a log that came without its checkpoints, or a loss that is accepted."""
    log = place.fill()
    log.flush()
    log.checkpoint()
    place.kill()
    if lost is None:
        path = max(path for path in place.files.now().paths() if path.endswith(".log"))
        file = place.files.open(path, write=True)
        file.write_at(file.size_bytes() - 5, [b"wrong"])
        place.open()
        told.records.clear()
        place.files.gone.clear()
        place.store["t"].reopen(0, accept_loss=True)
    else:
        place.files.remove(f"/s/{lost}")
        _append_garbage(place.files)
        place.open()
    (record,) = told.records
    assert record.levelno == logging.WARNING
    assert "/s/t-0: opening cut " in record.getMessage()
    assert ".kept" in record.getMessage()
    assert record.name == "logstore.partition.recovery.loader"


@pytest.mark.damaged
def test_nothing_goes_without_a_line_whatever_is_done(told):
    """At most one line a call, and one where any record went; in any order."""
    chance = random.Random(5)
    place = Place()
    config = TopicConfig(segment_bytes=600, cleanup_policy="compact,delete", index_interval_bytes=100)
    counts = {"lines": 0, "gone": 0}
    place.store.create_topic("t", partitions=2, config=config)

    def log():
        return place.store["t"][chance.randrange(2)]

    def offset_of(each):
        return chance.randint(each.log_start_offset, each.log_end_offset)

    def cut(each):
        each.truncate_to(offset_of(each))

    def shorten(each):
        each.delete_before(offset_of(each))

    def age(each):
        place.store["t"].configure(retention_bytes=chance.choice((-1, 0, 3_000)))
        place.clock.advance(MINUTE_MS)
        each.enforce_retention()

    actions = [
        *(lambda each: each.extend([(b"k%d" % chance.randrange(9), bytes(50))] * 8) for _ in range(6)),
        cut,
        shorten,
        age,
        lambda each: each.roll(),
        lambda each: each.compact(now=True),
        lambda each: each.erase(keys=[b"k%d" % chance.randrange(9)]),
        lambda each: each.truncate_fully_and_start_at(each.log_end_offset + 1),
        lambda each: each.checkpoint(),
        lambda each: place.store.close() or place.open(),
    ]
    for _ in range(400):
        told.records.clear()
        place.files.gone.clear()
        chance.choice(actions)(log())
        lines = [record.getMessage() for record in told.records]
        assert len(lines) <= 1, lines
        assert bool(lines) or not place.files.gone, place.files.gone
        counts["lines"] += len(lines)
        counts["gone"] += len(place.files.gone)
    assert counts["lines"] > 50
    assert counts["gone"] > 50


def test_without_logging_nothing_is_imported_for_it(tmp_path):
    printed = run_python(
        "import sys, logstore\n"
        "with logstore.open(sys.argv[1]) as store:\n"
        "    log = store.create_topic('t')[0]\n"
        "    log.extend([b'v'] * 9)\n"
        "    log.delete_before(5); log.truncate_to(7); store.delete_topic('t')\n"
        "print('logging' in sys.modules)",
        tmp_path / "store",
    )
    assert printed.strip() == "False"


def test_no_handler_is_installed():
    printed = run_python(
        "import logging, logstore, logstore.warning\n"
        "logstore.warning.inform('x'); logstore.warning.warn('y')\n"
        "names = [None, *logging.root.manager.loggerDict]\n"
        "print([handler for name in names for handler in logging.getLogger(name).handlers])"
    )
    assert printed.strip() == "[]"
