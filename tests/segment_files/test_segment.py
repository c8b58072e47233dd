"""A segment file opened by path reads as the log does that it belongs to."""

import copy
import errno
import inspect
import os
import random
import shutil
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import logstore
from logstore import Segment
from logstore.errors import ClosedError, CorruptionError, OffsetOutOfRangeError, StorageError, UsageError
from logstore.files import OsFiles
from logstore.partition.checking.findings import FindingKind
from logstore.segment_files import OffsetIndex, SegmentBatch, TimeIndex
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.interop.fixtures import case_names, load_case
from tests.logdir.helpers import run_python, snapshot
from tests.partition.helpers import batch_of, time_of, value_of
from tests.segment_files.helpers import lone_copy, offsets_of, written_segment

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def path(tmp_path):
    return written_segment(tmp_path)


# What it shows ----------------------------------------------------------------------------------------------


def test_records_columns_and_batches_are_those_of_the_log(path):
    before = snapshot(path.parent)
    with Segment.open(path) as segment:
        assert (segment.base_offset, segment.next_offset, segment.trailing_bytes) == (0, 60, 0)
        assert segment.size_bytes == path.stat().st_size
        assert offsets_of(segment) == list(range(60))
        assert [record.offset for record in segment] == list(range(60))
        table = segment.read_arrow()
        assert table.to_pylist() == [
            {"offset": o, "timestamp_ms": time_of(o), "key": None, "value": value_of(o), "headers": []}
            for o in range(60)
        ]
        batches = list(segment.batches())
        assert [batch.base_offset for batch in batches] == list(range(0, 60, 5))
        assert sum(batch.size_bytes for batch in batches) == segment.size_bytes
        assert [batch.position for batch in batches[1:]] == [b.position + b.size_bytes for b in batches[:-1]]
        assert all(batch.is_sound for batch in batches)
        assert segment.check()
    assert snapshot(path.parent) == before


def test_a_batch_shows_its_header(tmp_path):
    with logstore.Log.open(tmp_path / "log") as log:
        identity = logstore.ProducerIdentity(9, 3, 0, transactional=True)
        log.extend([logstore.NewRecord(b"v", timestamp_ms=5), (b"k", b"w")], producer=identity)
        log.append_end_marker(9, 3, committed=False)
        log.assign_leader_epoch(4)
        log.extend([(b"k", b"v" * 500)])
        log.flush()
        data = Path(log.directory, "00000000000000000000.log").read_bytes()
    path = tmp_path / "a.log"
    path.write_bytes(data)
    first, marker, last = Segment.open(path).batches()
    assert first[:7] == (0, 1, 2, 0, first.size_bytes, 2, "none")
    assert first.base_timestamp_ms == 5
    assert first[10:17] == (0, 9, 3, 0, True, False, -1)
    assert (marker.is_control, marker.is_transactional, marker.record_count) == (True, True, 1)
    assert (last.leader_epoch, last.producer_id, last.position) == (
        4,
        -1,
        marker.position + marker.size_bytes,
    )
    assert not any(batch.damage for batch in (first, marker, last))
    assert offsets_of_any(Segment.open(path)) == [0, 1, 3]


def offsets_of_any(segment):
    return [record.offset for record in segment.records()]


@pytest.mark.parametrize("name", case_names())
def test_what_a_broker_wrote(name):
    """All files of all partitions that a stock broker wrote: the records that its own consumer saw, and
    nothing wrong."""
    for expected in load_case(name).partitions:
        found, columns = [], []
        for path in sorted(expected.directory.glob("*.log")):
            with Segment.open(path) as segment:
                found += segment.records()
                columns += segment.read_arrow().to_pylist()
                assert segment.check(), str(segment.check())
                assert all(batch.is_sound for batch in segment.batches())
                assert segment.next_offset <= expected.log_end_offset
                aborted = segment.transaction_index or ()
                assert all(entry.last_offset < segment.next_offset for entry in aborted)
        assert [row["offset"] for row in columns] == [record.offset for record in found]
        seen = [r for r in found if r.offset >= expected.log_start_offset]
        assert [tuple(r) for r in seen] == [
            (r.offset, r.timestamp_ms, r.key, r.value, tuple(tuple(h) for h in r.headers))
            for r in expected.records
        ]


