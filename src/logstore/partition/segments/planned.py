"""Batches about to be written at the end of a segment, complete as they are.

This module knows their bytes and headers, but not how they were made, nor whether a log may take them.
"""

from __future__ import annotations

from collections.abc import Sequence

from logstore.format.header import LENGTH_OVERHEAD_BYTES, BatchHeader
from logstore.model import Bytes


class PlannedAppend:
    """Batches ready to be written, at least one: offsets are assigned, CRCs are right."""

    __slots__ = (
        "base_offset",
        "buffers",
        "has_producers",
        "headers",
        "last_offset",
        "marker",
        "newest_ms",
        "size_bytes",
    )

    def __init__(
        self,
        buffers: Sequence[Bytes],
        headers: Sequence[BatchHeader],
        marker: tuple[bool, int] | None = None,
    ) -> None:
        """``marker``: whether the only batch is an end marker that aborts, and its coordinator's epoch, if
        that is known without decoding it."""
        self.buffers = buffers
        self.headers = headers
        self.marker = marker
        first, last = headers[0], headers[-1]
        self.base_offset = first.base_offset
        self.last_offset = last.base_offset + last.last_offset_delta
        size_bytes = 0
        newest_ms = first.max_timestamp_ms
        has_producers = False
        # One unpacking costs as much as two fields by name.
        for _, length, _, _, _, _, _, _, max_timestamp_ms, producer_id, _, _, _ in headers:
            size_bytes += length + LENGTH_OVERHEAD_BYTES
            if max_timestamp_ms > newest_ms:
                newest_ms = max_timestamp_ms
            if producer_id >= 0:
                has_producers = True
        self.size_bytes = size_bytes
        self.newest_ms = newest_ms
        """The largest timestamp."""
        self.has_producers = has_producers
        """Whether any of them comes from an idempotent producer."""

    def up_to_epoch(self, epoch: int) -> PlannedAppend | None:
        """The batches in front of the first one with a newer leader epoch than ``epoch``; None if there are
        none."""
        for number, header in enumerate(self.headers):
            if header.partition_leader_epoch > epoch:
                return PlannedAppend(self.buffers[:number], self.headers[:number]) if number else None
        return self

    def has_gap_from(self, offset: int) -> bool:
        """Whether the batches leave out an offset, starting from ``offset``."""
        for header in self.headers:
            if header.base_offset != offset:
                return True
            offset = header.next_offset
        return False
