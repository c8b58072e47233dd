"""Removing records from the front or the end of a log, and the files of removed segments.

Files are renamed first, and removed ``file_delete_delay_ms`` later, so that readers under way can go on.

Lock: ``lock`` is held while files are removed. A thread that needs both takes the log's lock first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.errors import OffsetOutOfRangeError, StorageError, UsageError
from logstore.model import Role, TopicPartition
from logstore.partition.arguments import check_offset
from logstore.partition.state.context import LogContext
from logstore.partition.writing.core import LogCore, bytes_of
from logstore.partition.writing.durability import Durability
from logstore.partition.writing.gathering import Gathering
from logstore.partition.writing.guard import Guard
from logstore.warning import warn


class Removal:
    """The removals of one log."""

    def __init__(
        self,
        context: LogContext,
        partition: TopicPartition,
        guard: Guard,
        gathering: Gathering,
        durability: Durability,
    ) -> None:
        self._context = context
        self._partition = partition
        self._guard = guard
        self._core = guard.core
        self._waits = guard.core.waits
        self._gathering = gathering
        self._durability = durability
        self.lock = threading.Lock()
        self.waiting: list[str] = []
        """Files still to be removed."""

    # From the front

    def delete_before(self, offset: int) -> int:
        """See :meth:`.Log.delete_before`."""
        check_offset(offset, "offset")
        with self._context.lines, self._guard.own_lock(), self._guard as core:
            if not core.config.may_lose_its_front:
                raise UsageError(f"{self._partition} is compacted only: cleanup_policy must contain delete")
            self._gathering.write_before_waiting_locked()  # a full disk takes them when there is room
            if offset > core.high_watermark:
                raise OffsetOutOfRangeError(
                    f"offset {offset} is above the high watermark {core.high_watermark} of {self._partition}"
                )
            start = core.log_start_offset
            core.raise_log_start(offset)
            count = self._count_below_start_locked()
            if count or offset > start:
                gone, reason = core.segments[:count], f"delete_before({offset})"
                core.tell_deletion(start, core.log_start_offset, bytes_of(gone), reason)
            self._delete_locked(count)
            if not count and offset > start:
                self._waits.notify(core.view)
            return core.log_start_offset

    def _count_below_start_locked(self) -> int:
        bases = self._core.view.bases
        return sum(base <= self._core.log_start_offset for base in bases[1:])

    def enforce_retention(self, *, dry_run: bool = False) -> int:
        """See :meth:`.Log.enforce_retention`."""
        with self._context.lines, self._guard.own_lock(), self._guard as core:
            self._gathering.write_before_waiting_locked()  # first: new records keep the last segment
            now_ms = self._context.clock.now_ms()
            count = core.plan_retention(now_ms)
            if count and not dry_run:
                self._delete_locked(count, core.limits_behind(count, now_ms))
            return count

    def _delete_locked(self, count: int, reason: str = "") -> None:
        if not count:
            return
        self.schedule_locked(self._core.delete_segments(count, self._context.clock.now_ms(), reason))
        self._waits.notify(self._core.view)

    # From the end

    def truncate_to(self, offset: int) -> bool:
        """See :meth:`.Log.truncate_to`."""
        check_offset(offset, "offset")
        with self._whole_or_reopen():
            return self._truncate_to(offset)

    def _truncate_to(self, offset: int) -> bool:
        with self._context.lines, self._guard.own_lock(), self._guard as core:
            self._gathering.drain_locked()
            if offset >= core.log_end_offset:
                core.cut_epochs()
                return False
            counts, old_end = self._counts_for_groups(core), core.log_end_offset
            is_alone, were_open = core.role is Role.ALONE, set(core.producers.open_transactions)
            now_ms, reason = self._context.clock.now_ms(), f"truncate_to({offset})"
            if offset < core.segments[0].base_offset:
                self.schedule_locked(core.start_over(offset, None, now_ms, reason))
            else:
                self.schedule_locked(core.truncate_to(offset, now_ms, reason))
            self._durability.flush_now_locked()
            self._durability.checkpoint_if_rolled()  # a gap above the recovery point looks like loss
            self._waits.notify(core.view)
            self._waits.lose(old_end)
            are_open = set(core.producers.open_transactions)
        if counts:
            self._context.lost_ends.tell({self._partition: offset})
        if is_alone and are_open - were_open:
            warn(
                "%s: truncate_to(%d) has cut off how transactions ended whose first records stay: those of "
                "the producers %s are open again. End them as they were, by append_end_marker()",
                self._partition,
                offset,
                ", ".join(map(str, sorted(are_open - were_open))),
            )
        return True

    def truncate_fully_and_start_at(self, offset: int, *, log_start_offset: int | None = None) -> None:
        """See :meth:`.Log.truncate_fully_and_start_at`."""
        check_offset(offset, "offset")
        if log_start_offset is not None and check_offset(log_start_offset, "log_start_offset") > offset:
            raise UsageError(f"log_start_offset {log_start_offset} is above offset {offset}")
        with self._whole_or_reopen():
            self._truncate_fully_and_start_at(offset, log_start_offset)

    def _truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None) -> None:
        with self._context.lines, self._guard.own_lock(), self._guard as core:
            now_ms, reason = self._context.clock.now_ms(), f"truncate_fully_and_start_at({offset})"
            if row_count := self._gathering.rows.row_count:
                reason += f", and {row_count} records that were not written yet"
            counts, old_end = self._counts_for_groups(core), core.log_end_offset + row_count
            self._gathering.rows.clear()
            self.schedule_locked(core.start_over(offset, log_start_offset, now_ms, reason))
            self._waits.notify(core.view)
            self._waits.lose(old_end)
        if counts:
            self._context.lost_ends.tell({self._partition: offset})

    @contextmanager
    def _whole_or_reopen(self) -> Iterator[None]:
        """A cut stores where the log ends now, and sends groups back. If an error or an interrupt comes in
        between, the log does not grow before it is reopened, which does both: otherwise the next open could
        take the gap in front of new records for a loss, and groups would not read them."""
        count = self._core.truncations.count
        try:
            yield
        except BaseException as error:
            if self._core.truncations.count != count:
                self._guard.poison(error)
            raise

    def _counts_for_groups(self, core: LogCore) -> bool:
        """Whether groups of the store are to hear of it: also where a copy has other records than its leader.
        Those of a node's topics may be elsewhere, and other replicas have what it cuts off."""
        return core.role is Role.ALONE or not self._context.home.is_of_node

    # Files

    def schedule_locked(self, paths: list[str]) -> None:
        """Remove these files after the delay."""
        self.waiting += paths
        self._core.view_of_clean_stop = None  # outdated now, and it would keep the files open
        delay_ms = self._core.config.file_delete_delay_ms
        self._context.scheduler.after(
            delay_ms, f"remove files of {self._partition}", lambda: self.remove(paths)
        )

    def remove(self, paths: list[str]) -> None:
        """Remove the files that still exist. If the disk refuses, the close and the next open try again."""
        failure: StorageError | None = None
        with self.lock:
            for path in [path for path in paths if path in self.waiting]:
                try:
                    if self._context.files.is_file(path):
                        self._context.files.remove(path)
                    self.waiting.remove(path)
                except StorageError as error:
                    failure = failure or error
        with self._guard.lock:
            self._core.forget_removed(paths)
        if failure is not None:
            raise failure
