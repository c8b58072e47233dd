"""Commits whose staged files become segments: each batch once here, too; and what is copied after all."""

import contextlib
import errno
import itertools
import os

import pytest

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, InvalidRecordError, StorageError
from logstore.files import OsFiles
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.partition.segments.active import ActiveSegment
from logstore.spark import commits, flush_ahead, placing, staging
from logstore.spark.commits import Outcome
from logstore.spark.ledger import Ledger
from logstore.spark.placing import is_to_move
from logstore.spark.staging import StagedFile, StagedPart, read_staged
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.testing.faults import Fault
from tests.spark.staged import SINK, Place, dies, move_all, stop_at

ROWS = {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]}


@pytest.fixture
def place(monkeypatch):
    move_all(monkeypatch)
    place = Place()
    place.create()
    return place


def inode_of(place, path):
    return place.files.stamp(f"{place.path}/{path}")[0]


def bases_of(place, partition=0):
    with place.open(read_only=True) as store:
        return list(store["t"][partition]._current_view().bases)


# What becomes of them


def test_each_partition_has_its_file_and_that_is_the_segment(place):
    files = place.stage_all(ROWS)
    assert [[str(part.target) for part in staged.parts] for staged in files] == [["t-0"], ["t-1"]]
    inodes = [inode_of(place, staged.name) for staged in files]
    place.commit(*files)
    assert [inode_of(place, f"t-{number}/{0:020}.log") for number in ROWS] == inodes
    assert place.values() == ROWS
    assert place.staged_names() == []
    place.verify()


def test_files_of_tasks_and_batches_follow_each_other(place):
    for batch, task in itertools.product(range(3), range(2)):
        place.commit(*place.stage_all({0: [b"%d%d" % (batch, task)]}, batch=2 * batch + task),
                     batch=2 * batch + task)  # fmt: skip
    files = [*place.stage_all({0: [b"30"]}, batch=9), *place.stage_all({0: [b"31"]}, batch=9, task=1)]
    place.commit(*files, batch=9)
    assert place.values()[0] == [b"00", b"01", b"10", b"11", b"20", b"21", b"30", b"31"]
    assert bases_of(place) == list(range(8))
    place.verify()


def test_appends_go_on_in_the_segment_that_was_a_file(place):
    with place.open() as store:
        store["t"][0].extend([b"before"])
    place.commit(*place.stage_all(ROWS))
    with place.open() as store:
        store["t"][0].extend([b"after"])
    assert place.values()[0] == [b"before", *ROWS[0], b"after"]
    assert bases_of(place) == [0, 1]
    place.verify()


def test_a_task_begins_a_new_file_where_a_segment_is_full(monkeypatch):
    move_all(monkeypatch)
    place = Place()
    place.create(segment_bytes=400)
    rows = {0: [b"%d" % number * 40 for number in range(9)]}
    files = place.stage_all(rows)
    assert len(files) > 2
    assert all(staged.size_bytes <= 400 for staged in files)
    place.commit(*files)
    assert place.values()[0] == rows[0]
    assert len(bases_of(place)) == len(files)
    place.verify()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks at descriptors in /proc")
@pytest.mark.parametrize("ahead_bytes", [1, 2**30])
def test_full_files_do_not_stay_open(tmp_path, monkeypatch, ahead_bytes):
    """A task may fill thousands of segments."""
    move_all(monkeypatch)
    monkeypatch.setattr(flush_ahead, "AHEAD_BYTES", ahead_bytes)
    place = Place(OsFiles(), str(tmp_path / "store"))
    place.create(segment_bytes=200)
    most = []
    new_file = staging._StagedFileWriter

    def counted(*arguments):
        most.append(len(os.listdir("/proc/self/fd")))
        return new_file(*arguments)

    monkeypatch.setattr(staging, "_StagedFileWriter", counted)
    rows = {0: [b"%03d" % number * 20 for number in range(200)], 1: [b"x"]}
    files = place.stage_all(rows)
    assert len(files) > 90
    assert max(most) <= most[0] + staging.MOST_OPEN_FILES
    place.commit(*files)
    assert place.values() == rows


def test_small_files_are_copied():
    """As they are by default: a log of small segments would be one of many."""
    place = Place()
    place.create()
    for batch in range(3):
        place.commit(*place.stage_all({0: [b"%d" % batch]}, batch=batch), batch=batch)
    assert bases_of(place) == [0]


@pytest.mark.parametrize(
    ("size_bytes", "settings", "parts", "moves"),
    [
        (8 * 2**20, {"segment_bytes": 2**29}, 1, True),
        (8 * 2**20 - 1, {"segment_bytes": 2**29}, 1, False),
        (8 * 2**20, {"segment_bytes": 2**29}, 2, False),
        (8 * 2**20, {"segment_bytes": 2**29, "message_timestamp_type": "LogAppendTime"}, 1, False),
        (16 * 2**20 - 1, {"segment_bytes": 2**30}, 1, False),
        (16 * 2**20, {"segment_bytes": 2**30}, 1, True),
        (8 * 2**20, {"segment_bytes": 8 * 2**20}, 1, True),
        (8 * 2**20, {"segment_bytes": 8 * 2**20 - 1}, 1, False),
    ],
)
def test_which_files_move(size_bytes, settings, parts, moves):
    staged = StagedFile("name", size_bytes, 0, (StagedPart(None, 1, 1),) * parts)
    assert is_to_move(staged, TopicConfig(**settings)) is moves


