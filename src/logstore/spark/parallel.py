"""One Spark task for each item of a list: what the helpers that are no data source run on."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(spark: SparkSession, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """``action`` of each item, each in a task of its own; the results in the order of the items.

    A task that fails is tried again as Spark is set, so ``action`` must bear to be repeated. It, the items
    and the results are pickled.
    """
    if not items:
        return []

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = pickle.dumps(action(items[number]))
                yield pa.RecordBatch.from_pydict({"number": [number], "result": [result]})

    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(work, "number long, result binary").collect()  # type: ignore[arg-type]
    by_number = {row.number: bytes(row.result) for row in rows}
    return [pickle.loads(by_number[number]) for number in range(len(items))]  # noqa: S301 - of our own tasks
