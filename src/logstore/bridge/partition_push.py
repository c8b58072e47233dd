"""One partition of a store that is pushed: what comes next, and where it is."""

from __future__ import annotations

import math
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from logstore.clients.producer import Producer
from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    LogstoreError,
    OffsetOutOfRangeError,
    OutOfOrderError,
    RecordTooLargeError,
)
from logstore.format.gathered import record_bytes
from logstore.format.metadata import encode_base64_uuid
from logstore.model import Isolation, OffsetAndMetadata, Record, TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.readable import offsets_to_read
from logstore.warning import warn

_MOST_RECORDS: Final = 50_000
"""Of a partition in a transaction."""
_NONE: Final = "-"
"""Stands for the last record if there is none."""


class Taken(NamedTuple):
    """Records of one partition, for one transaction."""

    log: Log
    records: Sequence[Record]
    end_offset: int
    """Behind them, and behind markers and aborted records."""
    byte_count: int
    """Of keys and values."""
    carried_bytes: int
    """Headers included."""
    skipped_count: int
    topic_id: uuid.UUID
    last: str
    """The last record that was pushed, these included, as :func:`_seal` has it."""
    target_id: uuid.UUID | None
    """Of the topic at the cluster; None if it tells none."""

    @property
    def partition(self) -> TopicPartition:
        return self.log.partition

    @property
    def committed(self) -> OffsetAndMetadata:
        """What the group commits. The position is in the metadata, too: a store that was killed takes the
        offset for one of its own topic's, and sets it back to the end of that. So is the last record: a
        backup that was restored here may have gone on with others. And the topic of the cluster: it may be
        deleted there, and made again, when this is on its way."""
        fields = [encode_base64_uuid(self.topic_id), str(self.end_offset), self.last or _NONE]
        if self.target_id is not None:
            fields.append(encode_base64_uuid(self.target_id))
        return OffsetAndMetadata(self.end_offset, " ".join(fields))

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
                raise self._refused(error, f"offset {record.offset}", record.offset) from error

    def explain(self, error: InvalidRecordError) -> InvalidRecordError:
        """What the broker says of a batch, with where its records are here."""
        first, last = self.records[0].offset, self.records[-1].offset
        if first == last:
            return self._refused(error, f"offset {first}", first)
        return self._refused(error, f"a record of offsets {first} to {last}", None)

    def _refused(self, error: InvalidRecordError, where: str, offset: int | None) -> InvalidRecordError:
        topic, number = self.partition
        hint = ". The settings are those of the topic in the cluster: change them there"
        if isinstance(error, RecordTooLargeError):
            hint += ". A record that is compressed here may need compression='zstd' of the bridge"
        gone = "..." if offset is None else offset
        hint += (
            f". To leave the record out, erase it here: store[{topic!r}][{number}].erase(offsets={gone}). "
            "Other topics go on when the bridge runs for them alone"
        )
        refused = type(error)(f"{self.partition} {where} cannot be pushed: {error}{hint}")
        refused.partition, refused.offset = (topic, number), offset
        return refused


