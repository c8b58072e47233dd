"""The fetch of a consumer: one at a time, of all partitions of which nothing waits to be given out.

Has no thread: :meth:`Fetches.step` does what can be done now.
"""

from __future__ import annotations

from typing import Any

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending, wait_for
from logstore.broker.requests import (
    NO_NODE,
    NO_OFFSET,
    DivergingEpoch,
    FetchedPartition,
    FetchRequest,
    FetchResult,
)
from logstore.clients.counts import ConsumerCounts
from logstore.clients.positions import NO_POSITION, Position, Positions
from logstore.clients.seeking import Seeking
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.errors import CorruptionError, LogstoreError, OffsetOutOfRangeError
from logstore.model import Isolation
from logstore.warning import warn


class Fetches:
    """Of one consumer."""

    def __init__(
        self,
        broker: Broker,
        positions: Positions,
        seeking: Seeking,
        isolation: Isolation,
        config: ConsumerConfig,
        clock: Clock,
        counts: ConsumerCounts,
    ) -> None:
        self._broker = broker
        self._positions = positions
        self._seeking = seeking
        self._isolation = isolation
        self._config = config
        self._clock = clock
        self._resume_ms = -1
        """Fetch nothing before, by the monotonic clock: a quota is exceeded."""
        self._counts = counts
        self._under_way: tuple[Pending[FetchResult], list[tuple[Position, int]]] | None = None

    @property
    def waits_for(self) -> Pending[Any] | None:
        """The fetch that was not answered yet."""
        return None if self._under_way is None else self._under_way[0]

    def step(self, wait_ms: int) -> bool:
        """Begin a fetch that waits for so long, if none is under way, and take in what has arrived. Returns
        whether it is worth looking again at once.

        Raises:
            LogstoreError: a partition could not be fetched. What arrived of the others is kept.
        """
        self.begin(wait_ms)
        if self._under_way is None:
            return False
        pending, wanted_at = self._under_way
        result = pending.poll()
        if result is None:
            return False
        self._under_way = None
        if pending.throttle_time_ms:
            self._resume_ms = self._clock.monotonic_ms() + pending.throttle_time_ms
        has_moved = False
        failure: LogstoreError | None = None
        for (position, offset), fetched in zip(wanted_at, result.partitions, strict=True):
            is_same = fetched.next_offset == offset and not fetched.data and fetched.diverging is None
            if is_same and fetched.error is ErrorCode.NONE and position.topic_id is not None:
                continue  # nothing new, as of most partitions of most fetches
            if self._positions.get(position.partition) is position and position.fetch_offset == offset:
                try:
                    has_moved = self._take(position, fetched) or has_moved
                except LogstoreError as error:  # the others' records are there all the same
                    failure = failure or error
        if failure is not None:
            raise failure
        return has_moved or wait_ms > 0

    def begin(self, wait_ms: int) -> None:
        """Begin a fetch, if none is under way, there is something to fetch, and no quota forbids it. A
        partition that has waited for its offset is not kept waiting by a fetch of the others."""
        if self._under_way is not None:
            if not (self._seeking.is_waiting and self._seeking.find()):
                return
            self.drop()
        if self.is_throttled:
            return
        self._seeking.find()
        wanted = self._positions.to_fetch()
        if wanted:
            request = self._request(wanted, wait_ms)
            self._under_way = self._broker.fetch(request), [(each, each.fetch_offset) for each in wanted]

    @property
    def is_throttled(self) -> bool:
        """Whether a quota forbids to fetch now."""
        return self._resume_ms >= 0 and self.throttle_ms > 0

    @property
    def throttle_ms(self) -> int:
        """For how many milliseconds more."""
        return max(self._resume_ms - self._clock.monotonic_ms(), 0)

    def _request(self, wanted: list[Position], wait_ms: int) -> FetchRequest:
        config = self._config
        limit = config.max_partition_fetch_bytes
        return FetchRequest(
            tuple([each.wanted(limit) for each in wanted]),
            max_wait_ms=wait_ms if config.fetch_min_bytes <= 1 else min(wait_ms, config.fetch_max_wait_ms),
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation=self._isolation,
        )

    def _take(self, position: Position, fetched: FetchedPartition) -> bool:
        """Keep what was fetched of a partition. Whether that is something.

        Raises:
            LogstoreError: it could not be fetched.
        """
        if fetched.diverging is not None:
            self._leave(position, fetched.diverging)
            return True
        if fetched.error is ErrorCode.NONE:
            self._counts.fetched_bytes += len(fetched.data)
            return position.put(fetched)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE and self._config.auto_offset_reset != "none":
            position.seek(NO_POSITION)
            self._seeking.reset([position])
            return True
        if fetched.error is ErrorCode.UNKNOWN_TOPIC_ID and self._config.auto_offset_reset != "none":
            warn(
                "%s: the topic was deleted and made again; offset %d was of the old one, and "
                "auto_offset_reset says where to begin",
                position.partition,
                position.fetch_offset,
            )
            position.seek(NO_POSITION)
            self._seeking.reset([position])  # what is committed may be of the old one, too
            return True
        raise _error_at(position, fetched)

    def _leave(self, position: Position, diverging: DivergingEpoch) -> None:
        """Go on where the log has other records than those that were read (KIP-320).

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``"none"``.
        """
        offset, end = position.offset, diverging.end_offset
        if end < offset:
            gone = (
                f"{position.partition}: what was read from offset {end} to {offset - 1} is gone; it was lost "
                "or cut off, and other records take its place"
            )
            if self._config.auto_offset_reset == "none":
                raise OffsetOutOfRangeError(
                    f"{gone}; auto_offset_reset is 'none'; seek() to offset {end} reads what is there now"
                )
            warn("%s, which are read now", gone)
        position.go_to(min(offset, end))
        position.epoch = diverging.epoch

    def leave_what_is_gone(self, positions: list[Position]) -> None:
        """Go back where a log has other records than those in front of a position. Does not wait for any that
        are to come.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``"none"``.
        """
        for position, found in zip(positions, self._ask_now(positions), strict=False):
            if found.diverging is not None:
                self._leave(position, found.diverging)

    def are_none_left(self, position: Position, end: int) -> bool:
        """Whether there is no record from a position up to an end that readers have been told: the log was
        cut within a batch, and nothing has come since. Asks of this partition alone, so that nothing else
        takes the room of the answer. False if that is not known."""
        answers = self._ask_now([position])
        if not answers:
            return False
        (found,) = answers
        is_plain = found.error is ErrorCode.NONE and found.diverging is None and found.preferred_id == NO_NODE
        is_committed = self._isolation is Isolation.COMMITTED
        told_end = found.last_stable_offset if is_committed else found.high_watermark
        return is_plain and not found.data and found.next_offset == position.fetch_offset and told_end >= end

    def _ask_now(self, positions: list[Position]) -> tuple[FetchedPartition, ...]:
        """What there is at these positions, without waiting for records; nothing if no answer comes."""
        self.drop()
        request = self._request(positions, 0)._replace(min_bytes=1)
        result = wait_for(self._broker.fetch(request), self._config.request_timeout_ms / 1000)
        return () if result is None else result.partitions

    def drop(self) -> None:
        """Want no answer any more: what is to be fetched has changed."""
        if self._under_way is not None:
            self._under_way[0].cancel()
            self._under_way = None


