"""What the Spark benchmark reads and writes: stores, Parquet files, and a stock broker that serves copies of
the same partitions.

Values are random hexadecimal digits, which compress to half. The same rows are everywhere, in two partitions
or files, so that every reader can use two cores.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import logstore
from benchmarks.records import BASE_TIMESTAMP_MS

if TYPE_CHECKING:
    from tests.interop.kafka import KafkaBroker

PARTITIONS = 2
_CHUNK_BYTES = 1_000_000


class Shape(NamedTuple):
    """One kind of record."""

    value_bytes: int
    codec: str
    """``uncompressed`` or ``zstd``."""

    @property
    def title(self) -> str:
        size = "1 KiB" if self.value_bytes == 1024 else f"{self.value_bytes} B"
        return f"{size}, {self.codec}"

    @property
    def topic(self) -> str:
        return f"values-{self.value_bytes}-{self.codec}"

    @property
    def batch_records(self) -> int:
        """The batch size of a producer that is set for throughput."""
        return 1_000 if self.value_bytes < 500 else 500


def make_rows(shape: Shape, first: int, count: int) -> Iterator[Any]:
    """Arrow tables of one batch each: key, value, timestamp_ms."""
    import pyarrow as pa

    chance = random.Random(first)
    for start in range(first, first + count, shape.batch_records):
        rows = min(shape.batch_records, first + count - start)
        digits = chance.randbytes(rows * shape.value_bytes // 2).hex().encode()
        values = pa.Array.from_buffers(pa.binary(shape.value_bytes), rows, [None, pa.py_buffer(digits)])
        numbers = range(start, start + rows)
        yield pa.table(
            {
                "key": pa.array([b"%016d" % number for number in numbers], pa.binary()),
                "value": values.cast(pa.binary()),
                "timestamp_ms": pa.array([BASE_TIMESTAMP_MS + number for number in numbers], pa.int64()),
            }
        )


def topic_config(shape: Shape) -> logstore.TopicConfig:
    return logstore.TopicConfig(retention_ms=-1, compression_type=shape.codec)


def make_topic(
    store: logstore.Store, shape: Shape, count: int, *, topic: str = "", partitions: int = PARTITIONS
) -> None:
    """A topic with so many records, spread evenly."""
    made = store.create_topic(topic or shape.topic, partitions=partitions, config=topic_config(shape))
    share = count // partitions
    for number in range(partitions):
        for table in make_rows(shape, number * share, share):
            made[number].extend_arrow(table)


def parquet_place(directory: Path, shape: Shape, *, columns: list[str]) -> Path:
    """Where :func:`make_parquet` puts the files."""
    return directory / ("parquet-" + shape.topic + ("" if "offset" in columns else "-rows"))


def make_parquet(store: logstore.Store, shape: Shape, directory: Path, *, columns: list[str]) -> Path:
    """The records of a shape's topic as Parquet, a file for each partition, with some of the columns that a
    read of the topic has; compressed as the topic is."""
    import pyarrow as pa
    import pyarrow.parquet

    place = parquet_place(directory, shape, columns=columns)
    place.mkdir()
    codec = "NONE" if shape.codec == "uncompressed" else shape.codec
    for number, log in enumerate(store[shape.topic]):
        with ExitStack() as stack:
            writer = None
            for batch in log.iterate_arrow():
                rows = batch.num_rows
                found = {
                    "key": batch.column("key"),
                    "value": batch.column("value"),
                    "topic": pa.array([shape.topic] * rows),
                    "partition": pa.array([number] * rows, pa.int32()),
                    "offset": batch.column("offset"),
                    "timestamp": batch.column("timestamp_ms")
                    .cast(pa.timestamp("ms"))
                    .cast(pa.timestamp("us", "UTC")),
                    "timestampType": pa.array([0] * rows, pa.int32()),
                }
                table = pa.table({name: found[name] for name in columns})
                if writer is None:
                    path = place / f"{number}.parquet"
                    writer = pa.parquet.ParquetWriter(path, table.schema, compression=codec)
                    stack.enter_context(writer)
                writer.write_table(table, row_group_size=1 << 20)
    return place


def directory_bytes(directory: Path, suffix: str) -> int:
    """The size of all files of a kind."""
    return sum(path.stat().st_size for path in directory.rglob(f"*{suffix}"))


def serve(broker: KafkaBroker, store_path: Path, shapes: tuple[Shape, ...]) -> None:
    """Let a running broker serve copies of the store's partitions. Restarts it."""
    broker.serve_partitions(
        {
            shape.topic: [store_path / f"{shape.topic}-{number}" for number in range(PARTITIONS)]
            for shape in shapes
        }
    )


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
