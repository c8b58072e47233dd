"""Writes rows of Spark into staged files: the checks of the driver, and the work of a task.

The columns are those of the Kafka connector's sink, plus a timestamp. A task gathers some megabytes of rows,
divides them by topic and partition, encodes each part with its topic's settings, and appends the batches to
its files, so its memory is bounded however much it writes. Knows Arrow, but not pyspark.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import InvalidRecordError, LogstoreError, UnknownTopicError
from logstore.files import OsFiles
from logstore.format.names import check_new_topic_name
from logstore.logdir.catalogue import MAX_PARTITIONS
from logstore.logdir.held import not_held_reason
from logstore.partition.encoding import arrow_input
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.spark.columns import constant
from logstore.spark.commits import opened
from logstore.spark.ledger import RESERVED_TOPICS
from logstore.spark.options import Options, wrong_option
from logstore.spark.staging import StagedFile, StagedWriter, Target, staged_name
from logstore.store import Store, open_store

DEFAULT_LOCK_TIMEOUT_MS: Final = 60_000

GATHERED_BYTES: Final = 8 * 1024 * 1024
"""How many bytes of rows a task gathers before it encodes them. More gives fuller batches if a topic has many
partitions, but more cache misses: 64 MiB costs a quarter of the speed."""
_BYTES_PER_PARTITION: Final = 512 * 1024
_MOST_GATHERED_BYTES: Final = 64 * 1024 * 1024

_RESERVED: Final = "only the store itself writes this topic"

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_TYPES: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": (_HEADERS,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, and the types each may have."""
_IGNORED: Final = ("offset", "timestampType")
"""Columns of a read that have no meaning in a write."""


class WritePlan(NamedTuple):
    """What driver and tasks know about a write. Can be pickled."""

    path: str
    topic: str | None
    """None if the column ``topic`` names it."""
    columns: tuple[str, ...]
    """The columns that are used."""
    lock_timeout_ms: int


def plan_write(options: Options, fields: Iterable[tuple[str, str]]) -> WritePlan:
    """Check options and columns, and create the topic if the options ask for it.

    Args:
        options: the options of the write.
        fields: name and type of each column, as in Spark's ``simpleString``.

    Raises:
        InvalidConfigError: an option is wrong or missing.
        InvalidRecordError: a column is missing or of the wrong type.
        UnknownTopicError: there is no such topic.
        LockedError: the topic must be created, but another process has the store open for writing.
    """
    types = {}
    for name, kind in fields:
        if name in types:
            raise InvalidRecordError(f"column {name!r} comes twice")
        types[name] = kind
    for name, kind in types.items():
        _check_column(name, kind)
    topic = options.text("topic")
    if "value" not in types:
        raise InvalidRecordError("column 'value' is missing")
    if topic is None and "topic" not in types:
        raise wrong_option("option topic is missing, and there is no column 'topic' either")
    timeout_ms = options.number("lockTimeoutMs", least=0)
    plan = WritePlan(
        options.directory(),
        topic,
        tuple([name for name in types if name in _TYPES and (name != "topic" or topic is None)]),
        DEFAULT_LOCK_TIMEOUT_MS if timeout_ms is None else timeout_ms,
    )
    partitions = options.number("partitions")
    if partitions is not None and partitions > MAX_PARTITIONS:
        options.refuse("partitions", f"it must be a number from 1 to {MAX_PARTITIONS}")
    if topic is not None:
        check_new_topic_name(topic)
        if topic in RESERVED_TOPICS:
            options.refuse("topic", _RESERVED)
        _require_topic(plan, topic, partitions)
    elif partitions is not None:
        options.refuse("partitions", "it is for the topic that option topic names")
    return plan


def _check_column(name: str, kind: str) -> None:
    if name in _IGNORED:
        return
    if name not in _TYPES:
        wanted = ", ".join(_TYPES)
        raise InvalidRecordError(f"there is no column {name!r} to write; the columns are {wanted}")
    if kind not in _TYPES[name]:
        raise InvalidRecordError(f"column {name!r} is {kind}; it must be {' or '.join(_TYPES[name])}")


def _require_topic(plan: WritePlan, topic: str, partitions: int | None) -> None:
    """Check that the topic exists; with ``partitions``, create it and the store if necessary."""
    try:
        with open_store(plan.path, read_only=True) as store:
            store[topic]
        return
    except LogstoreError:
        if partitions is None:
            raise
    if not OsFiles().is_directory(plan.path):
        open_store(plan.path).close()
    with opened(plan.path, plan.lock_timeout_ms) as store:
        if topic not in store:
            store.create_topic(topic, partitions=partitions)


# Tasks ------------------------------------------------------------------------------------------------------


