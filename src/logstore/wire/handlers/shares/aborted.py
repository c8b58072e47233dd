"""Records of aborted transactions among those that a member was given. Kafka's protocol has no word for them
in a ShareFetch: clients are given offsets that they may see."""

from __future__ import annotations

from collections.abc import Iterator

from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    AcknowledgePartition,
    AcquiredRecords,
    ShareFetchedPartition,
)
from logstore.format.header import decode_header
from logstore.partition.reading.records import AbortedFilter, FoundBatch


def without_aborted(
    fetched: ShareFetchedPartition,
) -> tuple[ShareFetchedPartition, AcknowledgePartition | None]:
    """What the client is given, and what is to be said for it of the rest: that there is nothing."""
    if not fetched.aborted:
        return fetched, None
    hidden = list(_hidden(fetched))
    kept: list[AcquiredRecords] = []
    gaps: list[AcknowledgeBatch] = []
    for first, last, count in fetched.acquired:
        for low, high in hidden:
            if high < first or low > last:
                continue
            if low > first:
                kept.append(AcquiredRecords(first, low - 1, count))
            gaps.append(AcknowledgeBatch(max(first, low), min(last, high), Acknowledgement.GAP))
            first = high + 1
        if first <= last:
            kept.append(AcquiredRecords(first, last, count))
    said = AcknowledgePartition(fetched.partition, tuple(gaps)) if gaps else None
    return fetched._replace(acquired=tuple(kept)), said


def _hidden(fetched: ShareFetchedPartition) -> Iterator[tuple[int, int]]:
    """The offsets of batches of which no client sees anything."""
    data = bytes(fetched.data)
    aborted = AbortedFilter(fetched.aborted)
    at = 0
    while at < len(data):
        header = decode_header(data, at)
        found = FoundBatch(data, at, header, str(fetched.partition), 0, fetched.partition.partition)
        if aborted.hides(header, found) or header.is_control:
            yield header.base_offset, header.last_offset
        at += header.size_bytes
