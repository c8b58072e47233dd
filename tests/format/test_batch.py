"""Batches of magic 2: golden bytes both ways, patches, and the rules of compaction."""

import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, InvalidRecordError, RecordTooLargeError, UsageError
from logstore.format import batch as batch_module
from logstore.format.batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_batch,
    decode_batch,
    decode_header,
    encode_batch,
    encode_records_batch,
    rebase_batch,
    reseal_batch,
    stamp_batch,
    stamp_producer,
)
from logstore.format.compression import Codec
from logstore.format.loops import scan_batches
from logstore.model import ProducerIdentity, Record, TimestampType
from tests.format import strategies
from tests.format.vectors import (
    ABORT_MARKER,
    BATCHES,
    COMPACTED,
    COMPACTED_HORIZON_MS,
    EMPTIED,
    LZ4,
    PLAIN,
    SINGLE,
    SMALLEST_BATCH_BYTES,
    TRANSACTIONAL,
)

pytestmark = pytest.mark.usefixtures("each_implementation")

CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME

by_vector = pytest.mark.parametrize("vector", BATCHES, ids=lambda vector: vector.name)


def _decoded(encoded):
    header = decode_header(encoded)
    check_batch(encoded, 0, header)
    return header, decode_batch(encoded, 0, header)


# Golden bytes


@by_vector
def test_golden_bytes_are_decoded(vector):
    assert _decoded(vector.encoded) == (vector.header, list(vector.records))


@by_vector
@pytest.mark.parametrize("on_demand", [False, True])
def test_a_batch_is_decoded_by_its_place_alone(vector, on_demand):
    buffer = memoryview(b"before" + vector.encoded + b"after")
    assert decode_batch(buffer, 6, on_demand=on_demand) == list(vector.records)
    assert decode_batch(vector.encoded, on_demand=on_demand) == list(vector.records)


@by_vector
def test_golden_bytes_are_encoded_again(vector):
    assert encode_records_batch(vector.records, like=vector.header) == vector.encoded


@by_vector
def test_golden_bytes_in_the_middle_of_a_buffer(vector):
    buffer = b"before" + vector.encoded + b"after"
    header = decode_header(buffer, 6)
    check_batch(buffer, 6, header)
    assert decode_batch(buffer, 6, header) == list(vector.records)


@pytest.mark.parametrize(("vector", "codec"), [(PLAIN, Codec.NONE), (LZ4, Codec.LZ4)])
def test_kafkas_own_checksums(vector, codec):
    batch = encode_batch([b"key1", b"key2"], [b"value1", b"value2"], [283843, 1234], codec=codec)
    assert batch == vector.encoded


def test_a_single_record():
    assert encode_batch([b"k"], [b"v"], 1000, partition_leader_epoch=0) == SINGLE.encoded


def test_a_transactional_batch():
    batch = encode_batch(
        [None, b"k2"],
        [b"a", None],
        [1000, 1007],
        [None, [("h", b"x"), ("n", None)]],
        base_offset=5,
        partition_leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=10,
        transactional=True,
    )
    assert batch == TRANSACTIONAL.encoded


def test_sizes_worth_remembering():
    assert len(encode_batch([None], [b"v"], 0)) == SMALLEST_BATCH_BYTES
    assert len(encode_batch([None], [b"test"], 0)) == 72
    assert (HEADER_BYTES, PREFIX_BYTES) == (61, 17)


# Round trips


@pytest.mark.parametrize("codec", Codec)
@given(rows=strategies.records())
@settings(max_examples=30)
def test_any_records_come_back_in_any_codec(codec, rows):
    offsets, stamps, keys, values, headers = zip(*rows, strict=True)
    batch = encode_batch(keys, values, stamps, headers, base_offset=offsets[0], codec=codec)
    header, records = _decoded(batch)
    assert records == rows
    assert (header.codec, header.max_timestamp_ms) == (codec, max(stamps))
    assert (header.size_bytes, header.next_offset) == (len(batch), offsets[-1] + 1)


@pytest.mark.parametrize("codec", Codec)
@given(rows=strategies.records(gaps=True), before=st.integers(0, 5), after=st.integers(0, 5))
@settings(max_examples=20)
def test_records_with_gaps_come_back_under_their_header(codec, rows, before, after):
    base_offset = max(0, rows[0].offset - before)
    delta = rows[-1].offset - base_offset + after
    like = TRANSACTIONAL.header._replace(base_offset=base_offset, last_offset_delta=delta)
    header, records = _decoded(encode_records_batch(rows, like=like, codec=codec))
    assert records == rows
    kept = ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(header, name) for name in kept] == [getattr(like, name) for name in kept]
    assert header.is_transactional


# Header


