"""The replacement of segments, step by step: whatever step a crash stops it at, and however little of what
was not flushed the disk remembers, the directory holds the old segments or the new ones."""

from __future__ import annotations

import itertools

import pytest

from logstore.files import OsFiles
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