def _error_at(position: Position, fetched: FetchedPartition) -> LogstoreError:
    """Why a partition cannot be fetched where the consumer is, and how to go on."""
    offset, message = position.fetch_offset, fetched.message or fetched.error.name
    if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
        has = fetched.high_watermark != NO_OFFSET
        holds = f", which holds {fetched.log_start_offset} to {fetched.high_watermark}," if has else ""
        return OffsetOutOfRangeError(
            f"{position.partition}: offset {offset} is outside of the log{holds} and auto_offset_reset is "
            "'none'; seek(), seek_to_beginning() or seek_to_end() goes on"
        )
    if fetched.error is ErrorCode.UNKNOWN_TOPIC_ID:
        return OffsetOutOfRangeError(
            f"{position.partition}: the topic was deleted and made again; offset {offset} was of the old one "
            "and auto_offset_reset is 'none'; seek(), seek_to_beginning() or seek_to_end() goes on"
        )
    error = error_of(fetched.error, f"{position.partition} at offset {offset}: {message}")
    if isinstance(error, CorruptionError):
        error.partition, error.base_offset = position.partition, offset
        if fetched.next_offset != NO_OFFSET:
            error.last_offset = fetched.next_offset - 1
            error.reason += f"; seek() to offset {fetched.next_offset} passes it"
    return error