@pytest.mark.parametrize("suffixes", [(".log", ".index", ".timeindex"), (".log",)], ids=["indexed", "alone"])
@pytest.mark.parametrize("base", [0, 5_000_000_000])
def test_every_place_of_a_file_can_be_begun_at(tmp_path, suffixes, base):
    path = lone_copy(written_segment(tmp_path, base=base), tmp_path / "copy", suffixes=suffixes)
    with Segment.open(path) as segment:
        assert segment.base_offset == base
        everything = list(segment.records())
        for start in range(60):
            assert offsets_of(segment, base + start, base + start + 7) == list(
                range(base + start, base + min(start + 7, 60))
            )
            assert list(segment.records(base + start)) == everything[start:]
            assert segment.record_at(base + start) == everything[start]
            assert segment.offset_at(time_of(base + start)) == base + start
            assert segment.offset_at(time_of(base + start) - 999) == base + start
            assert segment.read_arrow(base + start, columns=["offset"])["offset"][0].as_py() == base + start
        assert segment.offset_at(time_of(base + 60)) is None
        assert list(segment.records(base + 60)) == []
        assert segment.read_arrow(base + 60).num_rows == 0
    assert sorted(each.suffix for each in path.parent.iterdir()) == sorted(suffixes)


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("00000000000000000000.log.deleted", "00000000000000000000.index.deleted"),
        ("00000000000000000000.log.swap", "00000000000000000000.index.swap"),
        ("copy.log", "copy.index"),
        ("a.log.b.log", "a.log.b.index"),
        ("segment", "segment.index"),
    ],
)
def test_a_file_of_any_name_finds_its_indexes(path, tmp_path, name, index):
    for source, target in ((path, name), (path.with_suffix(".index"), index)):
        shutil.copy(source, tmp_path / target)
    shutil.copy(path.with_suffix(".timeindex"), tmp_path / index.replace("index", "timeindex"))
    with Segment.open(tmp_path / name) as segment:
        assert offsets_of(segment) == list(range(60))
        assert segment.offset_index.path == str(tmp_path / index)
        assert len(segment.offset_index) == len(OffsetIndex.open(path.with_suffix(".index")))
        assert len(segment.time_index) > 1
        assert segment.transaction_index is None
        assert not segment.check().notes


def test_the_base_offset_is_the_first_batchs_where_no_name_says_it(tmp_path):
    path = written_segment(tmp_path, base=70)
    target = tmp_path / "renamed"
    shutil.copy(path, target)
    assert Segment.open(target).base_offset == 70
    assert offsets_of(Segment.open(target)) == list(range(70, 130))
    assert Segment.open(target, base_offset=60).base_offset == 60
    assert offsets_of(Segment.open(target, base_offset=60), 60, 75) == list(range(70, 75))


@pytest.mark.parametrize("name", case_names("legacy-"))
def test_the_first_offset_of_an_old_file_without_a_name(tmp_path, name):
    """A compressed batch of old has its last offset in front."""
    path = next(load_case(name).partitions[0].directory.glob("*.log"))
    shutil.copy(path, tmp_path / "old")
    with Segment.open(path) as named, Segment.open(tmp_path / "old") as nameless:
        found = list(named.records())
        assert nameless.base_offset == found[0].offset
        assert list(nameless.records()) == found


def test_offsets_outside_the_file_are_told(path):
    with Segment.open(path) as segment:
        for call in (segment.records, segment.record_at, segment.read_arrow):
            with pytest.raises(OffsetOutOfRangeError, match="which holds 0 to 60"):
                call(61)
        with pytest.raises(OffsetOutOfRangeError):
            segment.record_at(60)
    with Segment.open(path, base_offset=0) as segment, pytest.raises(OffsetOutOfRangeError):
        segment.records(-1)


def test_an_empty_file(tmp_path):
    path = tmp_path / "00000000000000000042.log"
    path.touch()
    with Segment.open(path) as segment:
        assert (segment.base_offset, segment.next_offset, segment.trailing_bytes) == (42, 42, 0)
        assert list(segment) == list(segment.batches()) == []
        assert segment.read_arrow().num_rows == 0
        assert segment.offset_at(0) is None
        assert segment.check()
        assert segment.offset_index is segment.time_index is segment.transaction_index is None
        with pytest.raises(OffsetOutOfRangeError):
            segment.record_at(42)
    assert Segment.open(tmp_path / "00000000000000000042.log").check().segment_count == 1


