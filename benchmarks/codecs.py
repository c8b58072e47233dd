"""Rows to the bytes of a batch and back, without files: 36 shapes of records, each codec as it is.

Values of 10, 100 and 1,000 bytes, keys of none and 10, headers none and two, batches of about 16 KiB, 64 KiB
and 1 MiB. No codec checks a checksum while decoding here (reading figures do); all compute it while encoding.
The results of all codecs are compared byte by byte from the attributes on; offset and leader epoch before
them are set by the code that stores the batch.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

from benchmarks.contenders import AIOKAFKA, KAFKA_PYTHON, LOGSTORE, ON_DEMAND, PLAIN
from benchmarks.figures import Case, Measurement, idle_memory_bytes, measurement
from benchmarks.plan import ENCODE
from benchmarks.records import BASE_TIMESTAMP_MS, WrongDataError

_KIB = 1024
VALUE_BYTES = (10, 100, 1_000)
KEY_BYTES = (0, 10)
HEADER_COUNTS = (0, 2)
BATCH_KIB = (16, 64, 1_024)

ATTRIBUTES_POSITION = 21
_OVERHEAD_BYTES = 9
_SAMPLES = 5
_NO_LIMIT = 2**63 - 1

Headers = tuple[tuple[str, bytes], ...]
CodecRow = tuple[bytes | None, bytes, int, Headers]
"""Key, value, timestamp in milliseconds, headers."""


class Shape(NamedTuple):
    """Of the records in one batch."""

    value_bytes: int
    key_bytes: int
    header_count: int
    batch_kib: int

    def __str__(self) -> str:
        return (
            f"{self.value_bytes} B, key {self.key_bytes}, headers {self.header_count}, {self.batch_kib} KiB"
        )

    def rows(self) -> list[CodecRow]:
        """The rows that fill the batch."""
        source = random.Random(13)
        headers_bytes = self.header_count * 24
        count = self.batch_kib * _KIB // (self.value_bytes + self.key_bytes + headers_bytes + _OVERHEAD_BYTES)
        return [
            (
                source.randbytes(self.key_bytes) if self.key_bytes else None,
                source.randbytes(self.value_bytes),
                BASE_TIMESTAMP_MS + number,
                (("trace-id", source.randbytes(8)), ("source", b"sensor"))[: self.header_count],
            )
            for number in range(count)
        ]


SHAPES = tuple(Shape(*sizes) for sizes in product(VALUE_BYTES, KEY_BYTES, HEADER_COUNTS, BATCH_KIB))


class Codec(NamedTuple):
    """One library's way from rows to a batch and back."""

    prepare: Callable[[list[CodecRow]], Any]
    """Rows in the form that the library takes; off the clock."""
    encode: Callable[[Any], Any]
    decode: Callable[[bytes], list[Any]]
    as_row: Callable[[Any], tuple[Any, ...]]
    """(offset, key, value, timestamp, headers) of a decoded record; off the clock."""


def measure_codec(figure: str, contender: str, seconds_per_case: float) -> list[Measurement]:
    """All shapes."""
    codec = _CODECS[contender]()
    idle = idle_memory_bytes()
    return [_measure_shape(figure, contender, codec, shape, seconds_per_case, idle) for shape in SHAPES]


def _measure_shape(
    figure: str, contender: str, codec: Codec, shape: Shape, seconds: float, idle: int
) -> Measurement:
    rows = shape.rows()
    expected = reference_batch(rows)
    prepared = codec.prepare(rows)
    gc.freeze()
    if figure == ENCODE:
        _check(bytes(codec.encode(prepared))[ATTRIBUTES_POSITION:] == expected[ATTRIBUTES_POSITION:], shape)
        per_batch = _time(lambda: codec.encode(prepared), seconds)
    else:
        found = list(map(codec.as_row, codec.decode(expected)))
        _check(found == [(number, *row) for number, row in enumerate(rows)], shape)
        del found
        per_batch = _time(lambda: codec.decode(expected), seconds)
    case = Case(figure, contender, len(rows), str(shape))
    return measurement(case, len(rows), per_batch, len(expected), idle)


def _check(is_right: bool, shape: Shape) -> None:
    """
    Raises:
        WrongDataError: it is not.
    """
    if not is_right:
        raise WrongDataError(f"{shape}: the bytes or records are not those of the others")


def _time(call: Callable[[], Any], seconds: float) -> float:
    """Of one call: the median of some samples, that together take about so long."""
    started = perf_counter()
    call()
    once = perf_counter() - started
    calls = max(int(seconds / _SAMPLES / once), 1)
    samples = _SAMPLES if once < seconds else 3
    return median(_time_calls(call, calls) for _ in range(samples))


def _time_calls(call: Callable[[], Any], calls: int) -> float:
    started = perf_counter()
    for _ in range(calls):
        call()
    return (perf_counter() - started) / calls


def reference_batch(rows: list[CodecRow]) -> bytes:
    """The batch that every codec must make: by the careful code of logstore's format layer."""
    from logstore.format.batch import encode_batch

    keys, values, timestamps, headers = zip(*rows, strict=True)
    return bytes(encode_batch(keys, values, timestamps, headers if any(headers) else None))


def _logstore(*, on_demand: bool = False) -> Codec:
    from logstore.format.batch import decode_batch, encode_batch
    from logstore.format.gathered import RowRules
    from logstore.format.loops import encode_rows

    rules = RowRules(
        attributes=0, needs_keys=False, before_max_ms=_NO_LIMIT, after_max_ms=_NO_LIMIT, limit_bytes=_NO_LIMIT
    )

    def encode(rows: list[CodecRow]) -> bytearray:
        batches = encode_rows(rows, BASE_TIMESTAMP_MS, rules)
        if batches is not None:
            return batches[0]
        keys, values, timestamps, headers = zip(*rows, strict=True)
        return encode_batch(keys, values, timestamps, headers if any(headers) else None)

    def decode(data: bytes) -> list[Any]:
        return decode_batch(data, on_demand=on_demand)

    def as_row(record: Any) -> tuple[Any, ...]:
        return record.offset, record.key, record.value, record.timestamp_ms, tuple(record.headers)

    return Codec(list, encode, decode, as_row)


def _kafka(builder: Any, records: Any) -> Codec:
    from benchmarks.contenders.kafka_file import new_builder

    def encode(rows: list[Any]) -> Any:
        batch = new_builder(builder)
        append = batch.append
        for delta, (key, value, timestamp_ms, headers) in enumerate(rows):
            append(delta, timestamp_ms, key, value, headers)
        return batch.build()

    def prepare(rows: list[CodecRow]) -> list[Any]:
        return [(*row[:3], list(row[3])) for row in rows]

    def decode(data: bytes) -> list[Any]:
        return list(records(data).next_batch())

    def as_row(record: Any) -> tuple[Any, ...]:
        return record.offset, record.key, record.value, record.timestamp, tuple(record.headers)

    return Codec(prepare, encode, decode, as_row)


def _aiokafka() -> Codec:
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords

    return _kafka(DefaultRecordBatchBuilder, MemoryRecords)


def _kafka_python() -> Codec:
    from kafka.record.default_records import DefaultRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

    return _kafka(DefaultRecordBatchBuilder, MemoryRecords)


_CODECS: dict[str, Callable[[], Codec]] = {
    LOGSTORE: _logstore,
    PLAIN: _logstore,
    ON_DEMAND: lambda: _logstore(on_demand=True),
    AIOKAFKA: _aiokafka,
    KAFKA_PYTHON: _kafka_python,
}
