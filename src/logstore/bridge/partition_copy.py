"""One partition of a cluster, copied as a follower copies its leader: the same offsets, the same bytes.

How far the copy is is the end of its log. It is compared with the cluster's log when copying begins, and
after each change of the leader. By the leader epochs (KIP-101, KIP-279) it is found out where both part, and
the copy is cut there. Of logs with equal epochs, the last batch tells whether they are the same.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from logstore.bridge.cluster import MAX_PARTITION_BYTES, ClusterQuestions
from logstore.bridge.trouble import check_answer
from logstore.broker.codes import ErrorCode
from logstore.broker.requests import NO_EPOCH, FetchedPartition, FetchPartition
from logstore.errors import CorruptionError, LeaderFencedError, OutOfOrderError, RetriableError, UsageError
from logstore.format.header import MAGIC, BatchHeader, decode_header
from logstore.model import Isolation, Role
from logstore.partition.log import Log
from logstore.warning import inform, warn

_LOOK_AGAIN: Final = frozenset(
    {
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""The next round finds out why."""
_START_OVER: Final = (
    "If the cluster's is right, delete the topic here and pull it again; if this one is, look at the cluster "
    "first"
)


@dataclass(slots=True)
class CopyCounts:
    """What all copies of a pull have done together."""

    batches: int = 0
    bytes: int = 0
    truncated: int = 0
    skipped: int = 0


