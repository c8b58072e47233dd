"""Shortcuts to DataFrames: a topic as its current table, and what is new since an output was written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from logstore.arguments import check_list, shown
from logstore.errors import InvalidConfigError, OffsetOutOfRangeError, UsageError
from logstore.files import OsFiles, PathLike, check_path
from logstore.spark.options import Options, Use
from logstore.spark.origins.choice import origin_of
from logstore.spark.parquet_output import ParquetOutput
from logstore.spark.positions import EARLIEST, Subscription, bounds_of_all


def current_table(
    spark: SparkSession, path: PathLike, topic: str, *, isolation: str = "read_committed"
) -> DataFrame:
    """The current record of each key of a topic, compacted or not: columns key, value, topic, partition,
    offset, timestamp. Tombstones are left out. Runs one task for each partition.

    Each job that uses it reads the topic as it is then: a stream joined with it sees updates with its next
    micro-batch. ``.cache()`` keeps what was read first.

    Args:
        path: the store's directory, which the executors must see under the same name.
        isolation: ``read_committed`` or ``read_uncommitted``; both leave out aborted records.
    """
    return (
        spark.read.format("logstore")
        .option("path", OsFiles().absolute(check_path(path)))
        .option("subscribe", topic)
        .option("latestByKey", "true")
        .option("kafka.isolation.level", isolation)
        .load()
    )


_DECIDED: Final = ("starting", "ending", "subscribe", "assign", "path")
"""How the options begin that :func:`new_records` gives by itself. Times take precedence over offsets: records
would come again, or be passed over."""


def _texts_of(options: Mapping[str, str | bool | int]) -> dict[str, str]:
    """The options as Spark takes them, which writes booleans in lower case.

    Raises:
        InvalidConfigError: one would change which records are read.
    """
    for name, value in options.items():
        if name.lower().startswith(_DECIDED):
            raise InvalidConfigError(
                f"option {name} is {shown(value)}: new_records says by itself what is read, which begins "
                "where the output ends; leave the option out"
            )
    return {
        name: str(value).lower() if type(value) is bool else str(value) for name, value in options.items()
    }


class NewRecords(NamedTuple):
    """The result of :func:`new_records`."""

    records: DataFrame
    """The records, with the columns of every read."""
    offsets: dict[str, dict[int, int]]
    """The offsets after the records; for :meth:`ParquetOutput.commit`."""
    after: int
    """The number of the output's newest batch, -1 for none; for :meth:`ParquetOutput.commit`."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing new. Does not read records."""
        return not self.offsets


def new_records(
    spark: SparkSession,
    output: ParquetOutput,
    *,
    path: PathLike,
    topics: Sequence[str],
    **options: str | bool | int,
) -> NewRecords:
    """The records of some topics that are not in the output yet: from the offsets of its newest batch, or
    from the beginning, to the present end::

        new = new_records(spark, output, path="store", topics=["orders"])
        if not new.is_empty:
            output.commit(summed(new.records), new.offsets, after=new.after)

    Run it as often as you like: a crash anywhere leaves rows and offsets together, or neither.

    Args:
        path: the store's directory, which the executors must see under the same name.
        options: options of the read, such as ``includeHeaders="true"``, but not those that say which topics,
            offsets or times are read. With ``failOnDataLoss="false"`` a log that ends below the offsets of
            the output is read from its end on.

    Raises:
        UsageError: ``topics`` is no list, or ``output`` is no :class:`ParquetOutput`.
        InvalidConfigError: an option is wrong, or would change what is read.
        UnknownTopicError: there is no such topic.
        OffsetOutOfRangeError: a log ends below the offsets of the output.
    """
    check_list(topics, "topics", "topic names")
    if isinstance(output, str | os.PathLike):
        raise UsageError(f"output is {shown(output)}; it must be a ParquetOutput, which takes this path")
    last = output.last()
    done = {} if last is None else last.offsets
    place = {"path": OsFiles().absolute(check_path(path)), "subscribe": ",".join(topics)}
    wanted = {**_texts_of(options), **place}
    parsed = Options(wanted, Use.BATCH_READ)
    fails = parsed.flag("failOnDataLoss", default=True)
    origin = origin_of(parsed)
    starts: dict[str, dict[int, int]] = {}
    ends: dict[str, dict[int, int]] = {}
    grown: dict[str, dict[int, int]] = {}
    try:
        known = bounds_of_all(origin, Subscription(parsed).partitions(origin), parsed.isolation())
        for (topic, number), bounds in known.items():
            start = done.get(topic, {}).get(number, EARLIEST)
            is_lost = start > bounds.end
            if is_lost and fails:
                raise OffsetOutOfRangeError(
                    f"{topic}-{number} in {origin} ends at offset {bounds.end}, and {output.path} continues "
                    f"at {start}: the log was truncated, or the topic was deleted and created again; "
                    'failOnDataLoss="false" continues at its end'
                )
            start = min(start, bounds.end)
            starts.setdefault(topic, {})[number] = start
            ends.setdefault(topic, {})[number] = bounds.end
            if is_lost or bounds.end > (bounds.start if start == EARLIEST else start):
                grown.setdefault(topic, {})[number] = bounds.end
    finally:
        origin.close()
    reader = spark.read.format("logstore").options(
        **wanted, startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
    )
    return NewRecords(reader.load(), grown, -1 if last is None else last.number)
