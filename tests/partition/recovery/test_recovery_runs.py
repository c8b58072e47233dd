"""Recovery by compiled runs over the batches finds and leaves what taking them one at a time does."""

import errno
import mmap
import shutil
import sys
from types import SimpleNamespace

import pytest

from logstore.config import TopicConfig
from logstore.errors import LogstoreError, StorageError
from logstore.files import OsFile, OsFiles
from logstore.format import loops, plain
from logstore.format.batch import seal_batch
from logstore.large_files import FilePieces
from logstore.partition.recovery import tail
from logstore.partition.recovery.leftovers import list_files
from logstore.partition.recovery.loader import Loader
from logstore.partition.segments import walk
from logstore.partition.segments.segment import OpenSegments
from logstore.partition.state.sidecars import read_stored
from tests.format.shapes import Shape

needs_compiled = pytest.mark.skipif(loops.index_run is None, reason="needs the compiled module")

LOG_NAME = "00000000000000000000.log"


@pytest.fixture
def small_pieces(monkeypatch):
    """Many changes between runs and single batches in a small log."""
    monkeypatch.setattr(tail, "FIRST_PIECE_BYTES", 300)
    monkeypatch.setattr("logstore.large_files.MAPPED_PIECE_BYTES", 30_000)
    monkeypatch.setattr(walk, "PIECE_BYTES", 4000)


