"""Where a consumer is in each of its partitions, and what it has fetched there and not yet given out.

Values only: no broker, no clock, no thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from logstore.broker.requests import NO_EPOCH, FetchedPartition, FetchPartition
from logstore.clients.offsets import PartitionName, check_partition
from logstore.clients.received import ReceivedRecords
from logstore.errors import CorruptionError, UsageError
from logstore.format.loops import Columns
from logstore.model import OffsetAndMetadata, Record, TopicPartition
from logstore.serializing import SerializedRecord

NO_POSITION = -1
"""Not known yet: it is looked up before the first fetch."""


class Position:
    """One partition."""

    __slots__ = (
        "_behind",
        "_received",
        "_rest",
        "_taken",
        "_wanted",
        "epoch",
        "fetch_offset",
        "is_paused",
        "offset",
        "partition",
        "seek_count",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition, offset: int = NO_POSITION) -> None:
        self.partition = partition
        self.offset = offset
        """The offset of the next record to give out."""
        self.fetch_offset = offset
        """Where the next fetch begins: behind what waits here."""
        self.epoch = NO_EPOCH
        """The leader epoch of what was read in front of that; -1 if it is not known. By it the broker sees
        whether that is still in the log (KIP-320)."""
        self.topic_id: UUID | None = None
        """Of the topic that the offsets are of, once something was fetched of it."""
        self.is_paused = False
        self.seek_count = 0
        """Changes when records that were taken are no longer what comes next."""
        self._received: ReceivedRecords | None = None
        """What was fetched and not decoded yet."""
        self._rest: list[Record] = []
        """What was decoded and not given out."""
        self._taken: list[Record] = []
        """What was given out last."""
        self._behind = NO_POSITION
        """The offset behind that, while it is given one by one."""
        self._wanted: FetchPartition | None = None
        """What was asked for last."""

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Go on from there, in the topic that has the name now. What was fetched is fetched again. ``epoch``:
        the leader epoch of what is in front of it, if that is known."""
        self.topic_id = None
        self.epoch = epoch
        self.go_to(offset)

    def go_to(self, offset: int) -> None:
        """The same, in the topic that the offsets are of."""
        self.offset = self.fetch_offset = offset
        self.seek_count += 1
        self._received, self._rest, self._taken = None, [], []

    def wanted(self, limit: int) -> FetchPartition:
        """What to fetch next, at most so many bytes. The same object as before if it is the same: a client of
        a broker elsewhere compares what it wants of each partition with what it wanted before."""
        wanted = self._wanted
        if (
            wanted is None
            or wanted.offset != self.fetch_offset
            or wanted.topic_id is not self.topic_id
            or wanted.max_bytes != limit
            or wanted.last_fetched_epoch != self.epoch
        ):
            wanted = self._wanted = FetchPartition(
                self.partition,
                self.fetch_offset,
                limit,
                topic_id=self.topic_id,
                last_fetched_epoch=self.epoch,
            )
        return wanted

    def put(self, fetched: FetchedPartition) -> bool:
        """Keep what was fetched at ``fetch_offset``. Returns whether that goes anywhere."""
        if self.topic_id is None:
            self.topic_id = fetched.topic_id
        has_moved = fetched.next_offset > self.fetch_offset
        if has_moved:
            self.epoch = fetched.last_epoch
        if fetched.data:
            self._received = ReceivedRecords(fetched, self.fetch_offset)
        elif self.offset == self.fetch_offset:  # all was given out, and used
            self.offset = fetched.next_offset
        self.fetch_offset = fetched.next_offset
        return has_moved

    @property
    def to_commit(self) -> OffsetAndMetadata:
        """What a commit of it says."""
        return OffsetAndMetadata(self.offset, leader_epoch=None if self.epoch == NO_EPOCH else self.epoch)

    @property
    def has_records(self) -> bool:
        """Whether something waits that may hold records."""
        return bool(self._rest) or self._received is not None

    def take(self, most: int) -> list[Record]:
        """At most so many records, which count as given out. None, if what waited holds none.

        Raises:
            CorruptionError: the next batch is damaged. The position stays, and it is fetched again.
        """
        found, self._rest = self._rest or self._decoded(), []
        if len(found) > most:
            found, self._rest = found[:most], found[most:]
        if self._received is not None and self._received.is_over:
            self._received = None
        self._taken = found
        self.offset = found[-1].offset + 1 if self.has_records else self.fetch_offset
        return found

    def take_columns(self, columns: Columns, row_limit: int, byte_limit: int) -> None:
        """Append the next records to columns, about so many and so many bytes. They count as given out.

        Raises:
            CorruptionError: as :meth:`take`.
        """
        rest, self._rest, self._taken = self._rest, [], []
        if rest:
            for record in rest:
                columns.append_row(*record, int(record.timestamp_type))
            next_offset = rest[-1].offset + 1
        else:
            assert self._received is not None
            try:
                next_offset = self._received.fill(columns, row_limit, byte_limit)
            except CorruptionError:
                self.go_to(self.offset)
                raise
        if self._received is not None and self._received.is_over:
            self._received = None
        self.offset = next_offset if self.has_records else self.fetch_offset

    def _decoded(self) -> list[Record]:
        assert self._received is not None
        try:
            return self._received.next()
        except CorruptionError as error:
            error.partition = self.partition
            self.go_to(self.offset)
            raise

    def begin_one_by_one(self, offset: int) -> None:
        """The caller gives what was taken one by one, from an offset on, and moves :attr:`offset` with each
        record. It ends with another ``seek_count``."""
        self._behind, self.offset = self.offset, offset

    def end_one_by_one(self) -> None:
        """Of what was given one by one, the records that :attr:`offset` has not passed come again. An
        interrupt leaves it as it was, to be ended again."""
        back, taken = self._from(self.offset)
        rest, seek_count = back + self._rest, self.seek_count + 1
        offset = back[0].offset if back else self._behind
        self.offset, self._rest, self._taken, self.seek_count = offset, rest, taken, seek_count

    def give_back(self, offset: int = 0) -> None:
        """Of the records that were taken last, those from an offset on come again."""
        back, taken = self._from(offset)
        if back:
            self.offset = back[0].offset
            self._rest, self._taken = back + self._rest, taken

    def _from(self, offset: int) -> tuple[list[Record], list[Record]]:
        """The records that were taken last, from an offset on; and those before it."""
        back = [record for record in self._taken if record.offset >= offset]
        return back, self._taken[: len(self._taken) - len(back)]


