"""Columns of Apache Arrow that users append: which types are accepted, and how they become batches.

Arrow has many types for the same thing; this module converts them to one form, mostly without copying.
Ordinary rows are then encoded from Arrow's buffers in compiled code. All other rows become lists of Python
values and are encoded like records, with checks that say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from logstore.errors import InvalidRecordError, UsageError
from logstore.format.batch import NewBatch
from logstore.format.column_buffers import Chunk, PayloadSlice
from logstore.format.loops import partitions_for_keys
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.encoding.rows import Columns, check_headers, check_timestamp_types
from logstore.partition.reading.arrow import pa, pc

NAMES: Final = ("key", "value", "timestamp_ms", "headers")

_HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

_INT64 = pa.int64()

_NO_ENDS = bytes(8)
"""The offsets of an array without rows, which may have no buffers."""

# Types are compared by their ids: pyarrow's own predicates take half a microsecond each, and a call that
# appends 1,000 rows makes a dozen.
_LARGE_BINARY = pa.large_binary().id
_READY = {
    "key": (pa.binary().id, _LARGE_BINARY),
    "value": (pa.binary().id, _LARGE_BINARY),
    "timestamp_ms": (_INT64.id,),
    "headers": (),
}
"""The types that are encoded as they are, by column."""

_ERRORS = (pa.ArrowException, ValueError, TypeError, NotImplementedError)


class ArrowRows(NamedTuple):
    """Some rows. Each column is an array of one of a few types, or None if it is missing."""

    row_count: int
    keys: Any
    """binary or large_binary."""
    values: Any
    timestamps: Any
    """int64."""
    headers: Any
    """Lists of (key, value) structs: string and binary."""


def encode(data: Any, encoder: RowEncoder, now_ms: int) -> Sequence[NewBatch]:
    """The rows of ``data`` in batches at base offset 0.

    Raises:
        UsageError: it is not Arrow data.
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a column or a row is refused.
    """
    parts = [rows_of(batch) for batch in record_batches_of(data)]
    if all(_has_wanted_keys(part, encoder) for part in parts):
        batches = encoder.encode_chunks([_chunk_of(part, now_ms) for part in parts], now_ms)
        if batches is not None:
            return batches
    return encoder.encode_columns(_columns_of(parts, now_ms), now_ms)


# Which data, and which columns ------------------------------------------------------------------------------


_OF_PANDAS = ". It is the index of a pandas DataFrame: reset_index(drop=True) leaves it out"


def record_batches_of(data: Any) -> list[Any]:
    """The record batches of any Arrow data, after checking the names of the columns.

    Raises:
        UsageError: it is not Arrow data.
        InvalidRecordError: a column is unknown, given twice, or missing.
    """
    if isinstance(data, pa.RecordBatch):
        schema, batches = data.schema, [data]
    elif isinstance(data, pa.RecordBatchReader):
        schema, batches = data.schema, list(data)
    elif isinstance(data, pa.Table) or hasattr(data, "__arrow_c_stream__"):
        table = data if isinstance(data, pa.Table) else _table_of(data)
        schema, batches = table.schema, table.to_batches()
    else:
        raise UsageError(
            f"data is a {type(data).__name__}; extend_arrow takes a pyarrow Table, RecordBatch or "
            "RecordBatchReader, or an object with __arrow_c_stream__"
        )
    _check_names(schema.names)
    return batches


def _table_of(data: Any) -> Any:
    try:
        return pa.table(data)
    except pa.ArrowInvalid as error:  # for example a series: it has the method too
        raise UsageError(f"data is a {type(data).__name__} that is not a table: {error}") from error


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in NAMES:
            raise InvalidRecordError(
                f"there is no column {name!r} to append; the columns are {', '.join(NAMES)}"
                + _OF_PANDAS * name.startswith("__index_level_")
            )
        if names.count(name) > 1:
            raise InvalidRecordError(f"column {name!r} is there twice")
    if "value" not in names:
        raise InvalidRecordError("column 'value' is missing")


def rows_of(batch: Any) -> ArrowRows:
    """The columns of a record batch, converted to the accepted types.

    Raises:
        InvalidRecordError: a column has another type; the message names both.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return ArrowRows(
        batch.num_rows,
        _converted("key", columns.get("key"), _payloads, "binary or string"),
        _converted("value", columns["value"], _payloads, "binary or string"),
        _converted("timestamp_ms", columns.get("timestamp_ms"), _timestamps, "int64 or a timestamp"),
        _converted(
            "headers", columns.get("headers"), _headers, "a list of structs of key and value, or a map"
        ),
    )