# What is no segment -----------------------------------------------------------------------------------------


def test_no_file(tmp_path):
    with pytest.raises(StorageError) as caught:
        Segment.open(tmp_path / "nowhere.log")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(CorruptionError, match=r"not a regular file; give .* \.log files, or Log\.open\(\)"):
        Segment.open(tmp_path)
    (tmp_path / "link.log").symlink_to(tmp_path / "nowhere.log")
    with pytest.raises(CorruptionError, match="symbolic link"):
        Segment.open(tmp_path / "link.log")


def test_no_permission(path):
    files = FaultyFiles(OsFiles())
    files.fail(FAULTS["EACCES"], kinds={"open"})
    with pytest.raises(StorageError) as caught:
        Segment.open(path, files=files)
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize(
    "data", [b"x", bytes(16), bytes(17), bytes(10_000), os.urandom(10_000), b"text\n" * 1_000], ids=len
)
def test_any_file_can_be_opened_and_what_is_no_batch_is_told(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    with Segment.open(path) as segment:
        assert segment.trailing_bytes == len(data)
        for read in (lambda: list(segment), lambda: list(segment.batches()), segment.read_arrow):
            with pytest.raises(CorruptionError) as caught:
                read()
            assert (caught.value.path, caught.value.position) == (str(path), 0)
        with pytest.raises(CorruptionError):
            segment.offset_at(0)
        [problem] = segment.check().problems
        assert (problem.kind, problem.position) == (FindingKind.BATCH, 0)


def test_a_closed_one_says_so(path):
    segment = Segment.open(path)
    reading = segment.records()
    assert next(reading).offset == 0
    segment.close()
    segment.close()
    assert len(list(reading)) == 59
    for use in (segment.records, segment.batches, segment.check, lambda: segment.record_at(0)):
        with pytest.raises(ClosedError, match="open it again"):
            use()
    for name in ("size_bytes", "next_offset", "offset_index", "transaction_index"):
        with pytest.raises(ClosedError):
            getattr(segment, name)


def test_the_descriptor_goes_with_the_last_reader(path):
    before = len(os.listdir("/proc/self/fd"))
    with Segment.open(path) as segment:
        reading = segment.records()
        next(reading)
        assert len(segment.offset_index) > 1
    del reading
    assert len(os.listdir("/proc/self/fd")) == before


def test_it_stays_in_its_process(path):
    with Segment.open(path) as segment, OffsetIndex.open(path.with_suffix(".index")) as index:
        for each in (segment, index):
            with pytest.raises(TypeError, match="cannot be pickled or copied"):
                copy.deepcopy(each)


def test_many_threads_read_one_segment(tmp_path):
    path = written_segment(tmp_path, count=2_000, batch=7)
    path.with_suffix(".timeindex").unlink()  # built in memory by whoever comes first
    with Segment.open(path) as segment, ThreadPoolExecutor(8) as threads:
        starts = [random.Random(number).randrange(2_000) for number in range(64)]
        assert list(threads.map(lambda at: offsets_of(segment, at), starts)) == [
            list(range(at, 2_000)) for at in starts
        ]
        assert [record.offset for record in threads.map(segment.record_at, starts)] == starts


# The ends of files ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_torn_end_is_told_after_everything_in_front_of_it(path, is_indexed, monkeypatch):
    monkeypatch.setattr("logstore.segment_files.segment._SETTLING_S", 0)
    data = path.read_bytes()
    if not is_indexed:
        path.with_suffix(".index").unlink()
    with Segment.open(path) as segment:
        *_, last = segment.batches()
    for cut in range(last.position + 1, len(data)):
        path.write_bytes(data[:cut])
        with Segment.open(path) as segment:
            assert (segment.next_offset, segment.trailing_bytes) == (55, cut - last.position)
            assert offsets_of(segment, 0, 55) == list(range(55))
            reading = segment.records()
            assert [next(reading).offset for _ in range(55)] == list(range(55))
            with pytest.raises(CorruptionError) as caught:
                next(reading)
            assert (caught.value.position, caught.value.base_offset) == (last.position, 55)
            with pytest.raises(CorruptionError):
                segment.records(58)
            with pytest.raises(CorruptionError):
                segment.read_arrow()
            assert segment.read_arrow(0, 55).num_rows == 55
            report = segment.check()
            assert FindingKind.BATCH in {problem.kind for problem in report.problems}
            assert report.record_count == 55


def test_the_zeros_of_a_file_that_was_allocated_in_advance(path):
    size_bytes = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes(5_000))
    with Segment.open(path) as segment:
        assert segment.trailing_bytes == 5_000
        assert offsets_of(segment, 0, segment.next_offset) == list(range(60))
        with pytest.raises(CorruptionError, match="5000 bytes") as caught:
            list(segment)
        assert caught.value.position == size_bytes


