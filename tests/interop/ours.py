"""Our side of the comparison: a Log as an ordinary client sees it, and a Log that is written on the record.

A `Recorder` appends to a Log and notes, from what it hands in and from the offsets it gets back, what every
reader must find later; it never reads the log. What is written is in `scripts`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from logstore.clock import Clock
from logstore.config import TopicConfig
from logstore.format.batch import decode_batch, decode_header, encode_batch, rebase_batch
from logstore.format.compression import Codec
from logstore.model import AbortedTransaction, ProducerIdentity, Record, TimestampType
from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.interop.clients import NewRecord, SeenRecord
from tests.interop.fixtures import DATA
from tests.interop.kafka import CLEAN_SHUTDOWN_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, write_checkpoint
from tests.partition.helpers_rules import write_placed

TIME_MS = 1_700_000_000_000
FETCH_BYTES = 700
"""Less than most logs of the tests hold, so that a fetch is cut and continued."""


# --- a log as a client sees it --------------------------------------------------------------------


def seen_in(log: Log) -> list[SeenRecord]:
    """All records of a log as a client would hand them out, decoded from raw fetches."""
    seen: list[SeenRecord] = []
    offset = log.log_start_offset
    while data := (fetched := log.fetch(offset, max_bytes=FETCH_BYTES)).data:
        seen += [record for record in _decode_batches(data) if record.offset >= log.log_start_offset]
        offset = fetched.next_offset
    return seen


def _decode_batches(data: bytes) -> list[SeenRecord]:
    seen: list[SeenRecord] = []
    position = 0
    while position < len(data):
        header = decode_header(data, position)
        timestamp_type = type_name(header.timestamp_type) if header.magic else "NoTimestampType"
        if not header.is_control:
            records = decode_batch(data, position, header)
            seen += [as_seen(each, timestamp_type, header.partition_leader_epoch) for each in records]
        position += header.size_bytes
    return seen


def as_seen(record: Record, timestamp_type: str, leader_epoch: int) -> SeenRecord:
    return SeenRecord(
        record.offset,
        record.timestamp_ms,
        timestamp_type,
        record.key,
        record.value,
        record.headers,
        leader_epoch,
    )


def as_record(seen: SeenRecord) -> Record:
    """What `Log.read` gives for a record that a client saw."""
    return Record(seen.offset, seen.timestamp_ms, seen.key, seen.value, seen.headers)


def as_records(seen: Sequence[SeenRecord]) -> list[Record]:
    return [as_record(each) for each in seen]


def first_at_or_after(records: Sequence[SeenRecord], timestamp_ms: int) -> int | None:
    """The lookup by time, as a linear scan."""
    return next((each.offset for each in records if each.timestamp_ms >= timestamp_ms), None)


def type_name(timestamp_type: TimestampType) -> str:
    return "LogAppendTime" if timestamp_type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def add_checkpoints(directory: Path, log_start_offset: int, log_end_offset: int | None) -> None:
    """Put into a partition's directory what its log directory keeps for it: the log start, and, if it was
    left cleanly, the recovery point at its end and the marker of a clean stop."""
    topic, _, partition = directory.name.rpartition("-")
    at = topic, int(partition)
    if log_start_offset:
        write_checkpoint(directory / LOG_START_FILE, {at: log_start_offset})
    if log_end_offset is not None:
        write_checkpoint(directory / RECOVERY_POINT_FILE, {at: log_end_offset})
        shutil.copy(DATA / "log-dir" / CLEAN_SHUTDOWN_FILE, directory)


# --- what was written -----------------------------------------------------------------------------


@dataclass
class Producer:
    """An idempotent producer's side: its identity and its next sequence."""

    producer_id: int
    is_transactional: bool = False
    epoch: int = 0
    sequence: int = 0

    def stamp(self, count: int) -> ProducerIdentity:
        stamp = ProducerIdentity(self.producer_id, self.epoch, self.sequence, self.is_transactional)
        self.sequence = (self.sequence + count) % 2**31
        return stamp

    def begin_epoch(self) -> None:
        self.epoch, self.sequence = self.epoch + 1, 0