class PartitionPush:
    """The state of one partition. Used by one thread."""

    def __init__(
        self,
        log: Log,
        topic_id: uuid.UUID,
        committed: OffsetAndMetadata | None,
        group: str,
        target_id: uuid.UUID | None,
    ) -> None:
        """
        Args:
            target_id: of the topic at the cluster.

        Raises:
            OutOfOrderError: what was committed is of another log.
        """
        self.log = log
        self.partition = log.partition
        self.topic_id = topic_id
        self.target_id = target_id
        self.position = log.log_start_offset
        """The next offset to push."""
        self.last = ""
        """The last record that was pushed."""
        self.renew_at = math.inf
        """When the offset has to be committed again, in seconds of a clock that never stops: a cluster
        forgets it otherwise."""
        if committed is not None:
            self.position = self._pushed_up_to(committed, group)
            self.renew_at = -math.inf
        self._end_offset = self.position

    @property
    def end_offset(self) -> int:
        """Where the log ends now; if it is closed, where it was last seen to end. From any thread."""
        with suppress(LogstoreError):
            self._end_offset = self.log.last_stable_offset
        return self._end_offset

    def _pushed_up_to(self, committed: OffsetAndMetadata, group: str) -> int:
        own = encode_base64_uuid(self.topic_id)
        found, digits, self.last, target = (*committed.metadata.split(" "), "", "", "")[:4]
        position = int(digits) if digits.isdecimal() else committed.offset
        if not found:
            raise OutOfOrderError(
                f"{self.partition}: the offset {position} of group {group!r} was not committed by a bridge, "
                "and does not tell what was pushed. Delete the group at the cluster, and the next run "
                "tells what to commit; or push under another name, and all is pushed again"
            )
        if found != own:
            raise OutOfOrderError(
                f"{self.partition} has diverged: the offset {position} of group {group!r} is of the "
                f"topic with id {found}, and the one here has {own}. "
                "Push under another name; or delete the group at the cluster, and all is pushed again"
            )
        if is_of_other_topic(committed, self.target_id):
            raise OutOfOrderError(
                f"{self.partition} was pushed up to offset {position} into the topic with id {target} of the "
                "cluster, which was deleted there and made again: what was pushed before that is gone, and "
                "the new one may have the last records. Push under another name, and all is pushed again"
            )
        if position > self.log.log_end_offset:
            raise OutOfOrderError(
                f"{self.partition} has diverged: it was pushed up to offset {position}, and ends "
                f"here at {self.log.log_end_offset}: records were lost or cut off. Restore them; or push "
                "under another name, and all is pushed again"
            )
        self._check_same(position)
        return position

    def _check_same(self, position: int) -> None:
        """
        Raises:
            OutOfOrderError: the log has other records below ``position`` than were pushed.
        """
        if self.log.log_end_offset < position or not self._has_last(position):
            raise OutOfOrderError(
                f"{self.partition} has diverged: it was pushed up to offset {position}, and has other "
                "records here below that, as after a backup was restored. Push under another name, and all "
                "is pushed again"
            )

    def _has_last(self, position: int) -> bool:
        """Whether the last record that was pushed is still here, and none that counts behind it, as there
        were only markers and aborted ones. Also if that cannot be told, as it was deleted, compacted away or
        damaged."""
        digits = self.last.partition(":")[0]
        if not digits.isdecimal():
            return True
        log, offset = self.log, int(digits)
        try:
            found = log.record_at(offset, isolation=Isolation.LOG_END)
            if found is not None and _seal(found) != self.last:
                return False
            first = max(offset + 1, log.log_start_offset)
            return first >= position or not any(log.read(first, position, isolation=Isolation.COMMITTED))
        except (OffsetOutOfRangeError, CorruptionError):
            return True

    def renew(self) -> Taken:
        """The position once more, without records."""
        return Taken(self.log, (), self.position, 0, 0, 0, self.topic_id, self.last, self.target_id)

    def note_pushed(self, taken: Taken) -> None:
        """It was committed at the cluster."""
        if taken.skipped_count:
            warn(
                "%s: the %d offsets from %d on were deleted here before they were pushed",
                self.partition,
                taken.skipped_count,
                self.position,
            )
        self.position, self.last = taken.end_offset, taken.last

    def look(self) -> int:
        """How many offsets are left."""
        self._end_offset = self.log.last_stable_offset
        return self._end_offset - self.position

    def take(self, most_bytes: int) -> Taken | None:
        """What comes next: at least one record, if there is one. None if nothing has come, nor gone.

        Raises:
            OutOfOrderError: what was pushed is here no longer: the log was cut, as a copy is that is pulled.
        """
        end = offsets_to_read(self.log, Isolation.COMMITTED).stop
        start = max(self.log.log_start_offset, self.position)
        if start == self.position and (end > start or self.log.log_end_offset < start):
            self._check_same(start)
        if end > start:
            try:
                return self._taken(start, end, most_bytes)
            except OffsetOutOfRangeError:
                return None  # deleted just now; the next call says so
        skipped = start - self.position
        if not skipped:
            return None
        # What is skipped is committed, so that it is told once.
        return self.renew()._replace(end_offset=start, skipped_count=skipped, last="")

    def _taken(self, start: int, end: int, most_bytes: int) -> Taken:
        skipped = start - self.position
        records: list[Record] = []
        byte_count = carried_bytes = 0
        for record in self.log.read(start, end, isolation=Isolation.COMMITTED):
            if carried_bytes >= most_bytes or len(records) >= _MOST_RECORDS:
                end = record.offset
                break
            records.append(record)
            byte_count += len(record.key or b"") + len(record.value or b"")
            carried_bytes += record_bytes(record.key, record.value, record.headers)
        last = _seal(records[-1]) if records else "" if skipped else self.last
        return Taken(
            self.log, records, end, byte_count, carried_bytes, skipped, self.topic_id, last, self.target_id
        )


def is_of_other_topic(committed: OffsetAndMetadata, target_id: uuid.UUID | None) -> bool:
    """Whether an offset was committed when the topic had another id at the cluster; False if either is not
    known."""
    fields = committed.metadata.split(" ")
    return len(fields) > 3 and target_id is not None and fields[3] != encode_base64_uuid(target_id)


def _seal(record: Record) -> str:
    """Tells a record from another one that has its offset later."""
    crc = zlib.crc32(record.value or b"", zlib.crc32(record.key or b""))
    return f"{record.offset}:{record.timestamp_ms}:{crc:08x}"