# Crashes


def test_without_the_protocol_a_kill_makes_duplicates(place, monkeypatch):
    """The control: the checks of this file do fail where a batch is simply run again."""
    monkeypatch.setattr(Ledger, "note", lambda self, state: None)
    stop_at(monkeypatch, "mid-adoption")
    dies(place, *place.stage_all(ROWS))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    place.commit(*place.stage_all(ROWS))
    assert place.values()[0] == ROWS[0] * 2


def test_a_file_that_moved_into_a_topic_which_was_deleted_is_not_missed(place, monkeypatch):
    """The other topic's records are as good as they were: the batch was prepared."""
    place.create("u", partitions=1)
    stop_at(monkeypatch, "mid-adoption")
    dies(place, *place.stage_all({0: [b"u"]}, topic="u"), *place.stage_all(ROWS, task=1))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    with place.open() as store:
        store.delete_topic("u")
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == ROWS
    assert place.commit(*place.stage_all(ROWS)) is Outcome.REPEATED
    assert place.staged_names() == []


@pytest.mark.parametrize("step", ["after prepared", "mid-adoption"])
@pytest.mark.parametrize(
    "settings",
    [{"message_timestamp_type": "LogAppendTime"}, {"max_message_bytes": 70}, {"segment_bytes": 90}],
)
def test_settings_that_changed_behind_the_commit_point(place, monkeypatch, step, settings):
    stop_at(monkeypatch, step)
    dies(place, *place.stage_all({0: [b"a"], 1: [b"x"]}))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    with place.open() as store:
        store["t"].configure(**settings)
    place.clock.advance(5_000)
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == {0: [b"a"], 1: [b"x"]}
    place.verify()
    if "message_timestamp_type" in settings:  # copied then, with the time of the append
        with place.open() as store:
            [record] = store["t"][1].read()
        assert record.timestamp_ms == place.clock.now_ms()


@pytest.mark.parametrize("at", range(0, HEADER_BYTES + 5, 5))
@pytest.mark.parametrize("is_end_new", [False, True])
def test_places_that_came_to_the_disk_in_part_are_given_again(place, monkeypatch, at, is_end_new):
    """A header may lie in two sectors, of which a power cut leaves one."""
    files = place.stage_all({0: [b"a", b"b", b"c"]})
    file = place.files.open(f"{place.path}/{files[0].name}", write=True)
    old = file.read_at(0, HEADER_BYTES)
    stop_at(monkeypatch, "after prepared")
    dies(place, *files)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    new = file.read_at(0, HEADER_BYTES)
    assert new != old
    file.write_at(0, [old[:at] + new[at:] if is_end_new else new[:at] + old[at:]])
    assert place.finish_all() == [(SINK, 0)]
    assert place.values()[0] == [b"a", b"b", b"c"]
    assert bases_of(place) == [0]
    place.verify()


# What is refused, and what is copied after all


def test_damage_is_refused_before_the_commit_point_and_named(place):
    good, bad = place.stage_all(ROWS)
    file = place.files.open(f"{place.path}/{bad.name}", write=True)
    file.write_at(70, [b"!"])
    with pytest.raises(CorruptionError, match="first batch whose own checksum is wrong begins at 0") as found:
        place.commit(good, bad)
    assert bad.name in str(found.value)
    assert place.values() == {0: [], 1: []}
    assert place.finish_all() == []


@pytest.mark.parametrize("way", ["copied", "moved"])
@pytest.mark.parametrize("number", [0, 1])
def test_damage_behind_the_commit_point_never_comes_into_a_log(place, monkeypatch, way, number):
    """The checksums that follow from the rest must not make damaged records look sound."""
    if way == "copied":
        monkeypatch.setattr(placing, "MOVED_FROM_BYTES", 2**20)
    stop_at(monkeypatch, "after prepared")
    files = place.stage_all({0: [b"first"] * 2 + [b"other"] * 2})
    dies(place, *files)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    file = place.files.open(f"{place.path}/{files[0].name}", write=True)
    file.write_at(file.read_at(0, files[0].size_bytes).index((b"first", b"other")[number]), [b"WRONG"])
    damaged = file.read_at(0, files[0].size_bytes)
    for _ in range(2):
        with pytest.raises(
            CorruptionError, match="first batch whose own checksum is wrong begins at "
        ) as found:
            place.finish_all()
        assert found.value.position == (0, decode_header(damaged).size_bytes)[number]
        assert place.values()[0] == []
    assert file.read_at(0, files[0].size_bytes) == damaged