def _converted(name: str, array: Any, convert: Callable[[Any], Any], wanted: str) -> Any:
    if array is None or array.type.id in _READY[name]:
        return array
    if pa.types.is_null(array.type):
        return None
    try:
        if pa.types.is_dictionary(array.type):
            array = _decoded(array)
        converted = convert(array)
    except _ERRORS as error:
        raise InvalidRecordError(
            f"column {name!r} of type {array.type} cannot be converted: {error}"
        ) from None
    if converted is None:
        raise InvalidRecordError(f"column {name!r} is {array.type}; it must be {wanted}")
    return converted


def _decoded(array: Any) -> Any:
    """The values of a dictionary's rows. pyarrow cannot decode a dictionary of views."""
    if str(array.type.value_type) in ("binary_view", "string_view"):
        array = pa.DictionaryArray.from_arrays(array.indices, _payloads(array.dictionary))
    return array.dictionary_decode()


def _payloads(array: Any) -> Any:
    kind = array.type
    if kind.id in _READY["value"]:  # a dictionary's values
        return array
    if pa.types.is_string(kind) or str(kind) == "binary_view" or pa.types.is_fixed_size_binary(kind):
        return array.cast(pa.binary())
    if pa.types.is_large_string(kind):
        return array.cast(pa.large_binary())
    if str(kind) == "string_view":
        return array.cast(pa.string()).cast(pa.binary())
    return None


def _timestamps(array: Any) -> Any:
    kind = array.type
    if pa.types.is_integer(kind):
        return array.cast(_INT64)
    if pa.types.is_timestamp(kind):  # finer units are cut to milliseconds
        is_finer = kind.unit in ("us", "ns")
        return array.cast(pa.timestamp("ms", kind.tz), safe=not is_finer).cast(_INT64)
    return None


def _headers(array: Any) -> Any:
    kind = array.type
    if pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        array = pa.Array.from_buffers(  # keeps nulls and slice: from_arrays takes no mask with a slice
            pa.list_(pairs.type), len(array), array.buffers()[:2], array.null_count, array.offset, [pairs]
        )
    elif not _is_list_of_headers(kind):
        return None
    return array.cast(_HEADERS_TYPE)


def _is_list_of_headers(kind: Any) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(
        kind.value_type
    ):
        return False
    pair = kind.value_type
    return [pair.field(number).name for number in range(pair.num_fields)] == ["key", "value"]


# Ordinary rows ----------------------------------------------------------------------------------------------


def _has_wanted_keys(rows: ArrowRows, encoder: RowEncoder) -> bool:
    """Whether all required keys are there, found without looking at single rows."""
    if encoder.rules.needs_keys and (rows.keys is None or rows.keys.null_count):
        return False
    return rows.headers is None or not rows.headers.values.null_count


def _chunk_of(rows: ArrowRows, now_ms: int) -> Chunk:
    headers = header_keys = header_values = None
    if rows.headers is not None:
        pairs = rows.headers.values
        headers = _slice_of(rows.headers)
        header_keys, header_values = _slice_of(pairs.field(0)), _slice_of(pairs.field(1))
    return Chunk(
        rows.row_count,
        _slice_of(rows.keys),
        _slice_of(rows.values),
        _timestamp_slice(rows.timestamps, now_ms),
        headers,
        header_keys,
        header_values,
    )


def _slice_of(array: Any) -> PayloadSlice | None:
    if array is None:
        return None
    validity, ends, *data = array.buffers()
    return PayloadSlice(
        array.type.id == _LARGE_BINARY,
        array.offset,
        len(array),
        validity if array.null_count else None,
        ends,
        None if array.type.id == _HEADERS_TYPE.id else data[0],
    )


def _timestamp_slice(array: Any, now_ms: int) -> tuple[int, Any] | None:
    if array is None or array.null_count == len(array):
        return None
    if array.null_count:
        array = pc.fill_null(array, now_ms)
    return array.offset, array.buffers()[1]


# Rows that are not ordinary ---------------------------------------------------------------------------------


def _columns_of(parts: list[ArrowRows], now_ms: int) -> Columns:
    """The rows as lists of values, with the checks of records."""
    for part in parts:
        _check_data(part)
    timestamps: Any = now_ms
    if any(part.timestamps is not None for part in parts):
        stamps = [stamp for part in parts for stamp in _listed(part.timestamps, part.row_count)]
        timestamps = [now_ms if stamp is None else stamp for stamp in stamps]
        check_timestamp_types(timestamps)
    headers = None
    if any(part.headers is not None for part in parts):
        listed = [pairs for part in parts for pairs in _listed(part.headers, part.row_count)]
        headers = [_pairs(number, pairs) for number, pairs in enumerate(listed)]
    return Columns(
        [key for part in parts for key in _listed(part.keys, part.row_count)],
        [value for part in parts for value in _listed(part.values, part.row_count)],
        timestamps,
        headers if headers is not None and any(headers) else None,
    )


