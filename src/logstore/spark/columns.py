"""Converts a log's columns to Spark's, with the names and types of Spark's Kafka connector."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from logstore._version import how_to_install
from logstore.errors import UsageError
from logstore.model import TopicPartition

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise ImportError(f"the Spark data source needs pyarrow: {how_to_install('spark')} ({error})") from None

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])

COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
"""The columns of a read, in the connector's order."""


_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])

ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER_TYPE)),
}
"""The Arrow types that Spark accepts for these columns; it refuses all others."""

_OF_LOG: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp_ms",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""The log's column that each is made of; the other columns are constant in a partition."""


def constant(value: int | str, arrow_type: Any) -> Any:
    """A scalar. ``pa.scalar``, ``pa.array`` of a list and numbers passed to ``pyarrow.compute`` import pandas
    if it is installed: 1.5 s for each new process, and Spark starts several for each query."""
    text = str(value).encode()
    ends = struct.pack("=ii", 0, len(text))
    one = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(text)])
    return one.cast(arrow_type)[0]


_THOUSAND: Final = constant(1000, pa.int64())
_LARGEST_MS: Final = (2**63 - 1) // 1000
"""Spark counts microseconds."""
_NO_HEADERS: Final = constant(0, pa.int32())


def full_schema(*, with_headers: bool, with_type: bool = True) -> StructType:
    """All columns; ``headers`` only if asked for, as in the connector."""
    without = {"headers": not with_headers, "timestampType": not with_type}
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if not without.get(name)])


class ColumnMap:
    """How a schema's columns are made from a log's. Can be pickled."""

    def __init__(self, schema: StructType) -> None:
        """
        Raises:
            UsageError: a column does not exist, has another type or comes twice; or there is no column.
        """
        for number, field in enumerate(schema.fields):
            _check_field(field)
            if field.name in schema.fieldNames()[:number]:
                raise UsageError(f"column {field.name!r} is named twice")
        if not schema.fields:
            raise UsageError("the schema has no columns; name at least one")
        self._fields = tuple((field.name, field.nullable) for field in schema.fields)
        self.of_log = tuple(_OF_LOG[field.name] for field in schema.fields if field.name in _OF_LOG)
        """The log's columns that are needed: at least one, which gives the number of rows."""
        if not self.of_log:
            self.of_log = ("offset",)

    def converter(self, partition: TopicPartition) -> Callable[[Any], Any]:
        """A function that converts record batches of a partition's log to those of the schema."""
        return _Converter(self._fields, partition)


def _check_field(field: StructField) -> None:
    kind = COLUMNS.get(field.name)
    if kind is None:
        raise UsageError(f"there is no column {field.name!r}; the columns are {', '.join(COLUMNS)}")
    if field.dataType != kind:
        raise UsageError(
            f"column {field.name!r} is declared as {field.dataType.simpleString()}; it is "
            f"{kind.simpleString()}"
        )
    if not field.nullable and field.name in ("key", "value", "headers"):
        raise UsageError(f"column {field.name!r} is declared as not null; it may be null")


class _Converter:
    """Makes record batches of one partition. Constant columns are made once and sliced."""

    def __init__(self, fields: Sequence[tuple[str, bool]], partition: TopicPartition) -> None:
        self._schema = pa.schema(
            [pa.field(name, ARROW_TYPES[name], nullable=nullable) for name, nullable in fields]
        )
        self._partition = partition
        self._constants: dict[str, int | str] = {"topic": partition.topic, "partition": partition.partition}
        self._cut: dict[str, Any] = {}

    def __call__(self, batch: Any) -> Any:
        arrays = [self._array(name, batch) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, name: str, batch: Any) -> Any:
        if name in self._constants:
            return self._constant(name, batch.num_rows)
        column = batch.column(_OF_LOG[name])
        if name == "timestamp":
            return self._microseconds(column, batch)
        if name == "headers":
            return _headers(column)
        return column

    def _microseconds(self, milliseconds: Any, batch: Any) -> Any:
        """Timestamps in Spark's microseconds.

        Raises:
            UsageError: a timestamp is outside Spark's range.
        """
        try:
            scaled = pc.multiply_checked(milliseconds, _THOUSAND)
        except pa.ArrowInvalid:
            raise UsageError(self._outside(milliseconds, batch)) from None
        return scaled.view(ARROW_TYPES["timestamp"])

    def _outside(self, milliseconds: Any, batch: Any) -> str:
        """Names the first record whose timestamp Spark cannot hold, by its offset if that is among the
        columns, and says how to read the others."""
        values = milliseconds.to_pylist()
        first = next(row for row, value in enumerate(values) if abs(value) > _LARGEST_MS)
        has_offset = "offset" in batch.schema.names
        where = f"offset {batch.column('offset')[first].as_py()} of " if has_offset else ""
        return (
            f"{where}{self._partition} has a timestamp of {values[first]} ms, which is outside "
            "the range of Spark's timestamps: leave the column 'timestamp' out with .schema(...) to read it"
        )

    def _constant(self, name: str, row_count: int) -> Any:
        made = self._cut.get(name)
        if made is None or len(made) < row_count:
            made = pa.repeat(constant(self._constants[name], ARROW_TYPES[name]), row_count)
            self._cut[name] = made
        return made if len(made) == row_count else made.slice(0, row_count)


def _headers(column: Any) -> Any:
    """The same lists, with Spark's names for their fields; null if a record has no headers."""
    pairs = column.values
    keys, values = pairs.flatten()
    named = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER_TYPE))
    ends = column.offsets
    has_none = pc.equal(column.value_lengths(), _NO_HEADERS)
    return pa.ListArray.from_arrays(ends, named, type=ARROW_TYPES["headers"], mask=has_none)
