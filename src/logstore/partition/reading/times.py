"""Reading by time: where a range of times begins and ends in a log, and which records are in it.

A range of times begins at the first record at or after its start and ends before the first record at or after
its stop, as for a consumer that seeks by time. Timestamps may go back from one record to the next, so records
between these two offsets can be outside the range: those are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from logstore.arguments import milliseconds_of, shown
from logstore.errors import UsageError
from logstore.model import Record, how_to_make_int
from logstore.partition.arguments import check_offset
from logstore.partition.reading.records import find_timestamp
from logstore.partition.reading.view import LogView

OffsetOrTime = int | datetime
"""An offset, or a time: a datetime with its time zone."""

_BEFORE_ALL_MS = -(2**63)
_AFTER_ALL_MS = 2**63 - 1


class TimeSpan(NamedTuple):
    """The times from ``low_ms`` up to ``high_ms``."""

    low_ms: int
    high_ms: int

    def filter(self, lists: Iterable[list[Record]]) -> Iterator[list[Record]]:
        """The records within these times."""
        low_ms, high_ms = self
        for records in lists:
            kept = [record for record in records if low_ms <= record.timestamp_ms < high_ms]
            if kept:
                yield kept


def span_of(start: OffsetOrTime | None, stop: OffsetOrTime | None) -> TimeSpan | None:
    """The times that a read is limited to; None if it is limited by offsets alone.

    Raises:
        InvalidTimestampError: a datetime without a time zone.
    """
    if not isinstance(start, datetime) and not isinstance(stop, datetime):
        return None
    return TimeSpan(
        first_ms_from(start, "start") if isinstance(start, datetime) else _BEFORE_ALL_MS,
        first_ms_from(stop, "stop") if isinstance(stop, datetime) else _AFTER_ALL_MS,
    )


def offset_from(view: LogView, when: OffsetOrTime | str, name: str) -> int:
    """The offset for ``when``: a valid offset is returned as it is; for a time, the offset of the first
    record at or after it. The log end, if there is no such record.

    Raises:
        UsageError: ``when`` is neither.
        InvalidTimestampError: a datetime without a time zone.
        OffsetOutOfRangeError: the offset is negative, or beyond 64 bits.
    """
    if type(when) is int:
        return check_offset(when, name)
    if not isinstance(when, datetime):
        raise UsageError(
            f"{name} is {shown(when)}; it must be a whole number, or a datetime{how_to_make_int(when)}"
        )
    found = find_timestamp(view, first_ms_from(when, name))
    return view.log_end_offset if found is None else found.offset


def first_ms_from(when: datetime, name: str) -> int:
    """The first whole millisecond at or after a time."""
    return milliseconds_of(when, name) + (when.microsecond % 1000 > 0)
