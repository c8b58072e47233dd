"""Files that are not what was written: cut, zeroed, lengthened, repeated, re-ordered, replaced by something
that is no file at all, lying about their sizes and counts, or from a version yet to come."""

from __future__ import annotations

import os
import tracemalloc
import zlib

import pytest

from logstore.errors import CorruptionError, LogstoreError, StorageError, UnsupportedVersionError
from logstore.format.batch import MAX_DECOMPRESSED_BYTES, seal_batch
from logstore.format.compression import Codec, compress
from logstore.format.header import HEADER_BYTES, decode_header
from logstore.format.layout import BATCH_HEADER
from logstore.model import Isolation, ProducerIdentity
from tests.partition.helpers import batch_of, read_or_refuse

pytestmark = pytest.mark.damaged


def read_to_the_damage(partition):
    """The offsets up to where a read is refused."""
    found = []
    with pytest.raises(CorruptionError) as refused:
        take_offsets(found, partition.log.read())
    assert refused.value.path == str(partition.file())
    assert refused.value.position is not None
    return found


def take_offsets(found, records):
    for record in records:
        found.append(record.offset)


# Lengths


def test_a_log_cut_at_any_length_after_a_crash_is_a_prefix(partition):
    partition.write(12, batch=3)
    partition.crash()
    ends = [position + header.size_bytes for position, header in partition.batches()]
    for size in range(0, ends[-1] + 1, 11):
        copy = partition.copy()
        copy.truncate_file(size)
        copy.open()
        assert copy.read() == list(range(3 * sum(end <= size for end in ends))), size
        copy.crash()


def test_a_log_cut_at_any_length_after_a_clean_stop_is_reported(partition):
    partition.write(12, batch=3)
    partition.close()
    for size in range(0, partition.file().stat().st_size, 17):
        copy = partition.copy()
        copy.truncate_file(size)
        with pytest.raises(CorruptionError, match="durable"):
            copy.open()


def test_a_sealed_segment_cut_at_any_length_is_reported(partition):
    partition.write_segments(12, 3, batch=3)
    partition.close()
    whole = partition.file().read_bytes()
    for size in range(0, len(whole), 17):
        partition.write_file(whole[:size])
        partition.open()
        assert read_or_refuse(partition.read, range(15)), size
        assert partition.read(12) == [12, 13, 14]
        partition.close()


