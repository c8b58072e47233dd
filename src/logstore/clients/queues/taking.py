"""Fetched batches to jobs, and which jobs they show to be cut off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    ShareFetchedPartition,
    ShareFetchResult,
    TopicIdPartition,
)
from logstore.clients.queues.job import Job, Worker
from logstore.clients.received import ReceivedRecords
from logstore.format.header import LENGTH_OVERHEAD_BYTES, MAGIC, PREFIX, PREFIX_BYTES
from logstore.model import Bytes, Record

_MOST_EPOCHS: Final = 8
"""Of a partition; jobs of older ones are long over."""


class Epochs:
    """In which leader epochs the batches are that a worker was sent of each partition, and from which offset
    on. A log that lost its end goes on in a later epoch: what the worker has behind that of an earlier one
    was cut off, and what it says of it would count for another record.

    Batches are noted when they come, in whichever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._firsts: dict[TopicIdPartition, dict[int, int]] = {}
        self.have_changed = False
        """Whether there is more than one in a partition."""

    def note(self, result: ShareFetchResult) -> None:
        """This has come."""
        for fetched in result.partitions:
            for epoch, first in _epochs_in(fetched.data):
                self._note(fetched.partition, epoch, first)

    def _note(self, partition: TopicIdPartition, epoch: int, first: int) -> None:
        with self._lock:
            firsts = self._firsts.setdefault(partition, {})
            firsts[epoch] = min(first, firsts.get(epoch, first))
            self.have_changed |= len(firsts) > 1
            if len(firsts) > _MOST_EPOCHS:
                del firsts[min(firsts)]

    def have_cut_off(self, job: Job) -> bool:
        """Whether a later record has its offset, or one below it."""
        with self._lock:
            firsts = self._firsts.get(TopicIdPartition(job.partition, job.topic_id), {}).copy()
        own = _epoch_of(job)
        return any(epoch > own and first <= job.offset for epoch, first in firsts.items())


def _epochs_in(data: Bytes) -> Iterator[tuple[int, int]]:
    """The epochs of batches, each with the offset of its first one. Damage is found when they are read."""
    last, at = None, 0
    while at + PREFIX_BYTES <= len(data):
        base_offset, length, epoch, magic = PREFIX.unpack_from(data, at)
        if magic == MAGIC and epoch != last:
            yield epoch, base_offset
            last = epoch
        at += LENGTH_OVERHEAD_BYTES + max(length, 0)


def _epoch_of(job: Job) -> int:
    epoch = job.record.leader_epoch
    return -1 if epoch is None else epoch


def jobs_of(
    worker: Worker, fetched: ShareFetchedPartition, deadline_ms: int
) -> tuple[list[Job], list[AcknowledgeBatch]]:
    """The jobs that the worker was given of a partition; and the offsets among them at which
    there is no record: compaction took it, or its transaction was aborted.

    Raises:
        CorruptionError: a batch is damaged; names the partition and the batch's offsets.
    """
    records, topic_id = _records(fetched), fetched.partition.topic_id
    jobs: list[Job] = []
    gaps: list[AcknowledgeBatch] = []
    at, count = 0, len(records)
    for first, last, delivery_count in fetched.acquired:
        while at < count and records[at].offset < first:
            at += 1
        end = at + last - first + 1
        if end <= count and records[at].offset == first and records[end - 1].offset == last:
            jobs += [Job(worker, record, topic_id, delivery_count, deadline_ms) for record in records[at:end]]
            at = end
            continue
        expected = first
        while at < count and (offset := records[at].offset) <= last:
            if offset > expected:
                gaps.append(AcknowledgeBatch(expected, offset - 1, Acknowledgement.GAP))
            jobs.append(Job(worker, records[at], topic_id, delivery_count, deadline_ms))
            expected = offset + 1
            at += 1
        if expected <= last:
            gaps.append(AcknowledgeBatch(expected, last, Acknowledgement.GAP))
    return jobs, gaps


def _records(fetched: ShareFetchedPartition) -> list[Record]:
    if not fetched.data:
        return []
    # Of aborted transactions the markers count, too, which may be in front of what was acquired.
    start = 0 if fetched.aborted else fetched.acquired[0].first
    batches = FetchedPartition(
        fetched.partition.partition, ErrorCode.NONE, fetched.data, aborted=fetched.aborted
    )
    received = ReceivedRecords(batches, start)
    records: list[Record] = []
    while not received.is_over:
        records += received.next()
    return records
