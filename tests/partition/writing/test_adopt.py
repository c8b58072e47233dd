"""Adopting batches that another process has encoded: what they become, and what is refused."""

import errno

import pytest

from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    InvalidTimestampError,
    OutOfOrderError,
    ProducerFencedError,
    RecordTooLargeError,
    StorageError,
    UsageError,
)
from logstore.format.batch import decode_header, reseal_batch
from logstore.format.compression import Codec
from logstore.model import NewRecord, TimestampType
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    all_of,
    batch,
    crash,
    headers_of,
    identity,
    open_log,
    stored_bytes,
    values_of,
)

PRODUCER = 2**62 + 5


def who(sequence, **options):
    return identity(sequence, producer=PRODUCER, **options)


def changed(encoded, **fields):
    """The batch with other fields in its header, and a checksum that holds."""
    reseal_batch(encoded, decode_header(encoded)._replace(**fields))
    return encoded


def adopt_one(log, encoded, sequence=0, **options):
    return log.adopt([encoded], producer=who(sequence), **options)


# What they become


def test_they_are_appended_in_order_and_read_like_all_others(log):
    add(log, b"before")
    assert log.adopt([batch(b"a", b"b"), batch(b"c")], producer=who(0)) == range(1, 4)
    add(log, b"after")
    assert values_of(log) == [b"before", b"a", b"b", b"c", b"after"]
    assert log.verify()


def test_they_get_place_epoch_producer_and_sequences(log):
    log.assign_leader_epoch(3)
    log.adopt([batch(b"a", b"b"), batch(b"c")], producer=who(10, epoch=2))
    first, second = headers_of(log)
    assert first[:3] == (0, first.batch_length, 3)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (PRODUCER, 2, 10)
    assert (second.base_offset, second.base_sequence) == (2, 12)


def test_the_bytes_are_those_of_the_producers_own_batch(log, tmp_path):
    rows = [NewRecord(b"v%d" % i, b"k", (("h", b"x"),), START_MS + i) for i in range(50)]
    other = open_log(tmp_path / "other-0")
    other.extend(rows, producer=who(0))
    (encoded,) = log.writer.gathering.encoder.encode(rows, START_MS)
    adopt_one(log, encoded)
    assert stored_bytes(log) == stored_bytes(other)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_compressed_ones_are_not_decompressed(tmp_path, codec):
    log = open_log(tmp_path / "c-0", compression_type=codec.name.lower())
    adopt_one(log, batch(*[b"a" * 100] * 20, codec=codec))
    adopt_one(log, batch(b"does not compress"), 20)
    assert [header.codec for header in headers_of(log)] == [codec, Codec.NONE]
    assert values_of(log)[0] == b"a" * 100


def test_what_a_memoryview_shows_is_changed_in_place(log):
    buffer = batch(b"a") + batch(b"b")
    size = len(buffer) // 2
    view = memoryview(buffer)
    log.adopt([view[:size], view[size:]], producer=who(0))
    assert stored_bytes(log) == buffer


def test_log_append_time_is_that_of_the_adoption(tmp_path):
    log = open_log(tmp_path / "t-0", message_timestamp_type="LogAppendTime")
    kind = TimestampType.LOG_APPEND_TIME
    encoded = batch(b"a", timestamp_ms=5, timestamp_type=kind, append_time_ms=5)
    adopt_one(log, encoded)
    assert [record.timestamp_ms for record in all_of(log)] == [START_MS]
    assert log.verify()


def test_many_roll_segments(tmp_path):
    log = open_log(tmp_path / "r-0", segment_bytes=300)
    log.adopt([batch(b"v" * 100) for _ in range(7)], producer=who(0))
    assert log.segment_count == 7
    assert len(values_of(log)) == 7


def test_sequences_go_on_at_zero_after_the_largest(log):
    adopt_one(log, batch(b"a", b"b"), 2**31 - 1)
    assert log.last_of_producer(PRODUCER) == (1, 1)
    adopt_one(log, batch(b"c"), 1)


def test_records_that_were_gathered_come_first(tmp_path):
    log = open_log(tmp_path / "g-0", linger_ms=1_000)
    log.append(b"gathered")
    assert adopt_one(log, batch(b"a")) == range(1, 2)


def test_nothing_is_adopted_at_the_log_end(log):
    add(log, b"a")
    assert log.adopt([], producer=who(0)) == range(1, 1)


def test_with_flush_they_are_durable(log):
    adopt_one(log, batch(b"a"), flush=True)
    assert log.durable_offset == 1


# Once only


def test_what_is_there_already_is_refused_with_all_behind_it(log):
    adopt_one(log, batch(b"a"))
    with pytest.raises(OutOfOrderError, match="sequence 0 is out of order; the next must be 1"):
        log.adopt([batch(b"a"), batch(b"new")], producer=who(0))
    assert values_of(log) == [b"a"]


def test_a_gap_is_refused(log):
    adopt_one(log, batch(b"a"))
    with pytest.raises(OutOfOrderError, match="sequence 5 is out of order; the next must be 1"):
        adopt_one(log, batch(b"b"), 5)


def test_an_older_epoch_is_fenced(log):
    log.adopt([batch(b"a")], producer=who(0, epoch=2))
    with pytest.raises(ProducerFencedError):
        log.adopt([batch(b"b")], producer=who(1, epoch=1))


