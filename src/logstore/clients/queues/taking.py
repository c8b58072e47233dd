"""Fetched batches to jobs."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import AcknowledgeBatch, ShareFetchedPartition
from logstore.clients.queues.job import Job, Worker
from logstore.clients.received import ReceivedRecords
from logstore.model import Record


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