def _listed(array: Any, row_count: int) -> list[Any]:
    return [None] * row_count if array is None else list(array.to_pylist())


def _check_data(rows: ArrowRows) -> None:
    """Validate the arrays: foreign ones may be wrong about their buffers."""
    for name, array in zip(("key", "value", "timestamp_ms", "headers"), rows[1:], strict=True):
        try:
            if array is not None:
                array.validate(full=True)
        except _ERRORS as error:
            raise InvalidRecordError(f"column {name!r} is not valid Arrow data: {error}") from None


def _pairs(number: int, pairs: list[dict[str, Any]] | None) -> Any:
    found = [None if pair is None else (pair["key"], pair["value"]) for pair in pairs or ()]
    return check_headers(found, number)


# Partitions of a topic --------------------------------------------------------------------------------------


def divide(data: Any, partition_count: int, of_value: Callable[[bytes | None], int]) -> dict[int, Any]:
    """Divide the rows among partitions, in order: by key, or by ``of_value`` if the key is null. Returns a
    table for each partition.

    Raises:
        UsageError, InvalidRecordError: as :func:`encode`, for the data as a whole.
    """
    divided: dict[int, list[Any]] = {}
    schema = None
    for batch in record_batches_of(data):
        rows = rows_of(batch)
        converted = _batch_of(rows)  # not the batch itself: pyarrow cannot take rows from columns of views
        schema = converted.schema
        for partition, part in divide_by(converted, _partitions_of(rows, partition_count, of_value)):
            divided.setdefault(partition, []).append(part)
    return {number: pa.Table.from_batches(divided[number], schema) for number in sorted(divided)}


def _batch_of(rows: ArrowRows) -> Any:
    values = pa.nulls(rows.row_count) if rows.values is None else rows.values
    columns = dict(zip(NAMES, (rows.keys, values, rows.timestamps, rows.headers), strict=True))
    return pa.RecordBatch.from_pydict({name: array for name, array in columns.items() if array is not None})


def _partitions_of(rows: ArrowRows, partition_count: int, of_value: Callable[[bytes | None], int]) -> Any:
    """The partition of each row. A key that comes often is hashed once."""
    if rows.keys is None:
        return pa.array([of_value(value) for value in _listed(rows.values, rows.row_count)], pa.int32())
    encoded = rows.keys.dictionary_encode()
    partitions = partitions_of_keys(encoded.dictionary, partition_count).take(encoded.indices)
    if partitions.null_count:
        without_key = partitions.is_null()
        values = None if rows.values is None else rows.values.filter(without_key)
        chosen = [of_value(value) for value in _listed(values, partitions.null_count)]
        partitions = pc.replace_with_mask(partitions, without_key, pa.array(chosen, pa.int32()))
    return partitions


def divide_by(data: Any, partitions: Any) -> Iterator[tuple[int, Any]]:
    """Divide a table or record batch by a partition number for each row: yields (partition, its rows in
    order). Cost: 0.1 µs per row, and a copy."""
    order = pc.sort_indices(partitions)  # rows of one partition keep their order
    ordered = data.take(order)
    counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(partitions).to_pylist()}
    start = 0
    for partition in sorted(counts):
        yield partition, ordered.slice(start, counts[partition])
        start += counts[partition]


def partitions_of_keys(keys: Any, partition_count: int) -> Any:
    """The partition of each key of an array or chunked array, binary or text, by Kafka's murmur2; null for a
    null key. Cost: compiled 15 ns per key, plain 1.5 µs.

    Raises:
        InvalidRecordError: it is not a column of keys.
    """
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    column = _converted("key", keys, _payloads, "binary or string")
    if column is None:
        return pa.nulls(len(keys), pa.int32())
    _, ends, data = column.buffers()
    found = partitions_for_keys(
        column.type.id == _LARGE_BINARY,
        column.offset,
        len(column),
        ends or _NO_ENDS,
        data or b"",
        partition_count,
    )
    if found is None:
        raise InvalidRecordError("column 'key' is not valid Arrow data: an offset lies outside its bytes")
    partitions = pa.Array.from_buffers(pa.int32(), len(column), [None, pa.py_buffer(found)])
    if not column.null_count:
        return partitions
    return pc.if_else(column.is_valid(), partitions, pa.nulls(len(column), pa.int32()))
