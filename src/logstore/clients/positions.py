"""Where a consumer is in each of its partitions, and what it has fetched there and not yet given out.

Values only: no broker, no clock, no thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from logstore.model import Record, TopicPartition

NO_POSITION = -1
"""Not known yet: it is looked up before the first fetch."""


class Position:
    """One partition."""

    __slots__ = (
        "_waiting",
        "fetch_offset",
        "is_paused",
        "offset",
        "partition",
        "seek_count",
    )

    def __init__(self, partition: TopicPartition, offset: int = NO_POSITION) -> None:
        self.partition = partition
        self.offset = offset
        """The offset of the next record to give out."""
        self.fetch_offset = offset
        """Where the next fetch begins: behind what waits here."""
        self.is_paused = False
        self.seek_count = 0
        """Changes when records that were taken are no longer what comes next."""
        self._waiting: deque[list[Record]] = deque()

    def seek(self, offset: int) -> None:
        """Go on from there. What was fetched is fetched again."""
        self.offset = self.fetch_offset = offset
        self.seek_count += 1
        self._waiting.clear()

    def put(self, records: Iterable[list[Record]], fetch_offset: int) -> None:
        """Keep what was fetched up to ``fetch_offset``. If getting a list raises, those before it are kept,
        and the next fetch begins behind them."""
        for found in records:
            self._waiting.append(found)
            self.fetch_offset = found[-1].offset + 1
        self.fetch_offset = fetch_offset
        if not self._waiting:
            self.offset = fetch_offset

    @property
    def has_records(self) -> bool:
        """Whether something waits to be given out."""
        return bool(self._waiting)

    def take(self, most: int) -> list[Record]:
        """At most so many records, which count as given out."""
        found = self._waiting.popleft()
        if len(found) > most:
            self._waiting.appendleft(found[most:])
            found = found[:most]
        self.offset = found[-1].offset + 1
        if not self._waiting:
            self.offset = self.fetch_offset
        return found

    def give_back(self, records: list[Record]) -> None:
        """Records that were taken, and that nobody has used: they come again."""
        self.offset = records[0].offset
        self._waiting.appendleft(records)


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

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Those that the consumer has."""
        return tuple(self._all)

    def offsets(self) -> dict[TopicPartition, int]:
        """The offset of the next record in each. From any thread: the table is copied in one step."""
        return {partition: position.offset for partition, position in self._all.copy().items()}

    def move_last(self, position: Position) -> None:
        """The others are read before it is read again."""
        self._all[position.partition] = self._all.pop(position.partition)

    def to_fetch(self) -> list[Position]:
        """Those of which nothing waits, and that are not paused."""
        return [each for each in self if not each.has_records and not each.is_paused]

    def with_records(self) -> Position | None:
        """The first of which something waits, and that is not paused."""
        return next((each for each in self if each.has_records and not each.is_paused), None)