class PartitionCopy:
    """The copy of one partition. Used by one thread."""

    def __init__(
        self, cluster: ClusterQuestions, log: Log, topic_id: uuid.UUID | None, counts: CopyCounts
    ) -> None:
        """``topic_id``: the cluster's; None if it tells none."""
        self._cluster = cluster
        self._topic_id = topic_id
        self._counts = counts
        self.log = log
        self.partition = log.partition
        self.leader_epoch = NO_EPOCH
        """The cluster's, as it was when copying began."""
        self.position = log.log_end_offset
        self.end_offset = self.position
        """The cluster's high watermark, when it was last seen."""
        self.is_end_known = False
        """Whether it was ever seen."""
        self.is_compared = False
        """Whether the log is known to be a beginning of the cluster's."""
        self._looks_back = False
        """Whether the last batch here is fetched again, to see whether the cluster's is still the same."""
        self.is_led = True
        """Whether somebody leads it at the cluster."""
        self.rests_until = 0.0
        """The others are copied without it until then; monotonic."""
        self.why_it_rests = ""
        """And until something was fetched again, it is in trouble."""
        self.goal: int | None = None
        """The cluster's high watermark as it was first seen in this run; None before. Set it to None to begin
        a run."""

    @property
    def wanted(self) -> FetchPartition:
        """What to fetch next."""
        offset = self.position - self._looks_back
        return FetchPartition(self.partition, offset, MAX_PARTITION_BYTES, self.leader_epoch, self._topic_id)

    def look_back(self) -> None:
        """Fetch the last batch again, before what comes next: a leader may have restarted without the records
        that it had not flushed, and have gone on in the same epoch."""
        self._looks_back = self.log.log_end_offset > self.log.log_start_offset

    # Comparing

    def compare(self, leader_epoch: int) -> None:
        """Make the log a beginning of the cluster's.

        Raises:
            OutOfOrderError: the logs have parted, and it is not known where.
            UsageError: records would be lost that are the store's own.
            RetriableError: the topic was made again just now.
        """
        log, self.leader_epoch = self.log, leader_epoch
        start, end = self._cluster.bounds(self.partition)
        if log.log_end_offset < start:
            self._check_may_cut(log.log_start_offset)
            self._start_over(start)
        elif log.log_end_offset:
            common = self._common_end(end)
            self._check_batch_before(common)
            if common < log.log_end_offset:
                self._cut_what_parted(start, common)
                self._check_batch_before(log.log_end_offset)
        log.set_role(Role.FOLLOWER)
        self.position, self.end_offset = log.log_end_offset, end
        self.is_compared = self.is_end_known = True
        self._looks_back = False

    def _check_may_cut(self, offset: int) -> None:
        """Before records from ``offset`` on are cut off."""
        log = self.log
        offset = max(offset, log.log_start_offset)
        if log.role is Role.ALONE and log.log_end_offset > offset:
            raise UsageError(
                f"{self.partition} of {log.directory} is the store's own, and not a copy any more: the "
                f"cluster does not have its records from offset {offset} on. Pull "
                "into another store; or set_role(Role.FOLLOWER) before you pull again, and they are cut off"
            )
        found = self._cluster.fetch_one(self.wanted)
        if found.error is ErrorCode.UNKNOWN_TOPIC_ID:  # the answers may be of a topic that was made since
            raise RetriableError(f"{self.partition}: the topic was deleted at the cluster, or made again")

    def _start_over(self, start: int) -> None:
        """The cluster has deleted what comes next here."""
        log = self.log
        if log.log_end_offset:
            missed = start - log.log_end_offset
            self._counts.skipped += missed
            warn(
                "%s: the cluster has deleted the %d offsets from %d on before they were copied; the copy "
                "begins again at %d, as the cluster's log does",
                self.partition,
                missed,
                log.log_end_offset,
                start,
            )
        log.truncate_fully_and_start_at(start)

    def _cut_what_parted(self, start: int, common: int) -> None:
        log = self.log
        self._check_may_cut(common)
        warn(
            "%s: the cluster has lost or replaced the records from %d on; %d offsets are cut off here",
            self.partition,
            common,
            log.log_end_offset - max(common, log.log_start_offset),
        )
        if common < log.log_start_offset:  # what was deleted here is not what the cluster has there now
            self._counts.truncated += log.log_end_offset - log.log_start_offset
            log.truncate_fully_and_start_at(max(common, start))
        else:
            self._cut(max(common, start))

    def _common_end(self, end: int) -> int:
        """Up to where both logs have the same leader epochs."""
        log = self.log
        entries = log.epoch_entries
        if not entries:
            return log.log_end_offset
        epoch, own_end = entries[-1].epoch, log.log_end_offset
        while True:
            found = self._cluster.epoch_end(self.partition, epoch)
            if found.epoch < 0 or found.end_offset < 0:
                if end >= own_end:
                    return own_end  # its batches say more
                raise OutOfOrderError(
                    f"{self.partition} has diverged: here it has records up to offset {own_end} of leader "
                    f"epoch {epoch}, which the cluster does not know, and whose log ends at {end}. "
                    f"{_START_OVER}"
                )
            if found.epoch == epoch:
                return min(own_end, found.end_offset)
            here, here_end = log.end_offset_for_epoch(found.epoch)
            own_end = min(own_end, found.end_offset, max(here_end, log.log_start_offset))
            if here in (found.epoch, NO_EPOCH):
                return own_end
            epoch = here

    def _cut(self, offset: int) -> None:
        """Drop what is from ``offset`` on, and the whole of a batch that reaches over it: the cluster sends
        that again."""
        log = self.log
        before = log.log_end_offset
        if offset < before:
            data = log.fetch(max(offset, log.log_start_offset), isolation=Isolation.LOG_END, max_bytes=1).data
            if data:
                offset = min(offset, _first_offset(decode_header(data)))
        if offset <= log.log_start_offset:
            log.truncate_fully_and_start_at(log.log_start_offset)
        else:
            log.truncate_to(offset)
        self._counts.truncated += before - log.log_end_offset

    def _check_batch_before(self, offset: int) -> None:
        """
        Raises:
            OutOfOrderError: the batch that ends in front of an offset is another than the cluster has there.
        """
        log = self.log
        last = offset - 1
        if last < log.log_start_offset:
            return
        ours = log.fetch(last, isolation=Isolation.LOG_END, max_bytes=1).data
        if not ours:
            return  # compaction has left a gap at the end
        own = decode_header(ours)
        if own.last_offset != last:
            return  # it is cut off as a whole
        theirs = self._cluster.batch_at(self.partition, last)
        if not theirs or own.magic != MAGIC:
            return
        if not _may_be_same(own, decode_header(theirs), compacts=log.config.compacts):
            raise OutOfOrderError(
                f"{self.partition} has diverged: the batch with offset {last} is another than the "
                f"cluster's. {_START_OVER}"
            )

    # Copying

    def take(self, answer: FetchedPartition, *, had_room: bool = True) -> None:
        """Append what was fetched.

        Args:
            had_room: whether the answer would have had room for more.

        Raises:
            OutOfOrderError: something else has appended to the log here.
            RetriableError, UnknownTopicError, UsageError: the cluster refuses.
            CorruptionError: a batch was damaged on its way, or at the cluster.
        """
        if answer.error in _LOOK_AGAIN:
            self.is_compared = False
            return
        check_answer(answer.error, f"fetching {self.partition} from offset {self.position}", answer.message)
        if answer.high_watermark < 0:
            return  # its leader has not answered yet
        self._note_end(answer.high_watermark)  # first: it counts also if the disk does not take the records
        self._check_untouched()
        if self._looks_back:
            if not (answer.data or had_room) and answer.high_watermark >= self.position:
                return  # the last batch did not get into the answer: this comes first next time
            new = self._behind_last(answer.data)
            if new is None:
                self.is_compared = False
                return
            self._looks_back, answer = False, answer._replace(data=new)
        if answer.data:
            self._append(answer)
        self._follow_bounds(answer)
        self.why_it_rests = ""

    def _check_untouched(self) -> None:
        end = self.log.log_end_offset
        if end != self.position:
            raise OutOfOrderError(
                f"{self.partition} has diverged: it was copied up to offset {self.position} and ends at "
                f"{end}, so something else has changed it. If two bridges pull it, run one of them; else "
                "do not append to a topic that is pulled. "
                f"{_START_OVER}"
            )

    def _behind_last(self, data: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview | None:
        """What comes behind the last batch here, in what was fetched from its last offset on. None if the
        cluster's may be another batch."""
        ours = self.log.fetch(self.position - 1, isolation=Isolation.LOG_END, max_bytes=1).data
        if not ours or not data:
            return None
        own, theirs = decode_header(ours), decode_header(data)
        is_same = theirs.last_offset < self.position and own.magic == MAGIC
        if not is_same or not _may_be_same(own, theirs, compacts=self.log.config.compacts):
            return None
        return data[theirs.size_bytes :]

    def _append(self, answer: FetchedPartition) -> None:
        log = self.log
        first = _first_offset(decode_header(answer.data))
        is_empty = log.log_start_offset == log.log_end_offset
        if first < self.position and not is_empty:
            inform("%s: offset %d is in a larger batch now, and copied again", self.partition, first)
            self._cut(first)
            self.position = log.log_end_offset
            return
        epoch = None if self.leader_epoch == NO_EPOCH else self.leader_epoch
        try:
            appended = log.append_replicated(answer.data, leader_epoch=epoch)
        except LeaderFencedError:
            appended = None
        except OutOfOrderError:
            self._check_untouched()  # it may have been changed just now
            raise
        except CorruptionError as error:
            raise CorruptionError(
                f"{self.partition}: what the cluster sent from offset {self.position} on is damaged: "
                f"{error.reason}. Nothing of it was appended; look at the cluster's log"
            ) from error
        if appended is None:  # there is a newer leader
            self.is_compared = False
            return
        self._counts.batches += _count_batches(answer.data, log.log_end_offset)
        self._counts.bytes += len(answer.data)
        self.position = log.log_end_offset

    def _note_end(self, offset: int) -> None:
        self.end_offset = offset
        if self.goal is None:
            self.goal = offset

    def _follow_bounds(self, answer: FetchedPartition) -> None:
        log = self.log
        log.update_high_watermark(answer.high_watermark)
        start = answer.log_start_offset
        if start > log.log_start_offset and log.config.may_lose_its_front:
            log.delete_before(min(start, log.high_watermark))

    def is_at_end(self, answer: FetchedPartition, *, all_empty: bool) -> bool:
        """Whether all was copied that was there when the run began. Compaction may leave a gap below the high
        watermark: then there is nothing in an answer that has room for it."""
        if not self.is_compared or self._looks_back or self.goal is None:
            return False
        return self.position >= self.goal or (all_empty and answer.high_watermark >= 0)


def _may_be_same(own: BatchHeader, other: BatchHeader, *, compacts: bool) -> bool:
    """Whether two batches that hold the same offset may have been one. Compaction removes and joins batches,
    and notes in the header when tombstones may go; erasing removes records."""
    if (other.base_offset, other.last_offset) != (own.base_offset, own.last_offset):
        return compacts
    if own.crc == other.crc:
        return True
    written = other.partition_leader_epoch, other.producer_id, other.producer_epoch, other.base_sequence
    is_by_same = written == (
        own.partition_leader_epoch,
        own.producer_id,
        own.producer_epoch,
        own.base_sequence,
    )
    return is_by_same and (compacts or own.record_count != other.record_count)


def _first_offset(header: BatchHeader) -> int:
    return header.base_offset if header.magic == MAGIC else header.last_offset


def _count_batches(data: bytes | bytearray | memoryview, end_offset: int) -> int:
    """The batches in ``data`` that were appended."""
    count = position = 0
    while position < len(data):
        header = decode_header(data, position)
        count += header.last_offset < end_offset
        position += header.size_bytes
    return count