def stage_rows(
    plan: WritePlan, sink: str, batch_id: int, task: int, batches: Iterable[Any]
) -> list[StagedFile]:
    """Encode rows into this task's own staged files; none if there are no rows.

    Args:
        sink: the writer of the rows.
        batches: Arrow record batches.

    Raises:
        InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a row cannot be a record of its topic;
            names topic and row, counted in this task.
        UnknownTopicError: there is no such topic or partition, or the store does not hold the partition.
        StorageError: the disk failed.
    """
    writer = StagedWriter(OsFiles(), plan.path, lambda: staged_name(sink, batch_id, task))
    try:
        stage = _Stage(plan, writer, first_partition=task + batch_id)
        for batch in batches:
            stage.add(batch)
        stage.encode()
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


class _Stage:
    """The rows of a task that wait to be encoded."""

    def __init__(self, plan: WritePlan, writer: StagedWriter, first_partition: int) -> None:
        self._plan = plan
        self._writer = writer
        self._first_partition = first_partition
        with open_store(plan.path, read_only=True) as store:
            wanted = store if plan.topic is None else [plan.topic]
            self._topics = {name: _topic_of(store, name) for name in wanted if name in store}
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._limit_bytes = self._gathering_limit()
        self._row_count = 0
        """The number of rows encoded so far; errors count rows from here."""

    def _gathering_limit(self) -> int:
        if self._plan.topic is None:
            return _MOST_GATHERED_BYTES // 4
        wanted = len(self._topic(self._plan.topic, 0).held) * _BYTES_PER_PARTITION
        return max(GATHERED_BYTES, min(wanted, _MOST_GATHERED_BYTES))

    def add(self, batch: Any) -> None:
        """Take rows; encode when there are enough of them."""
        if not batch.num_rows:
            return
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        if self._gathered_bytes >= self._limit_bytes:
            self.encode()

    def encode(self) -> None:
        """Encode what has been gathered."""
        batches, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if not batches:
            return
        data = pa.Table.from_batches(batches).select(self._plan.columns)
        if "timestamp" in self._plan.columns:
            data = data.rename_columns(
                [{"timestamp": "timestamp_ms"}.get(name, name) for name in data.column_names]
            )
        for name, rows, numbers in self._by_topic(data):
            topic = self._topic(name, self._row_count)
            self._encode_topic(topic, rows, numbers)
        self._row_count += data.num_rows
        self._first_partition += 1

    def _topic(self, name: str, row: int) -> _Topic:
        topic = self._topics.get(name)
        if topic is None:
            where = "" if self._plan.topic is not None else f", which column 'topic' names after row {row}"
            raise UnknownTopicError(f"there is no topic {name!r} in {self._plan.path}{where}")
        return topic

    def _by_topic(self, data: Any) -> Iterator[tuple[str, Any, Any]]:
        """(topic, its rows, their numbers in ``data`` or None for all of them)."""
        if self._plan.topic is not None:
            yield self._plan.topic, data, None
            return
        names = data.column("topic").combine_chunks()
        if names.null_count:
            raise InvalidRecordError(
                f"column 'topic' is null in row {self._row_count + _first_true(names.is_null())}"
            )
        data = data.drop_columns(["topic"])
        for name in pc.unique(names).to_pylist():
            numbers = pc.indices_nonzero(pc.equal(names, name))
            yield name, data.take(numbers), numbers

    def _encode_topic(self, topic: _Topic, data: Any, numbers: Any) -> None:
        if topic.name in RESERVED_TOPICS:
            raise InvalidRecordError(f"column 'topic' is {topic.name!r}: {_RESERVED}")
        now_ms = SystemClock().now_ms()
        rows = _Rows(topic, data, numbers, self._row_count)
        rows.check()
        for part in rows.divide(self._first_partition):
            target = Target(topic.name, topic.topic_id, part.partition)
            try:
                batches = arrow_input.encode(part.data, topic.encoder, now_ms)
            except LogstoreError as error:
                at, reason = _first_refused(part.data, topic.encoder, now_ms, error)
                row = rows.row(part.number_of(at))
                raise type(error)(
                    f"topic {topic.name!r}, partition {part.partition}, row {row}: {reason}"
                ) from error
            self._writer.append(target, batches, topic.config.segment_bytes)


class _Topic(NamedTuple):
    """What a task knows about a topic."""

    name: str
    topic_id: str
    partition_count: int
    held: tuple[int, ...]
    """The partitions that can be written to."""
    path: str
    """The path of the store."""
    config: TopicConfig
    encoder: RowEncoder


def _first_refused(data: Any, encoder: RowEncoder, now_ms: int, error: LogstoreError) -> tuple[int, str]:
    """The first row that cannot be encoded, and why. ``error`` is the one of all rows. Whether a row can be
    encoded does not depend on the others, so halves are tried: in all twice the time of encoding the rows."""
    first, count = 0, data.num_rows
    while count > 1:
        half = count // 2
        try:
            arrow_input.encode(data.slice(first, half), encoder, now_ms)
        except LogstoreError:
            count = half
        else:
            first, count = first + half, count - half
    try:
        arrow_input.encode(data.slice(first, 1), encoder, now_ms)
    except LogstoreError as its_own:
        error = its_own
    reason = (
        str(error).replace("timestamp_ms", "column 'timestamp'").replace("header of", "column 'headers' of")
    )
    return first, reason.replace("record 0", "the row")


