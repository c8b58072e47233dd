"""From a log's columns to Spark's: the names and types of Spark's Kafka connector."""

from __future__ import annotations

from typing import Final

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

from logstore.errors import UsageError

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


def full_schema(*, with_headers: bool) -> StructType:
    """All columns; ``headers`` only where asked for, as in the connector."""
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if name != "headers" or with_headers]
    )


class ColumnMap:
    """How a schema's columns are made of a log's. Pickles."""

    def __init__(self, schema: StructType) -> None:
        """
        Raises:
            UsageError: a column that there is not, or of another type, or named twice; no column at all.
        """
        for number, field in enumerate(schema.fields):
            kind = COLUMNS.get(field.name)
            if kind is None:
                raise UsageError(f"there is no column {field.name!r}; the columns are {', '.join(COLUMNS)}")
            if field.dataType != kind:
                raise UsageError(
                    f"column {field.name!r} is asked for as {field.dataType.simpleString()}; it is "
                    f"{kind.simpleString()}"
                )
            if field.name in schema.fieldNames()[:number]:
                raise UsageError(f"column {field.name!r} is named twice")
        if not schema.fields:
            raise UsageError("the schema has no columns; name one at least")
        self.schema = schema