def test_a_file_that_grows_while_it_is_read(tmp_path):
    """Every read is a prefix, and none is damage."""
    path = tmp_path / "00000000000000000000.log"
    path.touch()

    def write():
        with path.open("ab", buffering=0) as file:
            for base in range(0, 1_000, 5):
                file.write(batch_of(base, 5))

    reads = []
    with Segment.open(path) as segment:
        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            reads.append(offsets_of(segment))
            assert all(batch.is_sound for batch in segment.batches())
            assert segment.read_arrow(columns=["offset"])["offset"].to_pylist()[: len(reads[-1])] == reads[-1]
            assert segment.next_offset >= len(reads[-1])
        writer.join()
        reads.append(offsets_of(segment))
        assert segment.check()
    assert reads[-1] == list(range(1_000))
    assert all(found == list(range(len(found))) for found in reads)


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize("use", ["records", "batches", "read_arrow", "offset_at", "check"])
def test_a_batch_that_is_just_being_written(tmp_path, monkeypatch, use, is_finished):
    """The reader waits a moment for the rest of it, and only then says that there is none."""
    path = tmp_path / "00000000000000000000.log"
    batch = bytes(batch_of(5, 5))
    path.write_bytes(bytes(batch_of(0, 5)) + batch[:100])
    waits = []

    def finish(seconds):
        waits.append(seconds)
        if is_finished and len(waits) == 1:
            with path.open("ab") as file:
                file.write(batch[100:])

    monkeypatch.setattr("time.sleep", finish)
    with Segment.open(path) as segment:
        if use == "check":
            finish(0)  # it looks twice by itself
            assert bool(segment.check()) is is_finished
            return
        arguments = {"offset_at": (time_of(1_000),)}.get(use, ())

        def count():
            found = getattr(segment, use)(*arguments)
            return found.num_rows if use == "read_arrow" else found and len(list(found))

        if is_finished:
            assert count() == {"batches": 1, "offset_at": None}.get(use, 5)
        else:
            with pytest.raises(CorruptionError) as caught:
                count()
            assert caught.value.position == len(bytes(batch_of(0, 5)))
        assert len(waits) == 1
        assert segment.next_offset == (10 if is_finished else 5)


