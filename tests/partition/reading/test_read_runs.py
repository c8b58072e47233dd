"""Reading in lists: runs of ordinary batches, which the compiled module takes at once, are what the careful
reader reads batch by batch, error included."""

import itertools
import os
import random
import tracemalloc

import pytest

from logstore import build
from logstore.errors import CorruptionError
from logstore.format import loops
from logstore.format.batch import decode_header, seal_batch
from logstore.format.compression import Codec
from logstore.format.header import HEADER_BYTES
from logstore.model import Isolation
from logstore.partition.reading import records as reading
from tests.partition.helpers_rules import add, add_batches, open_log
from tests.partition.log_shapes import SHAPES, add_rows, carefully, encoded
from tests.partition.reading import test_byte_flips

pytestmark = pytest.mark.skipif(
    build.compiled is None, reason="there is nothing to compare without the module"
)


@pytest.fixture(params=SHAPES)
def shaped(request, tmp_path):
    log = SHAPES[request.param](tmp_path / "t-0")
    yield log
    log.close()


def ranges(log, count=40):
    start, end = log.log_start_offset, log.log_end_offset
    chance = random.Random(1)
    yield start, end
    for _ in range(count):
        first = chance.randrange(start, end + 1)
        yield first, chance.choice((end, first, first + 1, first + 2, chance.randrange(first, end + 2)))


@pytest.mark.parametrize("isolation", Isolation)
def test_any_range_is_what_the_careful_reader_reads(shaped, isolation):
    shaped.flush()
    for start, stop in ranges(shaped):
        assert list(shaped.read(start, stop, isolation=isolation)) == carefully(
            shaped, start, stop, isolation=isolation
        )


def test_records_on_demand_are_the_same(shaped):
    for start, stop in ranges(shaped, 5):
        assert list(shaped.read(start, stop, on_demand=True)) == carefully(shaped, start, stop)


@pytest.mark.parametrize("run_bytes", [1, 100, 1000])
def test_whatever_the_length_of_a_run(shaped, run_bytes, monkeypatch):
    monkeypatch.setattr(reading, "RUN_BYTES", run_bytes)
    assert list(shaped.read()) == carefully(shaped)


@pytest.mark.parametrize("piece_bytes", [17, 100, 700, 5000])
def test_wherever_a_piece_of_the_file_ends(shaped, piece_bytes, monkeypatch):
    expected = carefully(shaped)
    monkeypatch.setattr(reading, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(reading, "FIRST_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(reading, "_SHORT_READ_BYTES", 0)
    assert list(shaped.read()) == expected
    start = expected[0].offset + 3
    assert list(shaped.read(start)) == [record for record in expected if record.offset >= start]


def test_following_reads_the_same(shaped):
    assert list(shaped.follow(shaped.log_start_offset, timeout=0)) == carefully(shaped)


def test_lists_are_never_empty(shaped):
    view = shaped._current_view()
    lists = list(reading.record_lists(view, view.log_start_offset, view.log_end_offset, Isolation.LOG_END))
    assert all(lists)


def test_ordinary_logs_are_taken_in_runs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "scan_batches", None)
    for name in ("one record a batch", "small batches", "large batches", "segments", "append times", "gaps"):
        log = SHAPES[name](tmp_path / f"{name.replace(' ', '')}-0")
        assert len(list(log.read())) > 40


def test_the_ends_of_a_run_have_the_same_names_in_both():
    names = ("RUN_FULL", "RUN_CUT", "RUN_ODD", "RUN_DONE")
    assert [getattr(loops, name) for name in names] == [getattr(build.compiled, name) for name in names]


# Damage


def outcome(read):
    """The records, and the error behind them."""
    records = []
    try:
        records.extend(read)
    except CorruptionError as error:
        return records, str(error)
    return records, None


def lists_of(log, start, run):
    view = log._current_view()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read_run", run)
        lists = reading.record_lists(view, start, view.log_end_offset, Isolation.LOG_END)
        return outcome(itertools.chain.from_iterable(lists))


@pytest.mark.parametrize("is_sealed", [False, True], ids=["active", "sealed"])
def test_a_changed_byte_makes_the_same_error_behind_the_same_records(tmp_path, is_sealed):
    partition = test_byte_flips.make_log(tmp_path / "t-0", with_next_segment=is_sealed)
    data = partition.file().read_bytes()
    descriptor = os.open(partition.file(), os.O_RDWR)
    errors = 0
    for position in [*test_byte_flips.sampled(partition, 997)][::3]:
        with test_byte_flips.changed_byte(descriptor, data, position):
            start = position * 128 // len(data) // 16 * 16
            careful = lists_of(partition.log, start, None)
            assert lists_of(partition.log, start, reading.read_run) == careful
            errors += careful[1] is not None
    os.close(descriptor)
    partition.crash()
    assert errors > 200


@pytest.mark.damaged
def test_all_records_in_front_of_the_damage_come_first(tmp_path):
    log = open_log(tmp_path / "t-0")
    add_rows(log, *[5] * 20)
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    records, error = outcome(log.read())
    assert [record.offset for record in records] == list(range(95))
    assert error is not None


@pytest.mark.damaged
def test_records_that_are_wrong_under_a_right_checksum_end_a_run_in_front_of_their_batch(tmp_path):
    log = open_log(tmp_path / "t-0")
    add_rows(log, 3, 3)
    lying = bytes(encoded(6, 3))
    section = bytearray(lying[HEADER_BYTES:])
    section[3] = 0x7F
    log.close()
    with (tmp_path / "t-0" / f"{0:020}.log").open("ab") as file:
        file.write(seal_batch(decode_header(lying), bytes(section)))
        file.write(encoded(9, 3))
    log = open_log(tmp_path / "t-0")
    records, error = outcome(log.read())
    assert [record.offset for record in records][:6] == list(range(6))
    assert (records, error) == lists_of(log, 0, None)


# Laziness and memory


def test_a_read_takes_a_piece_at_a_time(tmp_path, monkeypatch):
    log = open_log(tmp_path / "t-0")
    add_batches(log, 400, size_bytes=5000)
    reads = []
    read_at = type(log.writer.core.active).read_at
    monkeypatch.setattr(
        type(log.writer.core.active),
        "read_at",
        lambda self, *where: reads.append(where) or read_at(self, *where),
    )
    records = log.read()
    assert not reads
    next(records)
    assert sum(size for _, size in reads) <= 64 * 1024
    list(records)
    assert max(size for _, size in reads) <= 1024 * 1024
    assert len(reads) < 10


@pytest.mark.parametrize("count", [1, 100, 5000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_memory_of_a_read_is_bounded(tmp_path, count, codec):
    log = open_log(tmp_path / "t-0")
    for _ in range(100_000 // count // (20 if count == 1 else 1)):
        add(log, *[os.urandom(100)] * count) if codec is Codec.NONE else log.append_replicated(
            encoded(log.log_end_offset, count, codec=codec)
        )
    list(log.read(0, 10))
    tracemalloc.start()
    for _ in log.read():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * 1024 * 1024


def test_a_record_on_demand_outlives_the_log(tmp_path):
    log = open_log(tmp_path / "t-0")
    add_rows(log, 30)
    expected = carefully(log)
    records = list(log.read(on_demand=True))
    log.truncate_to(0)
    add(log, b"other")
    log.close()
    assert records == expected