def recover(monkeypatch, directory, config, recovery_point, is_dense, *, by_runs, skips=True):
    """What recovery finds, or the error, and what it leaves on disk."""
    with monkeypatch.context() as patched:
        if not by_runs:
            patched.setattr(loops, "index_run", None)
            patched.setattr(walk, "scan_batches", plain.scan_batches)
        if not skips:
            patched.setattr(tail.Tail, "quiet_range", (0, 0))
        loader = Loader(
            files=OsFiles(),
            directory=str(directory),
            config=config,
            cache=OpenSegments(10),
            now_ms=1,
            recovery_point=recovery_point,
            is_dense=is_dense,
            log_start_offset=None,
            is_clean=False,
        )
        names = list_files(OsFiles(), str(directory))
        try:
            loaded = loader.load(names, read_stored(OsFiles(), str(directory), names))
        except LogstoreError as error:
            said = {name: str(value) for name, value in vars(error).items()} | {"error": str(error)}
            return type(error), {name: text.replace(str(directory), "") for name, text in said.items()}
        active = loaded.active
        active.close_indexes()
        active.store_indexes(flush=False)
        report = loaded.report
        found = (
            [segment.base_offset for segment in loaded.segments],
            loaded.log_end_offset,
            loaded.epochs.entries,
            active.size_bytes,
            active.largest_timestamp,
            active.indexes.bytes_since_entry,
            loaded.producers.snapshot_entries(),
            loaded.producers.first_unstable_offset(loaded.log_end_offset),
            (report.scanned_bytes, report.recovered_segments, report.cut_bytes, report.split_segments),
        )
        return found, {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


WAYS = {
    "one-by-one-0": {"by_runs": False},
    "by-runs-0": {"by_runs": True},
    "reads-all-twice-0": {"by_runs": False, "skips": False},
}


@needs_compiled
@pytest.mark.parametrize(
    "seed", [seed if seed < 50 else pytest.param(seed, marks=pytest.mark.slow) for seed in range(150)]
)
def test_both_ways_find_and_leave_the_same(tmp_path, monkeypatch, small_pieces, seed):
    shape = Shape(seed)
    config = TopicConfig(
        index_interval_bytes=shape.random.choice((0, 100, 1000, 4096)),
        segment_index_bytes=shape.random.choice((100, 400, 10_000_000)),
    )
    origin = tmp_path / "origin"
    origin.mkdir()
    recovery_point = 0
    is_dense = shape.gap_rate == 0.0 and shape.random.random() < 0.5
    if shape.random.random() < 0.5:  # indexes from before
        rate, shape.rate = shape.rate, 0.0
        shape.grow(60)
        shape.rate = rate
        (origin / LOG_NAME).write_bytes(shape.data)
        recover(monkeypatch, origin, config, 0, False, by_runs=False)
        recovery_point = shape.random.choice((shape.offset, shape.offset // 2))
    shape.grow(shape.random.choice((3, 100, 400)))
    shape.tear()
    (origin / LOG_NAME).write_bytes(shape.data)
    results = []
    for name, options in WAYS.items():
        directory = tmp_path / name
        shutil.copytree(origin, directory)
        results.append(recover(monkeypatch, directory, config, recovery_point, is_dense, **options))
    assert results[0] == results[1] == results[2]


@needs_compiled
@pytest.mark.parametrize("recovery_point", range(96, 108))
def test_a_gap_at_the_recovery_point(tmp_path, monkeypatch, small_pieces, recovery_point):
    """Offsets 0 to 99 and 102 to 199: the gap means loss if the batch behind it is above the point."""
    shape = Shape(0)
    shape.largest_bytes = 100
    for offset in (*range(100), *range(102, 200)):
        shape.batch(base_offset=offset, last_offset_delta=0, record_count=1)
    results = []
    for name, options in WAYS.items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / LOG_NAME).write_bytes(shape.data)
        results.append(recover(monkeypatch, directory, TopicConfig(), recovery_point, True, **options))
    assert results[0] == results[1] == results[2]


@needs_compiled
@pytest.mark.parametrize("first", range(2**31 - 4, 2**31 + 2))
def test_the_end_of_what_an_index_reaches(tmp_path, monkeypatch, small_pieces, first):
    """A batch whose last offset is 2^31 or more above the base makes the segment be split."""
    shape = Shape(0)
    shape.largest_bytes = 100
    for offset in (*range(100), *range(first, first + 3)):
        shape.batch(base_offset=offset, last_offset_delta=0, record_count=1)
    results = []
    for name, options in WAYS.items():
        directory = tmp_path / name
        directory.mkdir()
        (directory / LOG_NAME).write_bytes(shape.data)
        results.append(recover(monkeypatch, directory, TopicConfig(), 0, False, **options))
    assert results[0] == results[1] == results[2]
    assert len(results[0][0][0]) == (1 if first + 2 < 2**31 else 2)


def write_long_log(path, batch_bytes=10_000, count=300):
    shape = Shape(0)
    shape.rate = shape.gap_rate = 0.0
    for _ in range(count):
        header = shape.header(attributes=0)
        shape.add(seal_batch(header, b"r" * batch_bytes))
        shape.offset = header.next_offset
    path.mkdir()
    (path / LOG_NAME).write_bytes(shape.data)
    return shape


def pieces_of(monkeypatch):
    """The type of each buffer that a run goes over."""
    found = []

    class WatchedPieces(FilePieces):
        def piece(self, position):
            piece = super().piece(position)
            found.append(type(piece[0]))
            return piece

    monkeypatch.setattr(tail, "FilePieces", WatchedPieces)
    return found


@needs_compiled
@pytest.mark.skipif(sys.platform != "linux", reason="pages can be loaded with an error on Linux alone")
def test_a_run_goes_over_the_mapped_file(tmp_path, monkeypatch):
    shape = write_long_log(tmp_path / "t-0")
    buffers = pieces_of(monkeypatch)
    found, _ = recover(monkeypatch, tmp_path / "t-0", TopicConfig(), 0, False, by_runs=True)
    assert found[1] == shape.offset
    assert buffers == [mmap.mmap]


@needs_compiled
def test_a_file_whose_pages_cannot_be_loaded_is_read(tmp_path, monkeypatch):
    shape = write_long_log(tmp_path / "t-0")
    monkeypatch.setattr("logstore.large_files.compiled", SimpleNamespace(load_pages=lambda *_: False))
    buffers = pieces_of(monkeypatch)
    found, _ = recover(monkeypatch, tmp_path / "t-0", TopicConfig(), 0, False, by_runs=True)
    assert found[1] == shape.offset
    assert set(buffers) == {bytes}


@needs_compiled
def test_a_file_that_cannot_be_mapped_is_read(tmp_path, monkeypatch):
    shape = write_long_log(tmp_path / "t-0")

    def refuse(self):
        raise StorageError(errno.ENODEV, "no maps here", self.path)

    monkeypatch.setattr(OsFile, "map", refuse)
    buffers = pieces_of(monkeypatch)
    found, _ = recover(monkeypatch, tmp_path / "t-0", TopicConfig(), 0, False, by_runs=True)
    assert found[1] == shape.offset
    assert set(buffers) == {bytes}
