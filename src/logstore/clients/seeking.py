"""Where a consumer begins: at a committed offset, as ``auto_offset_reset`` says, or at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    NO_EPOCH,
    NO_OFFSET,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
)
from logstore.clients.asking import ask
from logstore.clients.commits import Commits
from logstore.clients.positions import NO_POSITION, Position, Positions
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.errors import OffsetOutOfRangeError
from logstore.model import Isolation, TopicPartition


class Seeking:
    """Of one consumer."""

    def __init__(
        self,
        broker: Broker,
        positions: Positions,
        commits: Commits | None,
        isolation: Isolation,
        config: ConsumerConfig,
        clock: Clock,
    ) -> None:
        """``commits``: where to look for committed offsets, if the consumer has a group."""
        self._broker = broker
        self._positions = positions
        self._commits = commits
        self._isolation = isolation
        self._config = config
        self._clock = clock
        self.is_waiting = False
        """Whether a partition has no position, because an open transaction is about to commit one."""

    def find(self) -> bool:
        """Give a position to each partition that has none, unless a transaction is about to commit one.
        Returns whether one has got one.

        Raises:
            OffsetOutOfRangeError: the group has committed none, and ``auto_offset_reset`` is ``"none"``.
        """
        unknown = [each for each in self._positions if each.offset == NO_POSITION]
        unstable: frozenset[TopicPartition] = frozenset()
        if unknown and self._commits is not None:
            committed, unstable = self._commits.look_up([each.partition for each in unknown])
            for position in unknown:
                value = committed.get(position.partition)
                if value is not None and position.partition not in unstable:
                    epoch = NO_EPOCH if value.leader_epoch is None else value.leader_epoch
                    position.seek(value.offset, epoch)
        self.is_waiting = bool(unstable)
        self.reset([p for p in unknown if p.offset == NO_POSITION and p.partition not in unstable])
        return len(unknown) > len(unstable)

    def reset(self, positions: Sequence[Position]) -> None:
        """Go where ``auto_offset_reset`` says.

        Raises:
            OffsetOutOfRangeError: it says ``"none"``.
        """
        if not positions:
            return
        reset = self._config.auto_offset_reset
        if reset == "none":
            names = ", ".join(str(each.partition) for each in positions[:8])
            raise OffsetOutOfRangeError(
                f"there is no committed offset for {names}, and auto_offset_reset is 'none'; seek() sets one"
            )
        if isinstance(reset, timedelta):
            when: int = max(self._clock.now_ms() - reset // timedelta(milliseconds=1), 0)
        else:
            when = EARLIEST if reset == "earliest" else LATEST
        self.seek_to(positions, when)

    def seek_to(self, positions: Iterable[Position], when: int) -> None:
        """Go to the start, the end, or the first record at or after a time; to the end if there is none."""
        wanted = list(positions)
        found = self.look_up([each.partition for each in wanted], when)
        missing = [each.partition for each in wanted if found[each.partition].offset == NO_OFFSET]
        found.update(self.look_up(missing, LATEST))
        for position in wanted:
            there = found[position.partition]
            position.seek(there.offset, there.leader_epoch)

    def offsets(self, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int]:
        """Look up the start, the end or a time of each partition; ``NO_OFFSET`` where there is none."""
        return {partition: found.offset for partition, found in self.look_up(partitions, when).items()}

    def look_up(self, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, ListedOffset]:
        """The same, with the leader epochs."""
        if not partitions:
            return {}
        wanted = tuple(ListOffsetsPartition(each, when) for each in partitions)
        request = ListOffsetsRequest(wanted, self._isolation)
        answer = ask(self._broker.list_offsets(request), "look up offsets", self._config)
        for each in answer.partitions:
            if each.error is not ErrorCode.NONE:
                raise error_of(each.error, f"{each.partition}: {each.message or each.error.name}")
        return {each.partition: each for each in answer.partitions}