@dataclass(frozen=True, kw_only=True)
class Written:
    """What every reader must find in the partitions of one topic."""

    topic: str
    config: TopicConfig
    records: tuple[SeenRecord, ...]
    committed: tuple[SeenRecord, ...]
    sequences: Mapping[int, int]
    """Offset -> sequence, of the records that have one."""
    last_sequences: Mapping[int, int]
    """Producer id -> sequence of its last record in its latest epoch."""
    aborted: tuple[AbortedTransaction, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    epochs: tuple[tuple[int, int], ...]
    directories: tuple[Path, ...]
    """One for each way in which it was left."""


@dataclass
class Recorder:
    """Appends to a log and keeps count of what must be in it."""

    path: Path
    config: TopicConfig
    clock: ManualClock = field(default_factory=lambda: ManualClock(TIME_MS + 60_000))
    records: list[SeenRecord] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    last_sequences: dict[int, int] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    _open: dict[int, int] = field(default_factory=dict)  # first offsets of transactions, by producer id
    _hidden: set[int] = field(default_factory=set)
    _transaction_of: dict[int, int] = field(default_factory=dict)  # producer ids, by offset

    def __post_init__(self) -> None:
        self.log = open_ours(self.path, self.config, clock=self.clock)

    def reopen(self) -> None:
        """Close and open again: what came before is below the recovery point."""
        self.log.close()
        self.log = open_ours(self.path, self.config, clock=self.clock)
        assert self.log.recovery.was_clean

    def batch(self, records: Sequence[NewRecord], producer: Producer | None = None) -> None:
        """Append the records as one batch."""
        stamp = producer.stamp(len(records)) if producer is not None else None
        rows = [(each.key, each.value, each.timestamp_ms, each.headers) for each in records]
        offsets = self.log.extend(rows, producer=stamp)
        self._note(records, offsets, stamp)

    def repeat(self, records: Sequence[NewRecord], stamp: ProducerIdentity) -> range:
        """Append a batch again, as a producer does that got no answer; nothing may be added."""
        rows = [(each.key, each.value, each.timestamp_ms, each.headers) for each in records]
        return self.log.extend(rows, producer=stamp)

    def client_batch(
        self, records: Sequence[NewRecord], codec: Codec, producer: Producer | None = None
    ) -> None:
        """Append a batch that a client encoded."""
        stamp = producer.stamp(len(records)) if producer is not None else None
        result = self.log.append_batch(encode(records, codec, stamp))
        assert result is not None
        self._note(records, range(result.base_offset, result.last_offset + 1), stamp)

    def adopt_file(self, batches: Sequence[Sequence[NewRecord]], codec: Codec, producer: Producer) -> None:
        """Write batches to a file, which becomes a segment."""
        stamp = producer.stamp(sum(map(len, batches)))
        encoded = [encode(records, codec) for records in batches]
        file = self.path.parent / "adopted"
        write_placed(
            file,
            *encoded,
            producer=stamp.producer_id,
            sequence=stamp.base_sequence,
            base_offset=self.log.log_end_offset,
            leader_epoch=self.log.leader_epoch,
        )
        offsets = self.log.adopt_file(str(file))
        self._note([record for records in batches for record in records], offsets, stamp)

    def replicate(self, records: Sequence[NewRecord], base_offset: int, leader_epoch: int) -> None:
        """Append a batch copied from a leader, at an offset of its choice."""
        batch = encode(records, Codec.NONE)
        rebase_batch(batch, 0, base_offset, leader_epoch)
        self.log.append_replicated(batch)
        self._note_epoch(leader_epoch, base_offset)
        self._note(records, range(base_offset, base_offset + len(records)))

    def end(self, producer: Producer, *, committed: bool) -> None:
        """End the producer's transaction."""
        first_offset = self._open.pop(producer.producer_id)
        result = self.log.append_end_marker(producer.producer_id, producer.epoch, committed=committed)
        if committed:
            return
        marker = result.base_offset
        self._hidden |= {
            offset for offset, of in self._transaction_of.items() if of == producer.producer_id
        } & set(range(first_offset, marker))
        stable = min(self._open.values(), default=marker + 1)
        self.aborted.append(AbortedTransaction(producer.producer_id, first_offset, marker, stable))

    def begin_leader_epoch(self, epoch: int) -> None:
        self.log.assign_leader_epoch(epoch)
        self._note_epoch(epoch, self.log.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        """Only for batches without transactions that begin at or above `offset`, or end below it."""
        self.log.truncate_to(offset)
        self.records = [each for each in self.records if each.offset < offset]

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            self.epochs.append((epoch, offset))

    def _note(
        self, records: Sequence[NewRecord], offsets: range, stamp: ProducerIdentity | None = None
    ) -> None:
        epoch = max(self.log.leader_epoch, self.epochs[-1][0] if self.epochs else 0)
        self._note_epoch(epoch, offsets[0])
        appends_time = self.config.message_timestamp_type == "LogAppendTime"
        for number, (offset, record) in enumerate(zip(offsets, records, strict=True)):
            timestamp_ms = self.clock.now_ms() if appends_time else record.timestamp_ms
            assert timestamp_ms is not None
            kind = "LogAppendTime" if appends_time else "CreateTime"
            seen = SeenRecord(offset, timestamp_ms, kind, record.key, record.value, record.headers, epoch)
            self.records.append(seen)
            if stamp is not None:
                self.sequences[offset] = (stamp.base_sequence + number) % 2**31
        if stamp is not None:
            self.last_sequences[stamp.producer_id] = self.sequences[offsets[-1]]
            if stamp.transactional:
                self._open.setdefault(stamp.producer_id, offsets[0])
                self._transaction_of.update(dict.fromkeys(offsets, stamp.producer_id))

    def finish(self, directories: Sequence[Path]) -> Written:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        stable = min(self._open.values(), default=end)
        visible = tuple(each for each in self.records if each.offset >= start)
        return Written(
            topic=self.path.name.rpartition("-")[0],
            config=self.config,
            records=visible,
            committed=tuple(r for r in visible if r.offset < stable and r.offset not in self._hidden),
            sequences=self.sequences,
            last_sequences=self.last_sequences,
            aborted=tuple(self.aborted),
            log_start_offset=start,
            log_end_offset=end,
            last_stable_offset=stable,
            epochs=tuple(self.epochs),
            directories=tuple(directories),
        )


def open_ours(path: Path, config: TopicConfig | None = None, *, clock: Clock | None = None) -> Log:
    """Open with a clock that stands still: nothing happens in the background."""
    return Log.open(str(path), config=config, clock=clock or ManualClock(TIME_MS + 60_000))


def numbered(label: str, numbers: range) -> list[NewRecord]:
    """Records that name themselves, one millisecond apart, under ten keys."""
    return [
        NewRecord(f"key-{n % 10}".encode(), f"{label}-{n}".encode(), timestamp_ms=TIME_MS + n)
        for n in numbers
    ]


def encode(records: Sequence[NewRecord], codec: Codec, stamp: ProducerIdentity | None = None) -> bytearray:
    """A batch as a client encodes it."""
    stamp = stamp or ProducerIdentity(-1, -1, -1)
    return encode_batch(
        [each.key for each in records],
        [each.value for each in records],
        [each.timestamp_ms or 0 for each in records],
        [each.headers for each in records],
        codec=codec,
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.base_sequence,
        transactional=stamp.transactional,
    )