def test_the_next_sequence_is_known_also_after_a_crash(tmp_path):
    log = open_log(tmp_path / "s-0")
    assert log.last_of_producer(PRODUCER) is None
    adopt_one(log, batch(b"a", b"b"), 4)
    assert log.last_of_producer(PRODUCER) == (6, 1)
    crash(log)
    assert open_log(tmp_path / "s-0").last_of_producer(PRODUCER) == (6, 1)


def test_what_the_disk_refuses_may_come_again(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "d-0", files=files)
    files.refuse("write", ".log", errno.ENOSPC)
    with pytest.raises(StorageError):
        adopt_one(log, batch(b"a"))
    files.heal()
    assert adopt_one(log, batch(b"a")) == range(1)


# What is refused


def flipped(encoded, position):
    encoded[position] ^= 1
    return encoded


@pytest.mark.parametrize(
    ("encoded", "error", "named"),
    [
        (lambda: bytes(batch(b"a")), UsageError, "batch 1 is a bytes that cannot be written"),
        (lambda: memoryview(bytes(batch(b"a"))), UsageError, "batch 1 is a memoryview that"),
        (lambda: "text", UsageError, "batch 1 is a str"),
        (lambda: bytearray(), CorruptionError, "too short"),
        (lambda: batch(b"a")[:40], CorruptionError, "too short"),
        (lambda: batch(b"a")[:-1], CorruptionError, "batch 1 says"),
        (lambda: batch(b"a") + b"\0", CorruptionError, "batch 1 says"),
        (lambda: batch(b"a") + batch(b"b"), CorruptionError, "batch 1 says"),
        (lambda: flipped(batch(b"a"), 65), CorruptionError, "checksum"),
        (lambda: flipped(batch(b"a"), 50), CorruptionError, "checksum"),
        (lambda: flipped(batch(b"a"), 16), (CorruptionError, InvalidRecordError), "magic"),
        (lambda: batch(b"a", base_offset=4), InvalidRecordError, "batch 1: base offset 4"),
        (lambda: changed(batch(b"a"), record_count=0), (CorruptionError, InvalidRecordError), "record"),
        (
            lambda: changed(batch(b"a" * 20, b"b"), record_count=1),
            InvalidRecordError,
            "record count 1 does not match",
        ),
        (lambda: changed(batch(b"a" * 20), record_count=2), CorruptionError, "2 records in 1 offsets"),
        (lambda: changed(batch(b"a"), last_offset_delta=-1), CorruptionError, "delta -1 is negative"),
        (
            lambda: batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0),
            InvalidRecordError,
            "producer",
        ),
        (lambda: batch(b"a", transactional=True), InvalidRecordError, "attributes 0x0010"),
        (lambda: changed(batch(b"a"), attributes=0x20), InvalidRecordError, "attributes 0x0020"),
        (lambda: changed(batch(b"a"), attributes=0x40), InvalidRecordError, "attributes 0x0040"),
        (lambda: changed(batch(b"a"), attributes=0x0100), InvalidRecordError, "attributes 0x0100"),
        (lambda: changed(batch(b"a"), attributes=5), CorruptionError, "codec 5 does not exist"),
        (lambda: changed(batch(b"a"), max_timestamp_ms=-2), InvalidRecordError, "below -1"),
        (lambda: batch(b"a", timestamp_ms=START_MS + 10**10), InvalidTimestampError, "after_max_ms"),
        (
            lambda: batch(b"a", timestamp_type=TimestampType.LOG_APPEND_TIME, append_time_ms=START_MS),
            InvalidRecordError,
            "another timestamp type than message_timestamp_type CreateTime",
        ),
        (lambda: batch(b"a" * 2_000_000), RecordTooLargeError, "max_message_bytes"),
    ],
)
def test_what_no_encoder_makes_is_refused_and_nothing_is_appended(log, encoded, error, named):
    with pytest.raises(error, match=named):
        log.adopt([batch(b"fine"), encoded()], producer=who(0))
    assert log.log_end_offset == 0
    assert log.last_of_producer(PRODUCER) is None


def test_another_codec_than_the_topics_is_refused(tmp_path):
    log = open_log(tmp_path / "c-0", compression_type="zstd")
    with pytest.raises(InvalidRecordError, match="batch 0: codec gzip where compression_type is zstd"):
        adopt_one(log, batch(*[b"a" * 100] * 20, codec=Codec.GZIP))


@pytest.mark.parametrize("producer", [who(-1), who(2**31), who(0, epoch=-1), who(0, transactional=True)])
def test_a_wrong_producer_is_refused(log, producer):
    with pytest.raises(UsageError):
        log.adopt([batch(b"a")], producer=producer)


def test_what_was_checked_before_passes_other_settings(tmp_path):
    log = open_log(tmp_path / "w-0")
    log.reconfigure(TopicConfig(compression_type="zstd", max_message_bytes=100))
    encoded = batch(*[b"a" * 100] * 20, codec=Codec.GZIP, timestamp_ms=START_MS + 10**10)
    assert adopt_one(log, encoded, was_checked=True) == range(20)
    assert log.verify()


def test_what_was_checked_before_must_still_be_sound(log):
    with pytest.raises(CorruptionError):
        adopt_one(log, flipped(batch(b"a"), 65), was_checked=True)
