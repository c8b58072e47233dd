"""The replacement of segments, step by step: whatever step a crash stops it at, and however little of what
was not flushed the disk remembers, the directory holds the old segments or the new ones."""

from __future__ import annotations

import itertools

import pytest

from logstore.files import OsFiles
from logstore.partition.checking.findings import FindingKind
from logstore.partition.recovery.leftovers import clean_leftovers
from tests.partition.helpers import Crash, Partition, WatchedFiles, batch_of, crash_after

pytestmark = pytest.mark.damaged

OLD, NEW = b"old", b"new"
OUTPUTS = [(0, 10), (10, 10), (20, 10)]
"""(base offset, count) of the segments that replace one of 30 records."""


def replacement_steps(partition, outputs):
    """The renames of a replacement of the segments 0, 10 and 20, in order. Batches of 10 records are old."""
    log = partition.file
    steps = [(log(b, ".log.cleaned"), log(b, ".log.swap")) for b, _ in reversed(outputs)]
    steps += [(log(b), log(b, ".log.deleted")) for b in (0, 10, 20)]
    steps += [(log(b, ".log.swap"), log(b)) for b, _ in outputs]
    return steps


def begin_replacement(path, outputs):
    """Three segments of one-record batches, and beside them finished outputs of one batch each."""
    partition = Partition(path)
    partition.write_segments(10, 10, 10)
    partition.close()
    for base, count in outputs:
        partition.write_file(batch_of(base, count), base, suffix=".log.cleaned")
    return partition


def is_old_or_new(partition, outputs):
    """Which of the two the directory holds; anything else is a failure."""
    assert partition.read() == list(range(30))
    counts = [len(partition.batches(base)) for base in partition.bases()]
    assert not partition.names("*.swap") + partition.names("*.cleaned") + partition.names("*.deleted")
    if counts == [10, 10, 10]:
        return OLD
    assert counts == [1] * len(outputs)
    return NEW


@pytest.mark.parametrize("outputs", [[(0, 30)], [(0, 15), (15, 15)], OUTPUTS], ids=len)
def test_every_prefix_of_a_replacement_is_the_old_data_or_the_new(tmp_path, outputs):
    original = begin_replacement(tmp_path / "t-0", outputs)
    steps = replacement_steps(original, outputs)
    seen = []
    for count in range(len(steps) + 1):
        copy = original.copy()
        for old, new in steps[:count]:
            (copy.path / old.name).rename(copy.path / new.name)
        copy.open()
        seen.append(is_old_or_new(copy, outputs))
        copy.crash()
    assert seen == [OLD] * len(outputs) + [NEW] * (len(steps) + 1 - len(outputs))


@pytest.mark.parametrize("count", range(1, 9))
def test_a_recovery_that_dies_at_any_step_still_ends_in_the_old_data_or_the_new(tmp_path, count):
    original = begin_replacement(tmp_path / "t-0", OUTPUTS)
    for old, new in replacement_steps(original, OUTPUTS)[:count]:
        old.rename(new)
    expected = OLD if count < 3 else NEW
    for died_at in range(40):
        copy = original.copy()
        try:
            clean_leftovers(crash_after(died_at), str(copy.path))
        except Crash:
            copy.open()
            assert is_old_or_new(copy, OUTPUTS) == expected
            copy.crash()
            continue
        break
    assert died_at > 2


class ForgetfulDisk(WatchedFiles):
    """Renames and removals reach the disk with the next flush of the directory; until then they pend."""

    def __init__(self):
        super().__init__()
        self.pending = []
        self.groups = [self.pending]

    def rename(self, old, new):
        self.pending.append((old, new))

    def remove(self, path):
        self.pending.append((path, None))

    def flush_directory(self, path):
        self.apply(self.pending)
        self.pending = []
        self.groups.append(self.pending)

    def apply(self, changes):
        for old, new in changes:
            OsFiles().remove(old) if new is None else OsFiles().rename(old, new)


class PowerCut(ForgetfulDisk):
    """Cuts the power before flush number ``group``, and keeps only some of the changes that were pending."""

    def __init__(self, group, kept):
        super().__init__()
        self.group, self.kept = group, kept

    def list_directory(self, path):
        names = {entry.name: entry for entry in super().list_directory(path)}
        for old, new in self.pending:  # a process sees what it did, flushed or not
            entry = names.pop(old.rpartition("/")[2], None)
            if new is not None and entry is not None:
                names[new.rpartition("/")[2]] = entry._replace(name=new.rpartition("/")[2])
        return list(names.values())

    def flush_directory(self, path):
        if len(self.groups) - 1 == self.group:
            self.apply([change for number, change in enumerate(self.pending) if number in self.kept])
            raise Crash
        super().flush_directory(path)