def test_what_is_added_belongs_to_later_reads(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(batch_of(0, 5))
    with Segment.open(path) as segment:
        reading = segment.records()
        assert segment.next_offset == 5
        with path.open("ab") as file:
            file.write(batch_of(5, 5))
        assert [record.offset for record in reading] == list(range(5))
        assert segment.next_offset == 10
        assert offsets_of(segment, 7) == [7, 8, 9]
        assert segment.record_at(9).value == value_of(9)


def test_a_file_that_is_cut_while_it_is_read_is_an_error_and_no_signal(tmp_path):
    """Whoever maps such a file dies of it, so another process reads."""
    code = (
        "import sys, os, logstore\n"
        "segment = logstore.Segment.open(sys.argv[1])\n"
        "index = segment.offset_index\n"
        "readings = [segment.records(), iter(segment.iterate_arrow(batch_rows=10)), segment.batches()]\n"
        "for each in readings: next(each)\n"
        "for name in os.listdir(os.path.dirname(sys.argv[1])):\n"
        "    os.truncate(os.path.join(os.path.dirname(sys.argv[1]), name), 0)\n"
        "index.lookup(5), index[0], index.read_entries().sum\n"
        "for each in readings:\n"
        "    try:\n"
        "        for _ in each: pass\n"
        "    except logstore.CorruptionError as error: print('told')\n"
        "try: segment.record_at(50_000)\n"
        "except logstore.LogstoreError as error: print(type(error).__name__)\n"
        "try: index.entries\n"
        "except logstore.CorruptionError as error: print(error.reason)\n"
    )
    path = written_segment(tmp_path, count=60_000, batch=500, segment_bytes=2**26)
    assert run_python(code, str(path)).splitlines() == [
        "told",
        "told",
        "told",
        "OffsetOutOfRangeError",
        f"became shorter than {len(OffsetIndex.open(path.with_suffix('.index'))) * 8 or 8 * 119} bytes",
    ]


def test_memory_is_bounded(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    with path.open("wb") as file:
        for base in range(0, 16_000, 100):
            file.write(batch_of(base, 100, size_bytes=1_000))
    uses = [
        lambda segment: segment.records(),
        lambda segment: segment.batches(),
        lambda segment: segment.iterate_arrow(batch_bytes=2**20),
        lambda segment: [segment.check()],
    ]
    for use in uses:
        with Segment.open(path) as segment:
            tracemalloc.start()
            try:
                for _ in use(segment):
                    pass
                assert tracemalloc.get_traced_memory()[1] < 6 * 2**20
            finally:
                tracemalloc.stop()


# A disk that fails ------------------------------------------------------------------------------------------


def test_a_bad_sector_is_an_error_and_in_an_index_none_at_all(path):
    files = FaultyFiles(OsFiles())
    with Segment.open(path, files=files) as segment:
        files.fail(FAULTS["EIO"], kinds={"read"}, path="index", times=None)
        assert offsets_of(segment, 30) == list(range(30, 60))  # the log tells the same
        with pytest.raises(StorageError):
            segment.offset_index  # noqa: B018
        files.fail(FAULTS["EIO"], kinds={"read"}, path=".log", times=None)
        with pytest.raises(StorageError):
            list(segment.records(0, 60))
        problems = segment.check().problems
        assert FindingKind.UNREADABLE in {problem.kind for problem in problems}


def test_a_disk_in_memory(path):
    files = MemoryFiles()
    for each in path.parent.iterdir():
        files.make_directory("/d")
        file = files.open(f"/d/{each.name}", create=True)
        file.write_at(0, [each.read_bytes()])
        file.close()
    with Segment.open(f"/d/{path.name}", files=files) as segment:
        assert offsets_of(segment) == list(range(60))
        assert segment.check()
        assert list(segment.offset_index.positions) == list(
            OffsetIndex.open(path.with_suffix(".index")).positions
        )


# Words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [Segment, OffsetIndex, TimeIndex, SegmentBatch], ids=lambda kind: kind.__name__
)
def test_every_public_name_is_described_and_takes_few_arguments_by_place(kind):
    assert len(inspect.getdoc(kind)) > 100
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or (
            not isinstance(member, property | classmethod) and not inspect.isfunction(member)
        ):
            continue
        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
        assert function.__doc__, name
        by_place = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.kind is each.POSITIONAL_OR_KEYWORD
        ]
        assert len(by_place) <= 3, name


def test_the_public_classes_are_not_the_engines():
    from logstore.partition.segments.indexes import OffsetIndex as EngineIndex
    from logstore.partition.segments.segment import Segment as EngineSegment

    assert not {EngineIndex, EngineSegment} & {logstore.Segment, logstore.OffsetIndex}
    engine_only = {"rename_files", "keep_open", "flush", "rebuild_indexes", "walk", "read_at"}
    assert not engine_only & set(dir(Segment))


def test_they_are_loaded_when_they_are_asked_for():
    code = (
        "import sys, logstore\n"
        "print('logstore.segment_files' in sys.modules)\n"
        "logstore.Segment, logstore.OffsetIndex\n"
        "print('logstore.segment_files' in sys.modules, 'numpy' in sys.modules)"
    )
    assert run_python(code).split() == ["False", "True", "False"]


def test_a_wrong_path_says_what_is_wanted():
    with pytest.raises(UsageError, match=r"it must be the path of a \.log file"):
        Segment.open("")
