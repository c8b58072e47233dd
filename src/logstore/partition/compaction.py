"""Compacting one log: what is dirty, and the rounds that clean it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from logstore.format.header import HEADER_BYTES, decode_header
from logstore.model import NO_TIMESTAMP_MS
from logstore.partition.dirtiness import CleanableFacts, Dirtiness, plan_cleaning
from logstore.partition.segment import Segment
from logstore.partition.view import LogView

if TYPE_CHECKING:
    from logstore.partition.writable import WritableLog


def find_dirtiness(log: WritableLog, view: LogView) -> Dirtiness:
    """What may be cleaned of the log as the view has it. Cost: of each dirty sealed segment at most the
    largest timestamp and one batch header are read, where a lag is set."""
    context = log._context
    return plan_cleaning(
        [
            CleanableFacts(
                segment.base_offset,
                view.next_base(number),
                view.size_of(number),
                _newest_of(segment),
                _oldest_of(segment),
            )
            for number, segment in enumerate(view.segments)
        ],
        config=log._core.config,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        last_stable_offset=view.last_stable_offset,
        stored_offset=context.home.cleaner_offset(log.partition),
        now_ms=context.clock.now_ms(),
    )


def _newest_of(segment: Segment) -> Callable[[], int]:
    def newest_ms() -> int:
        largest_ms = segment.largest_timestamp.timestamp_ms
        return largest_ms if largest_ms >= 0 else segment.modified_ms

    return newest_ms


def _oldest_of(segment: Segment) -> Callable[[], int]:
    def oldest_ms() -> int:
        header = segment.read_at(0, HEADER_BYTES)
        return decode_header(header).max_timestamp_ms if header else NO_TIMESTAMP_MS

    return oldest_ms