class Positions:
    """Of one consumer. Partitions take turns: what was read last comes last."""

    def __init__(self) -> None:
        self._all: dict[TopicPartition, Position] = {}

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Have these partitions. Those that were there keep their place."""
        wanted = list(dict.fromkeys(partitions))
        self._all = {each: self._all.get(each) or Position(each) for each in wanted}

    def __iter__(self) -> Iterator[Position]:
        return iter(self._all.values())

    def __len__(self) -> int:
        return len(self._all)

    def get(self, partition: TopicPartition) -> Position | None:
        """The position in a partition that the consumer has."""
        return self._all.get(partition)

    def of(self, partition: PartitionName) -> Position:
        """The position in a partition that a caller names.

        Raises:
            UsageError: the consumer does not have it.
        """
        name = check_partition(partition)
        position = self._all.get(name)
        if position is None:
            have = ", ".join(map(str, sorted(self._all)[:8])) or "none (poll() joins its group and gets some)"
            raise UsageError(f"the consumer does not read {name}; it reads {have}")
        return position

    def named(self, partitions: Iterable[PartitionName]) -> list[Position]:
        """The positions in partitions that a caller names; all, if none is named.

        Raises:
            UsageError: the consumer does not have one of them.
        """
        return [self.of(each) for each in partitions] or list(self)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Those that the consumer has."""
        return tuple(self._all)

    def offsets(self) -> dict[TopicPartition, int]:
        """The offset of the next record in each where that is known. From any thread: the table is copied in
        one step."""
        found = {partition: position.offset for partition, position in self._all.copy().items()}
        return {partition: offset for partition, offset in found.items() if offset != NO_POSITION}

    def move_last(self, position: Position) -> None:
        """The others are read before it is read again."""
        self._all[position.partition] = self._all.pop(position.partition)

    def keep(self, position: Position) -> None:
        """Have it still, although :meth:`move_last` was interrupted."""
        self._all[position.partition] = position

    def to_fetch(self) -> list[Position]:
        """Those of which nothing waits, that have a position, and are not paused."""
        return [
            each for each in self if not (each.has_records or each.is_paused or each.offset == NO_POSITION)
        ]

    def with_records(self) -> Position | None:
        """The first of which something waits, and that is not paused."""
        return next((each for each in self if each.has_records and not each.is_paused), None)


def partition_of(record: Record | SerializedRecord) -> TopicPartition:
    """Where a record was read.

    Raises:
        UsageError: it does not say.
    """
    if record.topic is None or record.partition is None:
        raise UsageError("the record does not say of which partition it is; commit a mapping of offsets")
    return TopicPartition(record.topic, record.partition)