def test_every_changed_bit_is_noticed_or_put_right(place):
    """Places had no values, so any others are put right; all else the checksums know."""
    [staged] = place.stage_all({0: [b"a", b"b", b"c"]})
    file = place.files.open(f"{place.path}/{staged.name}", write=True)
    data = file.read_at(0, staged.size_bytes)
    put_right = set()
    for position, bit in itertools.product(range(len(data)), range(8)):
        file.write_at(position, [bytes([data[position] ^ 1 << bit])])
        with contextlib.suppress(CorruptionError):
            pieces = read_staged(place.files, place.path, staged)
            assert b"".join([bytes(each.batch) for piece in pieces for each in piece]) == data
            put_right.add(position)
        file.write_at(position, [data[position : position + 1]])
    second = decode_header(data).size_bytes
    places = [*range(8), *range(12, 16), *range(17, 21), *range(43, 57)]  # with the checksum, which follows
    assert put_right == {start + position for start in (0, second) for position in places}


def test_rules_are_held_to(place):
    files = place.stage_all({0: [b"a" * 500]})
    with place.open() as store:
        store["t"].configure(max_message_bytes=200)
    with pytest.raises(InvalidRecordError, match="max_message_bytes"):
        place.commit(*files)
    assert place.values()[0] == []


def test_with_log_append_time_they_are_copied(monkeypatch):
    move_all(monkeypatch)
    place = Place()
    place.create(message_timestamp_type="LogAppendTime")
    files = place.stage_all(ROWS)
    place.clock.advance(1_000)
    place.commit(*files)
    with place.open() as store:
        assert {record.timestamp_ms for record in store["t"][0].read()} == {place.clock.now_ms()}
    place.verify()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
def test_where_a_file_can_have_no_second_name_it_is_copied(place, code):
    with place.open() as store:
        store["t"][0].extend([b"before"])
    files = place.stage_all(ROWS)
    faulty = FaultyFiles(place.files)
    faulty.fail(Fault(code, frozenset({"link"})), times=None)
    place.files = faulty
    place.commit(*files)
    assert len(faulty.failures) == 2
    assert place.values() == {0: [b"before", *ROWS[0]], 1: ROWS[1]}
    assert bases_of(place) == [0]
    assert place.staged_names() == []
    place.verify()


class ForeignFiles(MemoryFiles):
    """Staged files are another user's: they can be read."""

    def open(self, path, *, write=False, create=False):
        if write and path.endswith(".staged"):
            raise StorageError(errno.EACCES, "of another user", path)
        return super().open(path, write=write, create=create)


def test_a_file_that_cannot_be_written_to_is_copied(monkeypatch):
    move_all(monkeypatch)
    place = Place(ForeignFiles())
    place.create()
    place.commit(*place.stage_all(ROWS))
    assert place.values() == ROWS
    assert place.staged_names() == []


def test_a_full_disk_stops_nothing_for_good(place):
    files = place.stage_all(ROWS)
    faulty = FaultyFiles(place.files)
    faulty.fail(FAULTS["ENOSPC"], kinds=("link",))
    place.files = faulty
    with pytest.raises(StorageError):
        place.commit(*files)
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == ROWS


# Readers


@pytest.mark.parametrize("before", [[], [b"before"]])
def test_a_reader_elsewhere_sees_each_record_once(place, before):
    if before:
        with place.open() as store:
            store["t"][0].extend(before)
    with place.open(read_only=True) as reading:
        followed = reading["t"][0].follow(0, timeout=0)
        found = [record.value for record in followed]
        for batch in range(3):
            files = place.stage_all({0: [b"%d" % batch]}, batch=batch)
            place.commit(*files, *place.stage_all({0: [b"%d!" % batch]}, batch=batch, task=1), batch=batch)
            found += [record.value for record in reading["t"][0].follow(len(found), timeout=0)]
        assert found == [*before, b"0", b"0!", b"1", b"1!", b"2", b"2!"]
        assert [record.value for record in reading["t"][0].read()] == found


@pytest.mark.parametrize("fails", [None, "link", "seal"])
@pytest.mark.parametrize("before", [[], [b"before"]])
def test_at_each_operation_a_reader_elsewhere_sees_a_sound_log(place, monkeypatch, before, fails):
    with place.open() as store:
        store["t"][0].extend(before)
    files = place.stage_all({0: [b"a", b"b"]})
    if fails == "link":
        refused = FaultyFiles(place.files)
        refused.fail(Fault(errno.EXDEV, frozenset({"link"})))
    elif fails == "seal":
        monkeypatch.setattr(ActiveSegment, "seal", fail_once(ActiveSegment.seal))
    seen, reports = [], []

    def look(operation):
        memory.before = None
        with place.open(read_only=True) as store:
            reports.append(store.verify())
        seen.append(place.values()[0])
        memory.before = look

    memory = place.files
    place.files = refused if fails == "link" else memory
    memory.before = look
    with contextlib.suppress(StorageError):
        place.commit(*files)
    memory.before = None
    assert len(seen) > 20
    assert all(reports), str(next(report for report in reports if not report))
    assert all(values == [*before, b"a", b"b"][: len(values)] for values in seen)
    assert sorted(map(len, seen)) == [len(values) for values in seen]


def fail_once(method):
    calls = []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 1:
            raise StorageError(errno.EIO, "by the test", "")
        return method(*arguments)

    return failing