def test_the_last_sequence_wraps_after_2_to_the_31():
    header = TRANSACTIONAL.header._replace(base_sequence=2**31 - 1)
    assert header.last_sequence == 0
    assert TRANSACTIONAL.header.last_sequence == 11
    assert ABORT_MARKER.header.last_sequence == -1


def test_flags():
    assert ABORT_MARKER.header.is_control
    assert ABORT_MARKER.header.is_transactional
    assert not PLAIN.header.is_control
    assert not PLAIN.header.has_producer
    assert TRANSACTIONAL.header.has_producer
    assert COMPACTED.header.delete_horizon_ms == COMPACTED_HORIZON_MS
    assert TRANSACTIONAL.header.delete_horizon_ms is None


def test_the_high_byte_of_the_attributes_means_nothing():
    header = PLAIN.header._replace(attributes=0x7F00)
    assert (header.codec, header.timestamp_type, header.is_control) == (Codec.NONE, CREATE, False)


# Patches


def test_rebase_changes_offset_and_epoch_and_needs_no_checksum():
    batch = bytearray(b"..") + PLAIN.encoded
    rebase_batch(batch, 2, 1000, 7)
    header = decode_header(batch, 2)
    check_batch(batch, 2, header)
    assert header == PLAIN.header._replace(base_offset=1000, partition_leader_epoch=7)
    assert [record.offset for record in decode_batch(batch, 2, header)] == [1000, 1001]


def test_stamp_sets_type_and_timestamp_and_checksum():
    batch = bytearray(PLAIN.encoded)
    assert stamp_batch(batch, 0, PLAIN.header, timestamp_type=APPEND, max_timestamp_ms=5_000)
    header, records = _decoded(batch)
    assert (header.timestamp_type, header.max_timestamp_ms) == (APPEND, 5_000)
    assert [record.timestamp_ms for record in records] == [5_000, 5_000]
    assert stamp_batch(memoryview(batch), 0, header, timestamp_type=CREATE, max_timestamp_ms=283843)
    assert batch == PLAIN.encoded


def test_stamp_of_what_is_there_does_not_touch_the_checksum(monkeypatch):
    monkeypatch.setattr(batch_module, "_seal", None)
    batch = bytearray(PLAIN.encoded)
    assert not stamp_batch(batch, 0, PLAIN.header, timestamp_type=CREATE, max_timestamp_ms=283843)
    assert batch == PLAIN.encoded


def test_stamp_of_a_legacy_entry_is_refused():
    header = PLAIN.header._replace(magic=1)
    with pytest.raises(UsageError, match="magic 1"):
        stamp_batch(bytearray(100), 0, header, timestamp_type=APPEND, max_timestamp_ms=0)


def test_log_append_time_in_a_new_batch():
    batch = encode_batch([None] * 2, [b"a", b"b"], [10, 20], timestamp_type=APPEND, append_time_ms=15)
    header, records = _decoded(batch)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (10, 15)
    assert [record.timestamp_ms for record in records] == [15, 15]
    with pytest.raises(UsageError, match="append_time_ms"):
        encode_batch([None], [b""], 0, timestamp_type=APPEND)


# What compaction does to a batch


def test_the_batch_compacted_to_its_tombstone():
    tombstone = TRANSACTIONAL.records[1]._replace(headers=())
    like = TRANSACTIONAL.header
    assert encode_records_batch([tombstone], like=like, delete_horizon_ms=90_000_000) == COMPACTED.encoded


def test_a_horizon_that_is_there_is_not_moved():
    batch = encode_records_batch(COMPACTED.records, like=COMPACTED.header, delete_horizon_ms=99)
    assert batch == COMPACTED.encoded


@pytest.mark.parametrize("like", [TRANSACTIONAL.header, COMPACTED.header])
@pytest.mark.parametrize("codec", [None, Codec.ZSTD])
def test_an_emptied_batch_loses_codec_and_horizon(like, codec):
    like = like._replace(attributes=like.attributes | Codec.GZIP)
    assert encode_records_batch([], like=like, codec=codec) == EMPTIED.encoded


def test_the_codec_stays_unless_another_is_asked_for():
    like = LZ4.header
    assert encode_records_batch(LZ4.records, like=like) == LZ4.encoded
    assert encode_records_batch(LZ4.records, like=like, codec=Codec.NONE) == PLAIN.encoded
    assert decode_header(encode_records_batch(LZ4.records, like=like, codec=Codec.ZSTD)).codec is Codec.ZSTD


def test_a_control_batch_is_never_compressed():
    batch = encode_records_batch(ABORT_MARKER.records, like=ABORT_MARKER.header, codec=Codec.ZSTD)
    assert batch == ABORT_MARKER.encoded


