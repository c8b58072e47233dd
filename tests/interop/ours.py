"""Partitions that logstore writes for Kafka to judge, and a Log as an ordinary client sees it.

Each topic is a script of appends. A `Recorder` runs it on a Log and notes, from what it handed in and from
the offsets it got back, what every reader must find later; it never reads the log. `write_topics` lays each
topic down three times, as partitions `CLOSED`, `RECOVERED` and `CRASHED`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Mapping, Sequence
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

TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

CLOSED, RECOVERED, CRASHED = 0, 1, 2
"""How a directory was left: closed; copied from an open log, torn, and recovered by us; or not recovered."""

SMALL_SEGMENTS = {"segment_bytes": 1024, "index_interval_bytes": 256}
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
        timestamp_type = _type_name(header.timestamp_type) if header.magic else "NoTimestampType"
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


def _type_name(timestamp_type: TimestampType) -> str:
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
    """By CLOSED, RECOVERED, CRASHED."""


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
        epoch = self.epochs[-1][0] if self.epochs else 0
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


# --- the scripts ----------------------------------------------------------------------------------


def numbered(label: str, numbers: range) -> list[NewRecord]:
    """Records that name themselves, one millisecond apart, under ten keys."""
    return [
        NewRecord(f"key-{n % 10}".encode(), f"{label}-{n}".encode(), timestamp_ms=TIME_MS + n)
        for n in numbers
    ]


def shapes() -> list[NewRecord]:
    """Every kind of absence and emptiness, and timestamps that go back within the batch."""
    headers = (
        ("h", b"1"),
        ("h", b"2"),
        ("null", None),
        ("empty", b""),
        ("", b"x"),
        ("caf\u00e9", b"\x00\xff"),
    )
    return [
        NewRecord(b"key", b"value", timestamp_ms=TIME_MS),
        NewRecord(None, b"null key", timestamp_ms=TIME_MS + 5),
        NewRecord(b"null value", None, timestamp_ms=TIME_MS - 5),
        NewRecord(None, None, timestamp_ms=0),
        NewRecord(b"", b"", timestamp_ms=TIME_MS + 1_000),
        NewRecord(b"headers", b"value", headers, timestamp_ms=TIME_MS + 3),
        NewRecord(b"a null header", b"value", (("null", None),), timestamp_ms=-1),
    ]


def write_codec(to: Recorder) -> None:
    """Shapes, text that compresses, bytes that do not, a value longer than the blocks of snappy and lz4."""
    noise = random.Random(7)
    to.batch(shapes())
    to.batch(numbered("text that compresses", range(10, 40)))
    to.batch([NewRecord(b"noise", noise.randbytes(700).translate(_PRINTABLE), timestamp_ms=TIME_MS + 40)])
    to.reopen()
    to.batch([NewRecord(b"long", b"seventeen letters" * 8000, timestamp_ms=TIME_MS + 41)])
    to.batch(numbered("after", range(50, 53)))


# Letters only: the dump tool prints values in the JVM's encoding.
_PRINTABLE = bytes(65 + n % 26 for n in range(256))


def write_client_batches(to: Recorder) -> None:
    """Batches that came encoded, in every codec and with and without a producer."""
    producer = Producer(1000)
    for number, codec in enumerate(Codec):
        to.client_batch(numbered(f"plain-{codec.name}", range(number * 10, number * 10 + 4)), codec)
        to.client_batch(numbered(codec.name, range(number * 10 + 5, number * 10 + 8)), codec, producer)


def write_append_time(to: Recorder) -> None:
    for number in range(4):
        to.batch(shapes())
        to.client_batch(numbered("client", range(number * 10, number * 10 + 3)), Codec.LZ4)
        to.clock.advance(1_000)


def write_idempotent(to: Recorder) -> None:
    """Two producers in turn, each with more batches than a log remembers (five); a repeated batch; a new
    epoch; and sequences that pass 2^31 - 1."""
    first, second = Producer(2000), Producer(2001)
    wrapping = Producer(2002, sequence=2**31 - 3)
    for turn in range(7):
        to.batch(numbered("first", range(turn * 20, turn * 20 + 1 + turn % 3)), first)
        to.batch(numbered("second", range(turn * 20 + 10, turn * 20 + 12)), second)
    last = numbered("repeated", range(200, 203))
    stamp = ProducerIdentity(first.producer_id, first.epoch, first.sequence)
    to.batch(last, first)
    end = to.log.log_end_offset
    assert to.repeat(last, stamp) == range(end - 3, end)
    to.reopen()
    first.begin_epoch()
    to.batch(numbered("second epoch", range(210, 212)), first)
    to.batch(numbered("wrapping", range(220, 225)), wrapping)
    to.batch(numbered("wrapped", range(230, 232)), wrapping)


def write_transactions(to: Recorder) -> None:
    """Two transactional producers whose transactions overlap, and plain batches between them. In each round
    the first aborts and the second commits; in every third round the other way round."""
    first, second = Producer(3000, is_transactional=True), Producer(3001, is_transactional=True)
    for turn in range(6):
        at = turn * 100
        to.batch(numbered("first", range(at, at + 3)), first)
        to.batch(numbered("second", range(at + 10, at + 12)), second)
        to.batch(numbered("first", range(at + 20, at + 21)), first)
        to.client_batch(numbered("plain", range(at + 30, at + 32)), Codec.LZ4)
        to.end(first, committed=turn % 3 == 2)
        to.batch(numbered("second", range(at + 40, at + 42)), second)
        if turn == 3:
            to.reopen()
        to.end(second, committed=turn % 3 != 2)


def write_open_transaction(to: Recorder) -> None:
    """One committed, one aborted by a newer epoch as a coordinator does it, one left open, and plain records
    behind it."""
    producer = Producer(4000, is_transactional=True)
    to.batch(numbered("commit", range(2)), producer)
    to.end(producer, committed=True)
    to.batch(numbered("abort", range(10, 12)), producer)
    producer.begin_epoch()
    to.end(producer, committed=False)
    to.reopen()
    to.batch(numbered("open", range(20, 23)), producer)
    to.batch(numbered("plain", range(30, 32)))


def write_segments(to: Recorder) -> None:
    for turn in range(60):
        if turn == 35:
            to.reopen()
        to.batch(numbered("value", range(turn * 5, turn * 5 + 5)))


def write_rolled(to: Recorder) -> None:
    """Rolled by hand, so that the last segment is empty."""
    to.batch(numbered("value", range(5)))
    to.log.roll()
    to.batch(numbered("value", range(5, 10)))
    to.log.roll()


def write_epochs(to: Recorder) -> None:
    """Epochs 0 and 1: a broker that takes over has a higher one."""
    to.begin_leader_epoch(0)
    to.batch(numbered("epoch-0", range(10)))
    to.reopen()
    to.begin_leader_epoch(1)
    to.batch(numbered("epoch-1", range(10, 20)))


def write_replicated(to: Recorder) -> None:
    """A follower's log: offsets with gaps, a new epoch inside."""
    to.replicate(numbered("value", range(3)), base_offset=0, leader_epoch=0)
    to.replicate(numbered("value", range(10, 14)), base_offset=10, leader_epoch=0)
    to.replicate(numbered("value", range(20, 25)), base_offset=1_000, leader_epoch=1)
    to.replicate(numbered("value", range(30, 35)), base_offset=1_005, leader_epoch=1)


