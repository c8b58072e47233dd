"""What a leader checks of a batch, and when it encodes it anew (section 3.2.1 of the storage rules)."""

import struct
import tracemalloc

import pytest

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, InvalidRecordError, InvalidTimestampError
from logstore.format.batch import decode_batch, encode_records_batch, seal_batch
from logstore.format.compression import Codec
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import decode_header
from logstore.model import AppendOrigin, Record, TimestampType
from logstore.partition.encoding.planning import (
    MAX_REPORTED_RECORDS,
    check_keys,
    check_produced,
    check_reach,
    check_replicated,
    place_produced,
)
from tests.format.legacy_writer import LOG_APPEND_TIME, encode_entry, encode_wrapper
from tests.format.vectors import LEGACY
from tests.partition.helpers_rules import START_MS, batch

NOW_MS = START_MS
CLIENT, COORDINATOR, REPLICATION = AppendOrigin


def plan(data, *, origin=CLIENT, base_offset=100, leader_epoch=3, **config):
    checked = check_produced(data, config=TopicConfig(**config), origin=origin, now_ms=NOW_MS)
    assert checked is not None
    return place_produced(checked, base_offset=base_offset, leader_epoch=leader_epoch)


def stored(data, **options):
    """Header and records of the batch as it would be written."""
    planned = plan(data, **options)
    (buffer,), (header,) = planned.buffers, planned.headers
    return header, decode_batch(buffer, 0, header)


def gapped(*offsets):
    """A batch with gaps, as no client may send it."""
    records = [Record(offset, NOW_MS, b"k", b"v%d" % offset) for offset in offsets]
    like = decode_header(batch(*[b""] * (offsets[-1] + 1)))
    return encode_records_batch(records, like=like)


def with_fields(data, **fields):
    """The same batch with other header fields, and a right checksum."""
    return seal_batch(decode_header(data)._replace(**fields), data[61:])


# Batch rules


def test_exactly_one_batch():
    with pytest.raises(InvalidRecordError, match="one batch, not 2"):
        plan(batch(b"a") + batch(b"b"))


def test_several_legacy_entries_are_refused():
    with pytest.raises(InvalidRecordError, match="one entry at a time"):
        plan(LEGACY[0].encoded * 2)


def test_a_damaged_second_batch_refuses_the_first_too():
    damaged = batch(b"b")
    damaged[-1] ^= 1
    with pytest.raises(CorruptionError):
        plan(batch(b"a") + damaged)


@pytest.mark.parametrize("fields", [{"record_count": 1}, {"last_offset_delta": 5}, {"record_count": 0}])
def test_a_clients_count_must_match_its_offsets(fields):
    with pytest.raises((InvalidRecordError, CorruptionError)):
        plan(with_fields(batch(b"a", b"b"), **fields))


def test_a_client_may_not_send_a_batch_without_records():
    with pytest.raises(InvalidRecordError, match="record count 0"):
        plan(with_fields(batch(b"a")[:61], record_count=0))


def marker():
    return encode_end_marker(
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        control_type=ControlType.COMMIT,
        coordinator_epoch=0,
        timestamp_ms=NOW_MS,
    )


def test_a_client_may_not_send_a_control_batch():
    with pytest.raises(InvalidRecordError, match="control"):
        plan(marker())


def test_a_coordinators_control_batch_stays_as_it_is():
    planned = plan(marker(), origin=COORDINATOR, compression_type="zstd", cleanup_policy="compact")
    assert planned.buffers[0][16:] == marker()[16:]
    assert planned.base_offset == 100


def test_a_producer_id_needs_a_sequence():
    with pytest.raises(InvalidRecordError, match="sequence"):
        plan(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=-1))


# Record rules


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_needs_keys(policy):
    with pytest.raises(InvalidRecordError, match="key"):
        plan(batch(b"a", key=None), cleanup_policy=policy)
    assert plan(batch(b"a", key=b""), cleanup_policy=policy)


def test_records_without_keys_are_named_up_to_ten():
    with pytest.raises(InvalidRecordError) as caught:
        check_keys([b"k", *[None] * (MAX_REPORTED_RECORDS + 5)])
    assert str(caught.value).endswith("1, 2, 3, 4, 5, 6, 7, 8, 9, 10")


@pytest.mark.parametrize(
    ("offset_ms", "accepted"), [(-1000, True), (-1001, False), (2000, True), (2001, False)]
)
def test_timestamps_out_of_bounds_are_refused(offset_ms, accepted):
    config = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 2000}
    data = batch(b"a", b"b", timestamp_ms=[NOW_MS, NOW_MS + offset_ms])
    if accepted:
        assert plan(data, **config)
        return
    bound = "before" if offset_ms < 0 else "after"
    with pytest.raises(InvalidTimestampError, match=f"record 1 .*{bound}"):
        plan(data, **config)


def test_no_timestamp_always_passes():
    header, records = stored(batch(b"a", timestamp_ms=-1), message_timestamp_before_max_ms=0)
    assert header.max_timestamp_ms == records[0].timestamp_ms == -1


def test_the_bounds_do_not_hold_under_log_append_time():
    data = batch(b"a", timestamp_ms=1)
    assert plan(data, message_timestamp_before_max_ms=0, message_timestamp_type="LogAppendTime")


def test_a_timestamp_beyond_the_default_hour_ahead_is_refused():
    assert plan(batch(b"a", timestamp_ms=NOW_MS + 3_600_000))
    with pytest.raises(InvalidTimestampError):
        plan(batch(b"a", timestamp_ms=NOW_MS + 3_600_001))


def append_time_batch(timestamp_ms=NOW_MS - 7):
    return batch(
        b"a",
        b"b",
        timestamp_ms=[1, 2],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        append_time_ms=timestamp_ms,
    )