def _topic_of(store: Store, name: str) -> _Topic:
    topic = store[name]
    encoder = RowEncoder(StoreConfig(), topic.config)
    return _Topic(
        name, str(topic.topic_id), len(topic), topic.held_partitions, store.path, topic.config, encoder
    )


class _Part(NamedTuple):
    """The rows for one partition, or some of them."""

    partition: int
    data: Any
    number_of: Callable[[int], int]
    """The number of one of these rows among those of the topic. Cost: as dividing them."""


class _Rows:
    """Rows for one topic."""

    def __init__(self, topic: _Topic, data: Any, numbers: Any, first_row: int) -> None:
        self._topic = topic
        self._data = data
        self._numbers = numbers
        self._first_row = first_row

    def row(self, number: int) -> int:
        """The number, in the task, of one of these rows."""
        return self._first_row + (number if self._numbers is None else self._numbers[number].as_py())

    def _row(self, mask: Any) -> int:
        """The number, in the task, of the first row for which a mask is true."""
        return self.row(_first_true(mask))

    def check(self) -> None:
        """
        Raises:
            InvalidRecordError: a key is null, but the topic needs keys.
        """
        if not self._topic.config.compacts:
            return
        keys = self._data.column("key") if "key" in self._data.column_names else None
        if keys is None or keys.null_count:
            row = self._first_row if keys is None else self._row(keys.is_null())
            raise InvalidRecordError(
                f"column 'key' is null in row {row}: topic {self._topic.name!r} is compacted and needs keys"
            )

    def divide(self, first_partition: int) -> Iterator[_Part]:
        """The rows of each partition, in order. Rows without a key are spread in runs.

        Raises:
            UnknownTopicError: a row is for a partition that the topic does not have, or that the store does
                not hold.
        """
        names = self._data.column_names
        data = self._data.drop_columns(["partition"]) if "partition" in names else self._data
        count, held = self._topic.partition_count, self._topic.held
        given = self._given_partitions() if "partition" in names else None
        if given is None and count == 1:
            yield _Part(0, data, lambda number: number)
        elif given is None and ("key" not in names or data.column("key").null_count == data.num_rows):
            yield from self._runs(data, first_partition)
        else:
            by_key = self._by_key(data, count, held[first_partition % len(held)])
            partitions = by_key if given is None else pc.coalesce(given, by_key)
            self._check_held(partitions)
            for partition, part in arrow_input.divide_by(data, partitions):
                yield _Part(partition, part, partial(_number_in, partitions, partition))

    def _check_held(self, partitions: Any) -> None:
        topic = self._topic
        if len(topic.held) == topic.partition_count:
            return
        is_wrong = pc.invert(pc.is_in(partitions, pa.array(topic.held, partitions.type)))
        if pc.any(is_wrong).as_py():
            number = partitions[_first_true(is_wrong)].as_py()
            reason = not_held_reason(topic.name, number, topic.held, topic.partition_count, topic.path)
            raise UnknownTopicError(f"row {self._row(is_wrong)} is for partition {number}: {reason}")

    def _given_partitions(self) -> Any:
        given = self._data.column("partition").combine_chunks()
        if given.null_count == len(given):
            return None
        count = self._topic.partition_count
        least, most = constant(0, given.type), constant(count - 1, given.type)
        is_wrong = pc.or_(pc.less(given, least), pc.greater(given, most))
        if pc.any(is_wrong).as_py():
            number = given[_first_true(is_wrong)].as_py()
            raise UnknownTopicError(
                f"column 'partition' is {number} in row {self._row(is_wrong)}: topic "
                f"{self._topic.name!r} has {count} partitions"
            )
        return given

    def _by_key(self, data: Any, count: int, without_key: int) -> Any:
        if "key" not in data.column_names:
            return pa.repeat(constant(without_key, pa.int32()), data.num_rows)
        by_key = arrow_input.partitions_of_keys(data.column("key"), count)
        return pc.fill_null(by_key, constant(without_key, pa.int32()))

    def _runs(self, data: Any, first_partition: int) -> Iterator[_Part]:
        """An equal share for each held partition, but no share smaller than a batch."""
        held = self._topic.held
        share_bytes = max(data.nbytes // len(held), StoreConfig().batch_bytes, 1)
        step = max(data.num_rows * share_bytes // max(data.nbytes, 1), 1)
        for number, start in enumerate(range(0, data.num_rows, step)):
            partition = held[(first_partition + number) % len(held)]
            yield _Part(partition, data.slice(start, step), partial(operator.add, start))


def _number_in(partitions: Any, partition: int, number: int) -> int:
    """The number, among all rows, of a row of one partition. ``partitions`` has the partition of each."""
    found: int = pc.indices_nonzero(pc.equal(partitions, partition))[number].as_py()
    return found


def _first_true(mask: Any) -> int:
    found: int = pc.index(mask, True).as_py()
    return found