@pytest.mark.parametrize("start", [0, 1, 17, 100, 400])
def test_a_log_zero_filled_from_anywhere_after_a_crash_is_a_prefix(partition, start):
    partition.write(12, batch=3)
    partition.crash()
    data = partition.file().read_bytes()
    partition.write_file(data[:start] + bytes(len(data) - start))
    partition.open()
    assert partition.read() == list(range(3 * (start // (len(data) // 4))))


@pytest.mark.parametrize("garbage", [b"x", b"\xff" * 100, bytes(range(256)) * 20])
def test_garbage_behind_a_sealed_segment_is_reported_behind_its_records(partition, garbage):
    partition.write_segments(6, 6)
    partition.close()
    partition.extend_file(garbage)
    found = read_to_the_damage(partition)
    assert found in (
        list(range(5)),
        list(range(6)),
    )  # garbage that could be a base offset accuses its neighbour
    assert partition.read(6) == list(range(6, 12))


# Batches in the wrong place


def test_a_batch_that_comes_twice_is_cut_after_a_crash(partition):
    partition.write(6, batch=3)
    partition.crash()
    partition.extend_file(partition.file().read_bytes()[partition.batches()[1][0] :])
    report = partition.open().recovery
    assert partition.read() == list(range(6))
    assert report.cut_bytes == partition.batches()[1][1].size_bytes


def test_a_batch_that_comes_twice_in_a_sealed_segment_is_reported(partition):
    partition.write_segments(6, 6, batch=3)
    partition.close()
    partition.extend_file(partition.file().read_bytes()[partition.batches()[1][0] :])
    assert read_to_the_damage(partition) == [0, 1, 2]


@pytest.mark.parametrize("is_clean", [True, False])
def test_batches_in_the_wrong_order_are_reported_or_cut(partition, is_clean):
    partition.write_segments(9, 3, batch=3)
    partition.close() if is_clean else partition.crash()
    data = partition.file().read_bytes()
    size = len(data) // 3
    partition.write_file(data[:size] + data[2 * size :] + data[size : 2 * size])
    partition.open()
    if is_clean:
        assert read_to_the_damage(partition) == [0, 1, 2]
    else:
        assert partition.read() == [0, 1, 2]
        assert partition.bases() == [0]


def test_a_segment_of_another_log_is_reported(partition, tmp_path):
    partition.write_segments(6, 6)
    partition.close()
    partition.write_file(batch_of(100, 6))
    assert read_to_the_damage(partition) == []


# Things that are no files


def test_a_symlinked_log_is_refused(partition, tmp_path):
    partition.write_segments(3, 3)
    partition.close()
    partition.file().rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", partition.file())
    with pytest.raises(CorruptionError, match="symbolic link") as refused:
        partition.read()
    assert refused.value.path == str(partition.file())


@pytest.mark.parametrize("base", [0, 3])
def test_a_pipe_instead_of_a_log_is_refused_without_waiting(partition, base):
    partition.write_segments(3, 3)
    partition.close()
    partition.file(base).unlink()
    os.mkfifo(partition.file(base))
    with pytest.raises(CorruptionError, match="not a regular file"):
        partition.read()


def test_a_directory_named_like_a_segment_is_left_alone(partition):
    partition.write_segments(3, 3)
    partition.close()
    partition.file(100).mkdir()
    assert partition.read() == list(range(6))
    assert partition.file(100).is_dir()


def test_a_directory_in_the_place_of_the_first_segment_is_an_error(partition):
    partition.file().mkdir(parents=True)
    with pytest.raises(StorageError, match="directory"):
        partition.open()


def test_names_that_are_not_ours_are_left_alone(partition):
    partition.write(3)
    partition.close()
    for name in ("notes.txt", "1.log", "00000000000000000003.log.bak", "-0000000000000000001.log"):
        (partition.path / name).write_bytes(b"mine")
    assert partition.read() == [0, 1, 2]
    assert (partition.path / "1.log").read_bytes() == b"mine"


# Lies under a right checksum


def lying_batch(base_offset=0, records=b"", codec=Codec.NONE, **fields):
    """A batch whose checksum is right and whose header says what it likes."""
    like = decode_header(batch_of(0, 3))
    header = like._replace(base_offset=base_offset, attributes=int(codec), **fields)
    return seal_batch(header, records or bytes(batch_of(0, 3)[HEADER_BYTES:]))


LIES = {
    "record count 4": {"record_count": 4, "last_offset_delta": 3},
    "record count 2": {"record_count": 2},
    "record count 0": {"record_count": 0},
    "record count -1": {"record_count": -1},
    "record count 2^31 - 1": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2},
    "last offset delta 0": {"last_offset_delta": 0},
    "last offset delta -1": {"last_offset_delta": -1},
    "codec 7": {"codec": 7},
    "gzip that is none": {"codec": Codec.GZIP},
    "zstd that is none": {"codec": Codec.ZSTD},
    "garbage records": {"records": b"\xff" * 50},
    "base offset beyond 64 bits": {"base_offset": 2**63 - 2},
}


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_a_sealed_batch_that_lies_is_reported(partition, lie):
    partition.write_segments(3, 3)
    partition.close()
    partition.write_file(lying_batch(**LIES[lie]))
    assert read_to_the_damage(partition) == []
    assert partition.read(3) == [3, 4, 5]


@pytest.mark.parametrize("length", [0, -1, 13, 48, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_batch_that_lies_about_its_length_is_reported_or_cut(partition, length, is_clean):
    partition.write_segments(6, 3, batch=3)
    partition.close() if is_clean else partition.crash()
    data = bytearray(partition.file().read_bytes())
    at = partition.batches()[1][0] + BATCH_HEADER.position_of("batch_length")
    data[at : at + 4] = length.to_bytes(4, "big", signed=True)
    partition.write_file(data)
    partition.open()
    if is_clean:
        assert read_to_the_damage(partition) == [0, 1, 2]
    else:
        assert partition.read() == [0, 1, 2]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_decompression_bomb_is_refused_in_bounded_memory(partition, codec):
    partition.write_segments(3, 3)
    partition.close()
    partition.write_file(lying_batch(records=bomb(codec), codec=codec))
    tracemalloc.start()
    assert read_to_the_damage(partition) == []
    assert tracemalloc.get_traced_memory()[1] < 2 * MAX_DECOMPRESSED_BYTES + 2**23
    tracemalloc.stop()
    assert partition.read(3) == [3, 4, 5]


def bomb(codec):
    """Zeros, half as many again as a batch may expand to, packed without holding them."""
    count, piece = MAX_DECOMPRESSED_BYTES * 3 // 2 // 2**20, bytes(2**20)
    if codec is Codec.GZIP:
        packer = zlib.compressobj(9, wbits=31)
        return b"".join([packer.compress(piece) for _ in range(count)]) + packer.flush()
    return compress(codec, bytes(count * 2**20))


# Versions from the future


def write_snapshot_version(partition, version):
    path = sorted(partition.path.glob("*.snapshot"))[-1]
    data = path.read_bytes()
    path.write_bytes(version.to_bytes(2, "big") + data[2:])


def test_a_snapshot_from_the_future_is_passed_over_for_an_older_one(partition):
    first = partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0))
    partition.close()
    write_snapshot_version(partition, 2)
    assert partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0)) == first


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_from_the_future_is_refused_and_nothing_lost(partition, name):
    partition.write(5)
    partition.close()
    path = partition.path / name
    before = path.read_bytes()
    path.write_bytes(b"1" + before[1:])
    with pytest.raises(UnsupportedVersionError, match=name):
        partition.open()
    path.write_bytes(before)
    assert partition.open().recovery.was_clean
    assert partition.read() == list(range(5))