def write_truncated(to: Recorder) -> None:
    """Cut inside a batch, which goes whole: offsets 10 and 11 stay unused, and a segment begins at 12."""
    for turn in range(4):
        to.batch(numbered("value", range(turn * 5, turn * 5 + 5)))
    to.truncate_to(12)
    to.records = to.records[:10]
    to.batch(numbered("new", range(12, 20)))


def write_deleted(to: Recorder) -> None:
    """The log start lies inside a batch of the second segment."""
    for turn in range(10):
        to.batch(numbered("a value that fills a segment", range(turn * 5, turn * 5 + 5)))
    to.log.delete_before(32)
    to.epochs = [(0, 32)]


def write_high_offsets(to: Recorder) -> None:
    """Offsets beyond 32 bits."""
    to.log.truncate_fully_and_start_at(5_000_000_000)
    to.batch(numbered("value", range(5)))
    to.batch(numbered("value", range(5, 10)))


def write_nothing(to: Recorder) -> None:
    """A partition without a record."""


Script = Callable[[Recorder], None]

TOPICS: dict[str, tuple[Script, TopicConfig]] = {
    **{
        f"codec-{codec}": (
            write_codec,
            TopicConfig(compression_type="uncompressed" if codec == "none" else codec),
        )
        for codec in CODECS
    },
    "client-batches": (write_client_batches, TopicConfig(index_interval_bytes=128)),
    "append-time": (write_append_time, TopicConfig(message_timestamp_type="LogAppendTime")),
    "idempotent": (write_idempotent, TopicConfig(**SMALL_SEGMENTS)),
    "transactions": (write_transactions, TopicConfig()),
    "transactions-segments": (write_transactions, TopicConfig(**SMALL_SEGMENTS)),
    "open-transaction": (write_open_transaction, TopicConfig()),
    "segments": (write_segments, TopicConfig(segment_bytes=4096, index_interval_bytes=512)),
    "segments-indexed": (write_segments, TopicConfig(segment_bytes=4096, index_interval_bytes=0)),
    "rolled": (write_rolled, TopicConfig()),
    "epochs": (write_epochs, TopicConfig()),
    "replicated": (write_replicated, TopicConfig()),
    "truncated": (write_truncated, TopicConfig()),
    "deleted": (write_deleted, TopicConfig(**SMALL_SEGMENTS)),
    "high-offsets": (write_high_offsets, TopicConfig(index_interval_bytes=0)),
    "empty": (write_nothing, TopicConfig()),
}


def write_topics(root: Path) -> dict[str, Written]:
    """Write every topic into `root`, each as `<topic>-0`, `-1` and `-2`: CLOSED, RECOVERED and CRASHED."""
    return {topic: _write_topic(root, topic, *script) for topic, script in TOPICS.items()}


def _write_topic(root: Path, topic: str, script: Script, config: TopicConfig) -> Written:
    closed, recovered, crashed = (root / f"{topic}-{variant}" for variant in (CLOSED, RECOVERED, CRASHED))
    recorder = Recorder(closed, config)
    script(recorder)
    for copy in (recovered, crashed):
        copy_as_crashed(recorder.log, copy)
    written = recorder.finish([closed, recovered, crashed])
    recorder.log.close()
    with open_ours(recovered, config) as log:
        assert not log.recovery.was_clean
        assert log.recovery.cut_bytes > 0
    return written


def copy_as_crashed(log: Log, target: Path) -> None:
    """What a killed process leaves: the files as they are while the log is open, and half a batch behind the
    last one. Checkpoints are renamed to the copy's partition."""
    source = Path(log.directory)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))
    for path in target.glob("*-checkpoint"):
        path.write_text(path.read_text().replace(f"{log.partition.topic} 0 ", _prefix_of(target)))
    torn = encode(numbered("torn", range(3)), Codec.NONE)
    rebase_batch(torn, 0, log.log_end_offset, log.leader_epoch)
    with max(target.glob("*.log")).open("ab") as file:
        file.write(torn[:-1])


def _prefix_of(directory: Path) -> str:
    topic, _, partition = directory.name.rpartition("-")
    return f"{topic} {partition} "
