"""Shortcuts to DataFrames: a topic as its current table, and what is new since an output was written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from logstore.arguments import check_list, shown
from logstore.errors import InvalidConfigError, OffsetOutOfRangeError, UsageError
from logstore.files import OsFiles, PathLike, check_path
from logstore.model import TopicPartition
from logstore.spark.comparing import compared, epochs_of
from logstore.spark.options import Options, Use
from logstore.spark.origins.choice import origin_of
from logstore.spark.parquet_output import Offsets, ParquetOutput, ReadOffsets
from logstore.spark.positions import EARLIEST, Subscription, bounds_of_all
from logstore.spark.stream_offsets import Loss, Seen, StreamOffset, named_losses, next_begins
from logstore.spark.stream_offsets import Offsets as PartitionOffsets
from logstore.warning import warn

if TYPE_CHECKING:
    from logstore.spark.origins.origin import Origin


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
    offsets: ReadOffsets
    """The offsets after the records, by topic and partition; for :meth:`ParquetOutput.commit`."""
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
            offsets or times are read. With ``failOnDataLoss="false"`` a log of which records are lost is
            read from the first on that is left, or has taken the place of another that was read; a topic that
            was created again from its beginning.

    Raises:
        UsageError: ``topics`` is no list, or ``output`` is no :class:`ParquetOutput`.
        InvalidConfigError: an option is wrong, or would change what is read.
        UnknownTopicError: there is no such topic.
        OffsetOutOfRangeError: records that the output does not have are lost, or may be: a log ends below the
            offsets of the output or was cut below them, its beginning was deleted, or its topic was created
            again.
    """
    check_list(topics, "topics", "topic names")
    if isinstance(output, str | os.PathLike):
        raise UsageError(f"output is {shown(output)}; it must be a ParquetOutput, which takes this path")
    last = output.last()
    done = ReadOffsets() if last is None else last.offsets
    place = {"path": OsFiles().absolute(check_path(path)), "subscribe": ",".join(topics)}
    wanted = {**_texts_of(options), **place}
    parsed = Options(wanted, Use.BATCH_READ)
    origin = origin_of(parsed)
    try:
        starts, ends, offsets = _plan(origin, parsed, done, output.path)
    finally:
        origin.close()
    reader = spark.read.format("logstore").options(
        **wanted, startingOffsets=json.dumps(_by_topic(starts)), endingOffsets=json.dumps(_by_topic(ends))
    )
    return NewRecords(reader.load(), offsets, -1 if last is None else last.number)


def _plan(
    origin: Origin, options: Options, done: ReadOffsets, output_path: str
) -> tuple[PartitionOffsets, PartitionOffsets, ReadOffsets]:
    """From where to where all partitions are read, and the ends of those of which something is.

    Raises:
        OffsetOutOfRangeError: records are lost, or may be, and ``failOnDataLoss`` is true.
    """
    bounds = bounds_of_all(origin, Subscription(options).partitions(origin), options.isolation())
    topic_ids = {
        topic: topic_id
        for topic, topic_id in origin.topic_ids({each.topic for each in bounds}).items()
        if topic_id is not None
    }
    known = StreamOffset(
        ends=_by_partition(done), epochs=_by_partition(done.epochs), topic_ids=done.topic_ids
    )
    seen = Seen({each: both for each, both in bounds.items() if each in known.ends}, topic_ids)
    seen = compared(origin, seen, known, known.ends)
    begins, losses = next_begins(known, seen, lambda _: False)
    _report(losses, f"records of {origin} that {output_path} does not have", options)
    firsts = {each: begins.get(each, both.start) for each, both in bounds.items()}
    ends = {each: both.end for each, both in bounds.items()}
    lost = {loss.partition for loss in losses}
    grown = {each: end for each, end in ends.items() if each in lost or end > firsts[each]}
    offsets = ReadOffsets(
        _by_topic(grown),
        topic_ids={topic: topic_ids[topic] for topic in {each.topic for each in grown} if topic in topic_ids},
        epochs=_by_topic(epochs_of(origin, seen, known, firsts, grown)),
    )
    return {each: begins.get(each, EARLIEST) for each in bounds}, ends, offsets


def _report(losses: Sequence[Loss], what: str, options: Options) -> None:
    """
    Raises:
        OffsetOutOfRangeError: there are losses, and ``failOnDataLoss`` is true.
    """
    if losses and options.flag("failOnDataLoss", default=True):
        raise OffsetOutOfRangeError(
            f"{what} are lost, or may be: {named_losses(losses)}. "
            'failOnDataLoss="false" continues with the rest'
        )
    if losses:
        warn("%s are lost, or may be: %s (failOnDataLoss=false)", what, named_losses(losses))


def _by_topic(offsets: PartitionOffsets) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, number), offset in offsets.items():
        found.setdefault(topic, {})[number] = offset
    return found


def _by_partition(offsets: Offsets) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, number): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }
