"""The careful reader of records, and the checks of a caller's records before encoding.

Decodes one record at a time and states every rule. The fast loops hand an unusual batch to this code, which
either decodes it or raises an error that says where and what. Slow (3 µs per record) and meant to be read;
tests also compare the fast loops with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logstore.errors import CorruptionError, InvalidRecordError, InvalidTimestampError
from logstore.format.header import MIN_RECORD_BYTES
from logstore.format.varint import decode_varint, decode_varlong, wrap_int64
from logstore.model import NO_TIMESTAMP_MS, Bytes, Header, Record

Headers = Sequence[Header] | None
"""One record's headers to encode; None and the empty sequence both mean none."""

INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
MIN_HEADER_BYTES: Final = 2
"""The smallest header: an empty key and a null value."""


def check_count(position: int, end: int, count: int, buffer_bytes: int) -> None:
    """Raise CorruptionError unless ``count`` records fit in buffer[position:end], before memory is taken."""
    if not 0 <= position <= end <= buffer_bytes:
        raise CorruptionError(f"records from {position} to {end} in {buffer_bytes} bytes", position=position)
    if count < 0 or count * MIN_RECORD_BYTES > end - position:
        raise CorruptionError(f"{count} records in {end - position} bytes", position=position)


def decode_records(
    buffer: Bytes,
    position: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
    last_offset_delta: int,
) -> list[Record]:
    """Exactly ``count`` records that fill buffer[position:end]; CorruptionError otherwise."""
    data = bytes(memoryview(buffer)[:end])
    records: list[Record] = []
    least_delta = 0
    for _ in range(count):
        record, after = decode_record(data, position, base_offset, base_timestamp_ms, append_time_ms)
        delta = record.offset - base_offset
        if not least_delta <= delta <= last_offset_delta:
            raise CorruptionError(
                f"offset delta {delta} is not in {least_delta} to {last_offset_delta}",
                position=position,
            )
        records.append(record)
        least_delta, position = delta + 1, after
    if position != end:
        raise CorruptionError(f"{end - position} bytes after the last record", position=position)
    return records


