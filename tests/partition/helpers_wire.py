"""Encoded batches that may come over a network, right and wrong in every way, and topics that take them."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, LogstoreError
from logstore.format import plain
from logstore.format.batch import encode_batch, seal_batch
from logstore.format.compression import Codec, compress
from logstore.format.control import ControlType, encode_end_marker
from logstore.format.header import (
    HEADER_BYTES,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from logstore.format.received import Received
from logstore.model import AppendOrigin, Record
from logstore.partition.encoding.planning import check_produced, place_produced
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.fuzz.chance import INT32_MAX, INT64_MAX, Chance, seal
from tests.partition import helpers_planning
from tests.partition.helpers_rules import START_MS

NOW_MS = START_MS
_LEGACY_CRC_AT, _LEGACY_CRC_FROM = 12, 16


def any_config(chance: Chance) -> TopicConfig:
    return TopicConfig(
        compression_type=chance.choice(("producer",) * 5 + ("uncompressed", "gzip", "snappy", "lz4", "zstd")),
        cleanup_policy=chance.choice(("delete", "delete", "compact", "compact,delete")),
        message_timestamp_type=chance.choice(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
        message_timestamp_before_max_ms=chance.choice((INT64_MAX, INT64_MAX, 1000, 0)),
        message_timestamp_after_max_ms=chance.choice((3_600_000, 3_600_000, 1000, 0, INT64_MAX)),
        max_message_bytes=chance.choice((1 << 20,) * 8 + (100, 300)),
        segment_bytes=chance.choice((1 << 30,) * 8 + (200,)),
    )


def any_origin(chance: Chance) -> AppendOrigin:
    return chance.choice((AppendOrigin.CLIENT,) * 4 + tuple(AppendOrigin))


def any_data(chance: Chance) -> bytes:
    """A possible argument of ``append_batch``: right about half of the time."""
    data = chance.choice((modern,) * 12 + (legacy, legacy, marker))(chance)
    wrong = chance.randrange(24)
    if wrong == 0:
        data = chance.cut(data)
    elif wrong == 1:
        data += chance.choice((b"\0", bytes(70), chance.randbytes(20), data[:-1]))
    elif wrong == 2:
        data += chance.choice((data, modern(chance), legacy(chance)))
    elif wrong == 3:
        data = chance.mutated(data)
    return data


def modern(chance: Chance) -> bytes:
    """A batch of magic 2 with a right checksum. Its records, header or compressed bytes may be wrong."""
    keys, values, _, headers, base_timestamp_ms, deltas = chance.columns()
    count = len(values)
    if chance.happens(0.6):
        keys = [key or b"k" for key in keys]
    timestamps = [_timestamp_ms(chance) for _ in values]
    if chance.happens(0.8):
        deltas, base_timestamp_ms = None, timestamps[0]
    section = bytes(plain.encode_records(keys, values, timestamps, headers, base_timestamp_ms, deltas))
    if chance.happens(0.2):
        section = chance.mutated(section)
    elif chance.happens(0.15):
        section, count = chance.odd_records()
    elif chance.happens(0.1):
        section = section.replace("é".encode(), b"\xc3(").replace("€".encode(), b"\xed\xa0\x80")
    codec = chance.choice((*Codec, Codec.NONE, Codec.NONE))
    stored = compress(codec, section)
    if codec and chance.happens(0.1):
        stored = chance.mutated(stored)
    attributes = codec
    if chance.happens(0.1):
        attributes |= TIMESTAMP_TYPE_BIT
    has_producer = chance.happens(0.3)
    if has_producer and chance.happens(0.3):
        attributes |= TRANSACTIONAL_BIT
    header = BatchHeader(
        base_offset=chance.choice((0,) * 12 + (5,)),
        batch_length=0,
        partition_leader_epoch=chance.choice((NO_EPOCH, 0, 9)),
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=deltas[-1] if deltas and count == len(deltas) else count - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=chance.choice((max(timestamps), max(timestamps), NOW_MS, -1)),
        producer_id=7 if has_producer else NO_PRODUCER_ID,
        producer_epoch=0 if has_producer else NO_EPOCH,
        base_sequence=chance.choice((0, 5, INT32_MAX, -1)) if has_producer else NO_SEQUENCE,
        record_count=count,
    )
    data = seal_batch(header, stored)
    if chance.happens(0.1):
        chance.spoil_field(data)
        seal(data)
    return bytes(data)


def _timestamp_ms(chance: Chance) -> int:
    if chance.happens(0.03):
        return chance.choice((-1, -1, 0, INT64_MAX, NOW_MS - 1001, NOW_MS + 3_600_001))
    return NOW_MS + chance.choice((0, 0, 0, 1000, -1000, chance.randrange(-1000, 1000)))


def legacy(chance: Chance) -> bytes:
    """An entry of magic 0 or 1, or a compressed one around some; the outer checksum is right."""
    magic = chance.choice((0, 1))
    records = [
        Record(number, _timestamp_ms(chance), chance.choice((b"k", b"k", None)), chance.payload())
        for number in range(chance.choice((1, 2, 3)))
    ]
    attributes = chance.choice((0, 0, 0, TIMESTAMP_TYPE_BIT))
    if chance.happens(0.5):
        data = encode_entry(magic, records[0], attributes=attributes)
    else:
        codec = chance.choice((Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
        stamp_ms = _timestamp_ms(chance)
        data = encode_wrapper(magic, codec, records, timestamp_ms=stamp_ms, attributes=attributes)
    if chance.happens(0.2):
        data = with_legacy_checksum(chance.mutated(data, _LEGACY_CRC_FROM))
    return data


def with_legacy_checksum(data: bytes) -> bytes:
    crc = struct.pack(">I", zlib.crc32(data[_LEGACY_CRC_FROM:]))
    return data[:_LEGACY_CRC_AT] + crc + data[_LEGACY_CRC_FROM:]


def marker(chance: Chance) -> bytes:
    """A transaction marker."""
    data = encode_end_marker(
        base_offset=0,
        producer_id=7,
        producer_epoch=0,
        control_type=chance.choice((ControlType.ABORT, ControlType.COMMIT)),
        coordinator_epoch=chance.choice((0, 3)),
        timestamp_ms=NOW_MS,
    )
    return bytes(data)


def small_batch(codec: Codec, **options) -> bytes:
    """Two records with everything that a record may have."""
    keys, values = [b"k", b"key"], [b"value", None]
    headers = [(("h", b"x"), ("é", None)), ()]
    stamps = [NOW_MS - 1, NOW_MS]
    return bytes(encode_batch(keys, values, stamps, headers, codec=codec, **options))


def small_section() -> bytes:
    """The records of :func:`small_batch`."""
    return small_batch(Codec.NONE)[HEADER_BYTES:]


# What comes of it -------------------------------------------------------------------------------------------


def planned_or_error(plan):
    """The bytes and headers that ``plan`` returns, or its error with all details."""
    try:
        planned = plan()
    except CorruptionError as error:
        return CorruptionError, str(error), error.position, error.base_offset, error.last_offset
    except LogstoreError as error:
        return type(error), str(error)
    return None if planned is None else ([*map(bytes, planned.buffers)], [*map(tuple, planned.headers)])


def checked(data, config, origin=AppendOrigin.CLIENT, base_offset=1000, leader_epoch=3):
    """The checks of a leader."""

    def plan():
        batch = check_produced(data, config=config, origin=origin, now_ms=NOW_MS)
        if batch is None:
            return None
        return place_produced(batch, base_offset=base_offset, leader_epoch=leader_epoch)

    return planned_or_error(plan)


def checked_record_by_record(data, config, origin=AppendOrigin.CLIENT, base_offset=1000, leader_epoch=3):
    """The same checks, one record after the other."""
    return planned_or_error(
        lambda: helpers_planning.plan_leader_append(
            data,
            config=config,
            origin=origin,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            now_ms=NOW_MS,
        )
    )


def assert_same(data, config, origin=AppendOrigin.CLIENT):
    """Check that both give the same; returns it. So it is for bytes that were given away, although they are
    changed where they are: also if they were checked before by other rules, which the topic had just then."""
    ours, theirs = checked(data, config, origin), checked_record_by_record(data, config, origin)
    assert ours == theirs, (data, config, origin)
    own = memoryview(Received(data))
    assert checked(own, config, origin) == ours, (data, config, origin)
    if ours is None or isinstance(ours[0], type):
        assert own == data, (data, config, origin)  # refused: a test of that may still look at it
    again = memoryview(Received(data))
    with suppress(LogstoreError):
        check_produced(again, config=TopicConfig(), origin=origin, now_ms=NOW_MS)
    assert checked(again, config, origin) == ours, (data, config, origin)
    return ours
