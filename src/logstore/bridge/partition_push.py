"""One partition of a store that is pushed: what comes next, and where it is."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final, NamedTuple

from logstore.clients.producer import Producer
from logstore.errors import InvalidRecordError, OffsetOutOfRangeError, OutOfOrderError
from logstore.format.metadata import encode_base64_uuid
from logstore.model import Isolation, OffsetAndMetadata, Record, TopicPartition
from logstore.partition.log import Log
from logstore.warning import warn

_MOST_RECORDS: Final = 50_000
"""Of a partition in a transaction."""


class Taken(NamedTuple):
    """Records of one partition, for one transaction."""

    log: Log
    records: Sequence[Record]
    end_offset: int
    """Behind them, and behind markers and aborted records."""
    byte_count: int
    skipped_count: int
    metadata: str

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def committed(self) -> OffsetAndMetadata:
        """What the group commits."""
        return OffsetAndMetadata(self.end_offset, self.metadata)

    def send(self, producer: Producer) -> None:
        """
        Raises:
            InvalidRecordError: the cluster's topic does not take a record; says which.
        """
        topic, number = self.partition
        send = producer.send
        for record in self.records:
            try:
                send(
                    topic,
                    record.value,
                    key=record.key,
                    partition=number,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                )
            except InvalidRecordError as error:
                raise type(error)(
                    f"{self.partition} offset {record.offset} cannot be pushed: {error}"
                ) from error


class PartitionPush:
    """The state of one partition. Used by one thread."""

    def __init__(
        self, log: Log, topic_id: uuid.UUID, committed: OffsetAndMetadata | None, group: str
    ) -> None:
        """
        Raises:
            OutOfOrderError: what was committed is of another log.
        """
        self.log = log
        self.partition = log.partition
        self._metadata = encode_base64_uuid(topic_id)
        self.position = log.log_start_offset if committed is None else committed.offset
        """The next offset to push."""
        self.end_offset = self.position
        if committed is None:
            return
        if committed.metadata != self._metadata:
            raise OutOfOrderError(
                f"{self.partition} has diverged: the offset {committed.offset} of group {group!r} is of the "
                f"topic with id {committed.metadata or 'unknown'}, and the one here has {self._metadata}. "
                "Push under another name; or delete the group at the cluster, and all is pushed again"
            )
        if committed.offset > log.log_end_offset:
            raise OutOfOrderError(
                f"{self.partition} has diverged: it was pushed up to offset {committed.offset}, and ends "
                f"here at {log.log_end_offset}: records were lost or cut off. Restore them; or push under "
                "another name, and all is pushed again"
            )

    def look(self) -> int:
        """How many offsets are left."""
        self.end_offset = self.log.last_stable_offset
        return self.end_offset - self.position

    def take(self, most_bytes: int) -> Taken | None:
        """What comes next: at least one record, if there is one. None if nothing has come."""
        start = self.log.log_start_offset
        skipped = max(start - self.position, 0)
        if skipped:
            warn(
                "%s: the %d offsets from %d on were deleted here before they were pushed",
                self.partition,
                skipped,
                self.position,
            )
            self.position = start
        end = self.log.last_stable_offset
        if end <= self.position:
            return None
        try:
            return self._taken(end, most_bytes, skipped)
        except OffsetOutOfRangeError:
            return None  # deleted just now; the next call says so

    def _taken(self, end: int, most_bytes: int, skipped: int) -> Taken:
        records: list[Record] = []
        byte_count = 0
        for record in self.log.read(self.position, end, isolation=Isolation.COMMITTED):
            if byte_count >= most_bytes or len(records) >= _MOST_RECORDS:
                end = record.offset
                break
            records.append(record)
            byte_count += len(record.key or b"") + len(record.value or b"")
        return Taken(self.log, records, end, byte_count, skipped, self._metadata)