def test_log_append_time_from_a_client_is_refused_where_the_topic_sets_it():
    with pytest.raises(InvalidTimestampError, match="log append time"):
        plan(append_time_batch(), message_timestamp_type="LogAppendTime")


def test_log_append_time_without_a_timestamp_is_refused():
    with pytest.raises(InvalidTimestampError):
        plan(append_time_batch(-1))


def test_log_append_time_is_cleared_under_create_time_and_the_records_keep_their_timestamps():
    header, records = stored(append_time_batch())
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.max_timestamp_ms == NOW_MS - 7
    assert {record.timestamp_ms for record in records} == {NOW_MS - 7}


def test_a_wrong_inner_checksum_is_damage():
    inner = bytearray(encode_entry(1, Record(0, NOW_MS, b"k", b"v")))
    inner[-1] ^= 1
    with pytest.raises(CorruptionError):
        plan(inner)


# In place


def test_in_place_only_offset_and_epoch_change():
    data = batch(b"a", b"b")
    (buffer,) = plan(data).buffers
    assert buffer[12 + 4 :] == data[16:]
    assert struct.unpack_from(">q", buffer) == (100,)
    assert struct.unpack_from(">i", buffer, 12) == (3,)


def test_the_callers_buffer_is_not_touched():
    data = batch(b"a")
    before = bytes(data)
    plan(data)
    assert data == before


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_bytes_stay_under_producer(codec):
    data = batch(b"a" * 50, b"b" * 50, codec=codec)
    assert plan(data).buffers[0][61:] == data[61:]


def test_the_same_codec_stays_in_place():
    data = batch(b"a" * 50, codec=Codec.LZ4, level=1)
    assert plan(data, compression_type="lz4").buffers[0][61:] == data[61:]


def test_the_largest_timestamp_is_made_true():
    lied = with_fields(batch(b"a", b"b", timestamp_ms=[5, 9]), max_timestamp_ms=77)
    header, _ = stored(lied)
    assert header.max_timestamp_ms == 9


def test_log_append_time_sets_timestamp_and_bit():
    header, records = stored(batch(b"a", b"b", timestamp_ms=5), message_timestamp_type="LogAppendTime")
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.max_timestamp_ms == NOW_MS
    assert [record.timestamp_ms for record in records] == [NOW_MS, NOW_MS]
    assert header.base_timestamp_ms == 5  # what the client wrote is not touched


# Rebuilt


@pytest.mark.parametrize(
    ("compression_type", "codec"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP])
def test_the_codec_on_disk_is_the_topics(compression_type, codec, source):
    header, records = stored(batch(b"a", b"b", codec=source), compression_type=compression_type)
    assert header.codec is codec
    assert [(record.offset, record.value) for record in records] == [(100, b"a"), (101, b"b")]


def test_a_rebuilt_batch_keeps_its_producer():
    data = batch(
        b"a", codec=Codec.GZIP, producer_id=7, producer_epoch=2, base_sequence=40, transactional=True
    )
    header, _ = stored(data, compression_type="uncompressed")
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.is_transactional


def test_gaps_are_closed():
    header, records = stored(gapped(0, 2, 5), origin=COORDINATOR)
    assert [record.offset for record in records] == [100, 101, 102]
    assert (header.last_offset, header.record_count) == (102, 3)


def test_trailing_gaps_are_closed():
    data = with_fields(batch(b"a"), last_offset_delta=4)
    header, _ = stored(data, origin=COORDINATOR)
    assert header.last_offset == 100


def test_a_gap_of_two_thousand_million_offsets_takes_no_memory():
    """It took 16 GB: the offsets that the header claims were listed."""
    tracemalloc.start()
    header, _ = stored(with_fields(batch(b"a"), last_offset_delta=2**31 - 1), origin=COORDINATOR)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert header.last_offset == 100
    assert peak_bytes < 1_000_000


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_legacy_entry_becomes_magic_2(magic, offset):
    header, records = stored(encode_entry(magic, Record(offset, NOW_MS, b"k", b"v")))
    assert (header.magic, header.base_offset, header.last_offset) == (2, 100, 100)
    assert records == [Record(100, NOW_MS if magic else -1, b"k", b"v")]


@pytest.mark.parametrize("wrapper_offset", [0, 2])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_legacy_wrapper_becomes_one_batch(magic, wrapper_offset):
    inner = [Record(number, NOW_MS, b"k", b"%d" % number) for number in range(3)]
    header, records = stored(encode_wrapper(magic, Codec.GZIP, inner, offset=wrapper_offset))
    assert (header.magic, header.codec, header.record_count) == (2, Codec.GZIP, 3)
    assert [(record.offset, record.value) for record in records] == [(100, b"0"), (101, b"1"), (102, b"2")]


def test_a_legacy_entry_with_log_append_time_is_cleared():
    entry = encode_entry(1, Record(0, NOW_MS, b"k", b"v"), attributes=LOG_APPEND_TIME)
    header, records = stored(entry)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert records[0].timestamp_ms == NOW_MS


def test_what_grows_past_the_limit_when_rebuilt_is_refused():
    data = batch(b"a" * 5000, codec=Codec.GZIP)
    with pytest.raises(InvalidRecordError, match="max_message_bytes"):
        plan(data, compression_type="uncompressed", max_message_bytes=1000)


# Followers


def test_offsets_that_no_segment_can_index_are_damage():
    data = batch(b"a", base_offset=0) + batch(b"b", base_offset=2**31)
    planned = check_replicated(data)
    with pytest.raises(CorruptionError, match="span more"):
        check_reach(planned, 0)
    check_reach(planned, 1)