def test_an_epoch_file_from_the_future_is_refused_and_nothing_lost(partition):
    partition.write(5)
    partition.close()
    path = partition.path / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.write_bytes(b"1" + before[1:])
    with pytest.raises(UnsupportedVersionError, match="leader-epoch-checkpoint"):
        partition.open()
    path.write_bytes(before)
    assert partition.read() == list(range(5))


def test_a_transaction_index_from_the_future_is_refused(partition):
    partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    partition.log.append_end_marker(7, 0, committed=False)
    partition.close()
    path = partition.file(0, ".txnindex")
    before = path.read_bytes()
    path.write_bytes(b"\0\1" + before[2:])
    with pytest.raises(UnsupportedVersionError, match="txnindex"):
        list(partition.open().read(isolation=Isolation.COMMITTED))
    partition.close()
    path.write_bytes(before)
    assert list(partition.open().read(isolation=Isolation.COMMITTED)) == []


def test_a_batch_of_magic_3_in_a_sealed_segment_is_reported(partition):
    partition.write_segments(3, 3)
    partition.close()
    data = bytearray(partition.file().read_bytes())
    data[BATCH_HEADER.position_of("magic")] = 3
    partition.write_file(data)
    with pytest.raises(LogstoreError, match="magic 3"):
        partition.read()


def test_a_batch_of_magic_3_behind_the_recovery_point_is_kept_aside(partition):
    partition.write(3)
    partition.checkpoint()
    partition.crash()
    future = batch_of(3, 3)
    future[BATCH_HEADER.position_of("magic")] = 3
    partition.extend_file(future)
    assert partition.open().log_end_offset == 3
    assert partition.kept_aside() == future


# Small files


@pytest.mark.parametrize(
    "name",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)
@pytest.mark.parametrize("damage", [b"", b"garbage", b"0\n5\n", b"\xff\xfe", b"0\n1\nt 0 -5\n"])
def test_a_damaged_checkpoint_costs_time_only(partition, name, damage):
    partition.write_segments(5, 5)
    partition.close()
    (partition.path / name).write_bytes(damage)
    assert partition.read() == list(range(10))
    assert partition.write(2) == range(10, 12)


def test_a_damaged_transaction_index_is_written_anew_after_a_crash(partition):
    partition.log.extend([b"x"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    partition.log.append_end_marker(7, 0, committed=False)
    partition.write(1)
    partition.crash()
    before = partition.file(0, ".txnindex").read_bytes()
    partition.write_file(b"garbage", suffix=".txnindex")
    partition.open()
    assert partition.file(0, ".txnindex").read_bytes() == before


@pytest.mark.parametrize("number", range(4))
def test_damage_between_a_snapshot_and_the_recovery_point_does_not_hide_a_producer(partition, number):
    """Left out, its batch could be appended twice."""
    for sequence in range(4):
        partition.log.extend([b"x" * 40], producer=ProducerIdentity(7, 0, sequence))
    partition.checkpoint()
    partition.crash()
    for path in partition.path.glob("*.snapshot"):
        path.unlink()
    position = partition.corrupt_batch(number)
    with pytest.raises(CorruptionError) as refused:
        partition.open()
    assert (refused.value.path, refused.value.position) == (str(partition.file()), position)
    partition.open(accept_loss=True)