@pytest.mark.parametrize(
    ("outputs", "count"),
    [(OUTPUTS, count) for count in (1, 2, 3, 5, 6, 7, 8)] + [([(0, 30)], count) for count in (1, 2, 3)],
    ids=lambda given: len(given) if isinstance(given, list) else given,
)
def test_a_power_cut_that_forgets_any_unflushed_renames_leaves_the_old_data_or_the_new(
    tmp_path, outputs, count
):
    original = begin_replacement(tmp_path / "t-0", outputs)
    for old, new in replacement_steps(original, outputs)[:count]:
        old.rename(new)
    expected = OLD if count < len(outputs) else NEW
    for group in itertools.count():
        pending = cut_power(original.copy(), PowerCut(group, set()))
        if pending is None:
            break
        for kept in kept_changes(pending):
            copy = original.copy()
            cut_power(copy, PowerCut(group, kept))
            clean_leftovers(OsFiles(), str(copy.path))
            assert file_kind(copy) == expected, (group, kept)
    assert group > 0


def cut_power(partition, disk):
    """How many changes were pending when the power went; None if it did not."""
    try:
        clean_leftovers(disk, str(partition.path))
    except Crash:
        return len(disk.pending)
    return None


def kept_changes(count):
    """All, none, and all but each one; and each one alone."""
    whole = set(range(count))
    return [whole, set(), *(whole - {number} for number in whole), *({number} for number in whole)]


def file_kind(partition):
    counts = [len(partition.batches(base)) for base in partition.bases()]
    return {(10, 10, 10): OLD, (1, 1, 1): NEW, (1,): NEW}[tuple(counts)]


def test_an_aborted_transaction_survives_the_end_of_a_swap(tmp_path):
    """The new transaction index must never be taken for one of the old files."""
    original = begin_replacement(tmp_path / "t-0", [(0, 30)])
    original.rename(0, ".log.cleaned", ".log.swap")
    original.write_file(b"", suffix=".index.swap")
    original.write_file(b"new aborted transactions", suffix=".txnindex.swap")
    original.write_file(b"old", suffix=".txnindex")
    for died_at in range(40):
        copy = original.copy()
        try:
            clean_leftovers(crash_after(died_at), str(copy.path))
        except Crash:
            clean_leftovers(OsFiles(), str(copy.path))
            assert copy.file(0, ".txnindex").read_bytes() == b"new aborted transactions"
            continue
        break


def test_unfinished_outputs_go_swap_first(tmp_path):
    """Without a .cleaned left, the .swap of an unfinished replacement would count as finished."""
    partition = begin_replacement(tmp_path / "t-0", OUTPUTS)
    partition.rename(20, ".log.cleaned", ".log.swap")
    files = WatchedFiles()
    clean_leftovers(files, str(partition.path))
    removed = [name for action, name in files.trace if action in ("remove", "flush directory")]
    assert removed[0].endswith(".swap")
    assert removed[1] == "t-0"
    assert [name[-8:] for name in removed[2:4]] == [".cleaned"] * 2


# A segment that is lost


def lost_in_the_middle(path):
    """Three segments of a compacted log, and then only the indexes of the second one."""
    partition = Partition(path, cleanup_policy="compact")
    for base_offset in (0, 10, 20):
        partition.log.extend([(b"%d" % n, b"value") for n in range(base_offset, base_offset + 10)])
        partition.log.roll()
    partition.close()
    partition.file(10).rename(path.parent / "lost.log")
    return partition


def test_the_indexes_of_a_lost_segment_stay_and_are_warned_of(tmp_path, caplog):
    """They were removed, and then nothing said any more that the compacted log lacks records."""
    partition = lost_in_the_middle(tmp_path / "t-0")
    for _ in range(2):
        report = partition.open().verify()
        assert {problem.kind for problem in report.problems} == {FindingKind.MISSING_SEGMENT}
        partition.close()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 2
    assert "the segment of offset 10 is missing" in told[0]
    assert "reopen(accept_loss=True)" in told[0]


def test_a_lost_segment_that_is_restored(tmp_path):
    partition = lost_in_the_middle(tmp_path / "t-0")
    assert [record.offset for record in partition.log.read()] == [*range(10), *range(20, 30)]
    partition.close()
    (tmp_path / "lost.log").rename(partition.file(10))
    assert [record.offset for record in partition.log.read()] == list(range(30))
    assert partition.log.verify()
    partition.close()


def test_a_loss_that_is_accepted_is_not_told_again(tmp_path, caplog):
    partition = lost_in_the_middle(tmp_path / "t-0")
    assert partition.open(accept_loss=True).verify()
    assert partition.names("*10.*index") == []
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    partition.close()


def test_indexes_of_a_segment_that_was_just_deleted_are_removed(tmp_path):
    """As long as the ``.deleted`` log is there, it shows that the segment is not lost, whatever
    ends the recovery."""
    partition = lost_in_the_middle(tmp_path / "t-0")
    partition.file(10, ".log.deleted").write_bytes(b"")
    files = WatchedFiles()
    clean_leftovers(files, str(partition.path), durable_end=30)
    changes = [name for action, name in files.trace if action in ("remove", "flush directory")]
    assert [name.partition(".")[2] for name in changes[2:4]] == ["", "log.deleted"]  # flushed in between
    assert partition.names("*10.*index") == []