def decode_record(
    data: bytes, position: int, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> tuple[Record, int]:
    """The record at ``position`` and the position after it."""
    length, start = decode_varint(data, position)
    stop = start + length
    if length < MIN_RECORD_BYTES - 1 or stop > len(data):
        raise CorruptionError(
            f"a record of {length} bytes where {len(data) - start} are left", position=position
        )
    timestamp_delta, at = decode_varlong(
        data, start + 1
    )  # the byte before it is the attributes, which have no meaning
    timestamp_ms = (
        wrap_int64(base_timestamp_ms + timestamp_delta) if append_time_ms is None else append_time_ms
    )
    offset_delta, at = decode_varint(data, at)
    key, at = _decode_bytes(data, at, stop, "key")
    value, at = _decode_bytes(data, at, stop, "value")
    headers, at = _decode_headers(data, at, stop)
    if at != stop:
        raise CorruptionError(f"a record of {length} bytes ends after {at - start}", position=position)
    offset = base_offset + offset_delta
    if not -INT64_MAX - 1 <= offset <= INT64_MAX:
        raise CorruptionError(
            f"base offset {base_offset} with delta {offset_delta} passes 64 bits", position=position
        )
    return Record(offset, timestamp_ms, key, value, headers), stop


def _decode_bytes(data: bytes, position: int, stop: int, what: str) -> tuple[bytes | None, int]:
    size_bytes, start = decode_varint(data, position)
    if size_bytes == -1:
        return None, start
    if not 0 <= size_bytes <= stop - start:
        raise CorruptionError(
            f"a {what} of {size_bytes} bytes where {stop - start} are left", position=position
        )
    return data[start : start + size_bytes], start + size_bytes


def _decode_headers(data: bytes, position: int, stop: int) -> tuple[tuple[Header, ...], int]:
    count, at = decode_varint(data, position)
    if not 0 <= count * MIN_HEADER_BYTES <= stop - at:
        raise CorruptionError(f"{count} headers in {stop - at} bytes", position=position)
    headers: list[Header] = []
    for _ in range(count):
        key_position = at
        key, at = _decode_bytes(data, at, stop, "header key")
        if key is None:
            raise CorruptionError("a header with a null key", position=key_position)
        value, at = _decode_bytes(data, at, stop, "header value")
        headers.append((key.decode(errors="replace"), value))
    return tuple(headers), at


# Checks before encoding


def check_arguments(
    keys: Sequence[Any],
    values: Sequence[Any],
    timestamps: Sequence[Any] | int,
    headers: Sequence[Any] | None,
    offset_deltas: Sequence[Any] | None,
) -> None:
    """Raise InvalidRecordError for the first record and argument that cannot be encoded."""
    count = len(values)
    for name, column in (
        ("keys", keys),
        ("timestamps", timestamps),
        ("headers", headers),
        ("offset_deltas", offset_deltas),
    ):
        if column is not None and not isinstance(column, int) and len(column) != count:
            raise InvalidRecordError(f"{len(column)} {name} for {count} values")
    stamps = [timestamps] * min(count, 1) if isinstance(timestamps, int) else timestamps
    for index, timestamp_ms in enumerate(stamps):
        _check_timestamp(index, timestamp_ms)
    for index in range(count):
        _check_payload(index, "key", keys[index])
        _check_payload(index, "value", values[index])
        if headers is not None:
            _check_headers(index, headers[index])
    if offset_deltas is not None:
        _check_offset_deltas(offset_deltas)


def _check_payload(index: int, name: str, payload: Any) -> None:
    if payload is None:
        return
    try:
        memoryview(payload)
    except TypeError:
        raise InvalidRecordError(
            f"record {index}: {name} is {type(payload).__name__}; it must be bytes or None"
        ) from None


def _check_timestamp(index: int, timestamp_ms: Any) -> None:
    if not isinstance(timestamp_ms, int):
        raise InvalidRecordError(
            f"record {index}: timestamp is {type(timestamp_ms).__name__}; it must be int (ms)"
        )
    if not NO_TIMESTAMP_MS <= timestamp_ms <= INT64_MAX:
        raise InvalidTimestampError(f"record {index}: timestamp {timestamp_ms} is not -1 or a time in ms")


def _check_headers(index: int, headers: Any) -> None:
    if headers is None:
        return
    if not isinstance(headers, (tuple, list)):
        raise InvalidRecordError(
            f"record {index}: headers is {type(headers).__name__}; it must be a tuple of pairs"
        )
    for number, header in enumerate(headers):
        where = f"record {index}: header {number}"
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise InvalidRecordError(f"{where} is {header!r:.60}; it must be a pair (str, bytes or None)")
        key, value = header
        if not isinstance(key, str):
            raise InvalidRecordError(f"{where}: key is {type(key).__name__}; it must be str")
        try:
            key.encode()
        except UnicodeEncodeError as error:
            raise InvalidRecordError(
                f"{where}: key is not text that UTF-8 can hold: {error.reason}"
            ) from None
        _check_payload(index, f"header {number} value", value)


def _check_offset_deltas(offset_deltas: Sequence[Any]) -> None:
    least = 0
    for index, delta in enumerate(offset_deltas):
        if not isinstance(delta, int) or not least <= delta <= INT32_MAX:
            raise InvalidRecordError(
                f"record {index}: offset delta {delta!r} is not in {least} to {INT32_MAX}"
            )
        least = delta + 1


def as_bytes(column: Sequence[Bytes | None]) -> list[bytes | None]:
    """The column with every buffer copied to bytes; memoryviews may count items wider than a byte."""
    return [None if payload is None else bytes(payload) for payload in column]
