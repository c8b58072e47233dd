"""Fetched batches to jobs, and which jobs they show to be cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import AcknowledgeBatch, ShareFetchedPartition, TopicIdPartition
from logstore.clients.queues.job import Job, Worker
from logstore.clients.received import ReceivedRecords
from logstore.model import Record

_MOST_EPOCHS: Final = 8
"""Of a partition; jobs of older ones are long over."""


class Epochs:
    """In which leader epochs a worker was given jobs of each partition, and from which offset on. A log that
    lost its end goes on in a later epoch: what the worker has behind that of an earlier one was cut off, and
    what it says of it would count for another record."""

    def __init__(self) -> None:
        self._firsts: dict[TopicIdPartition, dict[int, int]] = {}
        self.have_changed = False
        """Whether there is more than one in a partition."""

    def note(self, partition: TopicIdPartition, jobs: Sequence[Job]) -> None:
        """These were taken; they are in the order of their offsets."""
        last = None
        for job in (jobs[0], jobs[-1]) if _epoch_of(jobs[0]) == _epoch_of(jobs[-1]) else jobs:
            if (epoch := _epoch_of(job)) != last:
                firsts = self._firsts.setdefault(partition, {})
                firsts[epoch] = min(job.offset, firsts.get(epoch, job.offset))
                self.have_changed |= len(firsts) > 1
                if len(firsts) > _MOST_EPOCHS:
                    del firsts[min(firsts)]
                last = epoch

    def have_cut_off(self, job: Job) -> bool:
        """Whether a later record has its offset, or one below it."""
        firsts = self._firsts.get(TopicIdPartition(job.partition, job.topic_id), {})
        own = _epoch_of(job)
        return any(epoch > own and first <= job.offset for epoch, first in firsts.items())


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