@pytest.mark.parametrize("offset", [4, 7])
def test_records_outside_of_the_header_are_refused(offset):
    with pytest.raises(InvalidRecordError, match=f"records {offset}"):
        encode_records_batch([Record(offset, 0, b"", b"")], like=TRANSACTIONAL.header)


# Arguments


def test_a_batch_needs_a_record():
    with pytest.raises(InvalidRecordError, match="at least one"):
        encode_batch([], [], [])


@pytest.mark.parametrize("timestamps", [["now"], [1.5], [None], "x", [-2], [2**63], {}, -2])
def test_timestamps_that_are_none(timestamps):
    with pytest.raises(InvalidRecordError, match="timestamp"):
        encode_batch([None], [b""], timestamps)


def test_a_wrong_value_is_named():
    with pytest.raises(InvalidRecordError, match="record 1: value is str"):
        encode_batch([None] * 2, [b"", "text"], 0)


@pytest.mark.parametrize("field", ["producer_id", "producer_epoch", "base_sequence", "base_offset"])
def test_a_field_that_does_not_fit(field):
    with pytest.raises(UsageError, match="cannot hold"):
        encode_batch([None], [b""], 0, **{field: 1 << 64})


def test_a_batch_larger_than_a_position(monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_BATCH_BYTES", SMALLEST_BATCH_BYTES)
    assert len(encode_batch([None], [b"v"], 0)) == SMALLEST_BATCH_BYTES
    with pytest.raises(RecordTooLargeError, match="70 bytes"):
        encode_batch([None], [b"vv"], 0)


# Walking


def _walk(buffer, position=0, end=None, *, check=True):
    return scan_batches(buffer, position, len(buffer) if end is None else end, check=check)


@pytest.mark.parametrize("check", [True, False])
def test_a_walk_finds_every_batch(check):
    buffer = b"".join(vector.encoded for vector in BATCHES)
    found, stopped, fault = _walk(buffer, check=check)
    assert [header for _, header in found] == [vector.header for vector in BATCHES]
    assert [position for position, _ in found] == [
        sum(len(vector.encoded) for vector in BATCHES[:number]) for number in range(len(BATCHES))
    ]
    assert (stopped, fault) == (len(buffer), None)


def test_a_walk_within_bounds():
    buffer = b"xx" + PLAIN.encoded * 3
    size = len(PLAIN.encoded)
    found, stopped, fault = _walk(buffer, 2, 2 + 2 * size)
    assert ([position for position, _ in found], stopped, fault) == ([2, 2 + size], 2 + 2 * size, None)
    assert _walk(buffer, len(buffer)) == ([], len(buffer), None)
    assert _walk(buffer, 2, len(buffer) + 100)[1] == len(buffer)


def test_an_incomplete_tail_is_no_fault():
    size = len(PLAIN.encoded)
    for length in range(size):
        found, stopped, fault = _walk(PLAIN.encoded + PLAIN.encoded[:length])
        assert (len(found), stopped, fault) == (1, size, None)


@pytest.mark.parametrize(("check", "count"), [(True, 1), (False, 3)])
def test_a_flipped_bit_stops_a_checked_walk(check, count):
    size = len(PLAIN.encoded)
    buffer = bytearray(PLAIN.encoded * 3)
    buffer[size + 70] ^= 1
    found, stopped, fault = _walk(buffer, check=check)
    assert (len(found), stopped) == (count, size if check else 3 * size)
    if check:
        assert isinstance(fault, CorruptionError)
        assert (fault.position, fault.base_offset, fault.last_offset) == (size, 0, 1)


def test_a_fault_does_not_keep_the_buffer():
    with mmap.mmap(-1, 4096) as mapped:
        mapped[: len(PLAIN.encoded)] = PLAIN.encoded
        _, _, fault = _walk(mapped)
    assert fault.position == len(PLAIN.encoded)
    assert mapped.closed


def test_a_header_is_made_of_its_layouts_fields():
    names = [field.name for field in batch_module.BATCH_HEADER.fields]
    assert [name.removesuffix("_ms") for name in BatchHeader._fields] == names


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("was_transactional", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_producer_is_stamped_as_if_the_header_were_written_again(codec, was_transactional, transactional):
    producer = ProducerIdentity(2**62 + 3, 32_766, 2**31 - 1, transactional)
    batch = encode_batch([b"k"], [b"v" * 50], 1_700_000_000_000, codec=codec, transactional=was_transactional)
    header, wanted = decode_header(batch), bytearray(batch)
    attributes = header.attributes & ~TRANSACTIONAL_BIT | (TRANSACTIONAL_BIT if transactional else 0)
    reseal_batch(
        wanted,
        header._replace(
            attributes=attributes, producer_id=2**62 + 3, producer_epoch=32_766, base_sequence=2**31 - 1
        ),
    )
    stamp_producer(batch, producer)
    assert batch == wanted
