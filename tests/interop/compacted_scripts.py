"""The partitions that logstore writes and compacts for Kafka to judge.

Each topic is a script of appends and compactions, carried out by a `Recorder`. `write_compacted` lays each
one down twice, as partitions `CLOSED` and `LEFT`, and the one of `KILLED` once for each of some moments at
which its process might have been killed while it compacted. The records are of now: a broker that loads a
producer snapshot goes by the age of the records.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from logstore.config import TopicConfig
from logstore.files import OsFiles
from logstore.format.compression import Codec
from logstore.model import AbortedTransaction, Isolation, Record
from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.interop.cleaner_rounds import SEGMENT_BYTES
from tests.interop.clients import NewRecord, SeenRecord
from tests.interop.ours import Producer, Recorder, as_record, seen_in

RETENTION_MS: Final = 1_000
"""`delete.retention.ms`."""

CLOSED, LEFT = 0, 1
"""How a directory was left: closed; or as it was while the log was open, by a process that was killed."""

CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass
class Rows:
    """Makes records a millisecond apart."""

    time_ms: int

    def take(self, label: str, keys: Sequence[object]) -> list[NewRecord]:
        return [self.one(key, f"{label} of {key} ".encode() * 4) for key in keys]

    def one(self, key: object, value: bytes | None) -> NewRecord:
        self.time_ms += 1
        headers = (("h", str(key).encode()), ("null", None)) if self.time_ms % 3 == 0 else ()
        return NewRecord(str(key).encode(), value, headers, self.time_ms)


def compact(to: Recorder, **options: int) -> None:
    assert to.log.compact(now=True, **options).saved_bytes > 0


def write_codec(to: Recorder, rows: Rows) -> None:
    """Two compactions, with a horizon between them that has passed for one tombstone and not for another.
    Small batches are joined."""
    for turn in range(20):
        to.batch(rows.take(f"turn {turn}", [turn % 7, 100 + turn, turn % 3]))
    to.batch([rows.one(101, None), rows.one("gone before", None), rows.one("", b"")])
    compact(to)
    to.clock.advance(RETENTION_MS)
    to.batch([rows.one(102, None), rows.one("gone after", None)])
    for turn in range(10):
        to.batch(rows.take(f"again {turn}", [turn % 5, 105 + turn]))
    compact(to)
    assert b"gone before" not in keys_in(to.log)
    assert b"gone after" in keys_in(to.log)
    to.batch(rows.take("active", range(3)))


def write_client_batches(to: Recorder, rows: Rows) -> None:
    """Batches that came encoded, in every codec, with and without a producer."""
    producer = Producer(1000)
    for turn in range(4):
        for codec in Codec:
            to.client_batch(rows.take(f"{codec.name} {turn}", [turn, codec.name, 7, "x"]), codec)
            to.client_batch(rows.take(f"{codec.name} {turn}", [codec.name, 7]), codec, producer)
    compact(to)
    to.batch(rows.take("active", range(3)))


def write_producers(to: Recorder, rows: Rows) -> None:
    """Idempotent producers; of all but one the last batch is emptied, of one with a sequence that has passed
    2^31 - 1."""
    first, second = Producer(IDLE), Producer(2001)
    wrapping = Producer(2002, sequence=2**31 - 2)
    for turn in range(12):
        to.batch(rows.take(f"first {turn}", range(3)), first)
        to.batch(rows.take(f"second {turn}", range(1 + turn % 3)), second)
    to.batch(rows.take("wrapping", range(4)), wrapping)
    for turn in range(3):
        to.batch(rows.take(f"without {turn}", range(8)))
    compact(to)
    to.batch(rows.take("active", range(3)), Producer(2003))


IDLE: Final = 2000
"""The producer of `producers` whose 36 records are superseded, its last batch emptied."""
IDLE_COUNT: Final = 36


def write_transactions(to: Recorder, rows: Rows) -> None:
    """Transactions that commit and abort, of two producers that overlap. Of the first ones both the data and,
    after three compactions, the markers are gone."""
    first, second = Producer(3000, is_transactional=True), Producer(3001, is_transactional=True)
    for round_ in range(3):
        for turn in range(4):
            to.batch(rows.take(f"first {turn}", range(3)), first)
            to.batch(rows.take(f"second {turn}", range(2, 5)), second)
            to.client_batch(rows.take(f"plain {turn}", range(4, 7)), Codec.LZ4)
            to.end(first, committed=turn % 3 == 2)
            to.batch([rows.one(f"round {round_}", None), *rows.take(f"second {turn}", [3])], second)
            to.end(second, committed=turn % 3 != 2)
        compact(to)
        to.clock.advance(RETENTION_MS)
    to.batch(rows.take("active", range(3)), first)
    to.end(first, committed=False)


def write_open_transaction(to: Recorder, rows: Rows) -> None:
    """What lies from the open transaction on stays, in the same segment as what goes."""
    producer = Producer(4000, is_transactional=True)
    for turn in range(6):
        to.batch(rows.take(f"before {turn}", range(3)))
    to.batch(rows.take("aborted", range(3)), producer)
    to.end(producer, committed=False)
    to.batch(rows.take("open", range(3)), producer)
    for turn in range(8):
        to.batch(rows.take(f"behind {turn}", range(3)))
    compact(to)


def write_rounds(to: Recorder, rows: Rows) -> None:
    """More keys than the map takes at a time."""
    for turn in range(30):
        to.batch(rows.take(f"turn {turn}", [*range(turn * 10, turn * 10 + 10), turn % 4]))
    report = to.log.compact(now=True, map_bytes=4096)
    assert report.round_count > 1
    to.batch(rows.take("active", range(3)))


def write_nothing_left(to: Recorder, rows: Rows) -> None:
    """Aborted transactions and tombstones alone: what stays is for the producer, and where the log ends."""
    producer = Producer(5000, is_transactional=True)
    for _ in range(6):
        to.batch(rows.take("aborted", range(5)), producer)
        to.end(producer, committed=False)
    to.batch([rows.one(key, None) for key in range(5)])
    for _ in range(3):
        to.log.compact(now=True)
        to.clock.advance(RETENTION_MS)
        to.batch([rows.one("tombstone", None)])
    to.log.compact(now=True)


def write_erased(to: Recorder, rows: Rows) -> None:
    """Records are erased, by key before and after a compaction, and by offset: also all of a batch."""
    producer, transactional = Producer(6000), Producer(6001, is_transactional=True)
    for turn in range(8):
        to.batch(rows.take(f"turn {turn}", ["secret", turn % 5, 100 + turn]))
        to.batch(rows.take(f"by a producer {turn}", ["secret"] * 2), producer)
        to.batch(rows.take(f"in a transaction {turn}", ["secret", 50 + turn]), transactional)
        to.end(transactional, committed=turn % 2 == 0)
    assert to.log.erase(keys=[b"secret"]).record_count == 32
    compact(to)
    for turn in range(8):
        to.batch(rows.take(f"again {turn}", ["secret", turn, 100 + turn]))
    last = to.log.log_end_offset - 1
    assert to.log.erase(keys=[b"secret", b"100"], offsets=[last]).record_count > 8
    assert not keys_in(to.log) & {b"secret", b"100"}
    to.batch(rows.take("active", range(3)))


Script = Callable[[Recorder, Rows], None]

CONFIG: Final = TopicConfig(
    cleanup_policy="compact",
    segment_bytes=SEGMENT_BYTES,
    index_interval_bytes=256,
    delete_retention_ms=RETENTION_MS,
    min_cleanable_dirty_ratio=0,
)

TOPICS: Final[dict[str, tuple[Script, TopicConfig]]] = {
    **{f"codec-{codec}": (write_codec, CONFIG.with_settings(compression_type=codec)) for codec in CODECS},
    "client-batches": (write_client_batches, CONFIG),
    "append-time": (write_codec, CONFIG.with_settings(message_timestamp_type="LogAppendTime")),
    "one-segment": (write_codec, CONFIG.with_settings(segment_bytes=1024 * 1024)),
    "producers": (write_producers, CONFIG),
    "transactions": (write_transactions, CONFIG),
    "open-transaction": (write_open_transaction, CONFIG),
    "rounds": (write_rounds, CONFIG),
    "nothing-left": (write_nothing_left, CONFIG),
    "erased": (write_erased, CONFIG.with_settings(compression_type="zstd")),
}

KILLED: Final = "killed"


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """A directory, and what logstore reads of it."""

    directory: Path
    config: TopicConfig
    records: tuple[SeenRecord, ...]
    committed: tuple[Record, ...]
    aborted: tuple[AbortedTransaction, ...]
    log_end_offset: int
    last_stable_offset: int


def write_compacted(root: Path) -> dict[str, list[Compacted]]:
    """Write every topic into `root`: its partitions, in order."""
    now_ms = int(time.time() * 1000) - 60_000
    topics = {topic: _write_topic(root, topic, now_ms) for topic in TOPICS}
    topics[KILLED] = [as_ours_reads(path, CONFIG, now_ms) for path in _write_killed(root, now_ms)]
    return topics


def _write_topic(root: Path, topic: str, now_ms: int) -> list[Compacted]:
    script, config = TOPICS[topic]
    closed, left = (root / f"{topic}-{partition}" for partition in (CLOSED, LEFT))
    recorder = Recorder(closed, config, ManualClock(now_ms))
    script(recorder, Rows(now_ms - 100_000))
    copy_as_killed(closed, left)
    recorder.log.close()
    return [as_ours_reads(path, config, recorder.clock.now_ms()) for path in (closed, left)]


def _write_killed(root: Path, now_ms: int) -> list[Path]:
    """Copies of one log from several moments of one compaction, and of the last of them one that goes on."""
    source = root / f"{KILLED}-source"
    files = _WatchedFiles()
    clock = ManualClock(now_ms)
    recorder = Recorder(source, CONFIG, clock)
    rows = Rows(now_ms - 100_000)
    producer = Producer(6000, is_transactional=True)
    for turn in range(30):
        to_producer = producer if turn % 3 == 0 else None
        recorder.batch(rows.take(f"turn {turn}", [turn % 7, 100 + turn % 20]), to_producer)
        if to_producer is not None:
            recorder.end(producer, committed=turn % 2 == 0)
    recorder.log.close()
    moments: list[Path] = []

    def copy() -> None:
        moments.append(source.with_name(f"{KILLED}-moment-{len(moments)}"))
        copy_as_killed(source, moments[-1])

    with Log.open(str(source), config=CONFIG, clock=clock, files=files) as log:
        files.before_rename = copy
        assert log.compact(now=True).saved_bytes > 0
        files.before_rename = None
    # Each output is renamed to .swap, then the old ones to .deleted, then it to its name, file by file.
    chosen = moments[:: max(len(moments) // 9, 1)][:9]
    directories = [root / f"{KILLED}-{number}" for number in range(len(chosen) + 1)]
    for moment, directory in zip(chosen, directories, strict=False):
        copy_as_killed(moment, directory)
    copy_as_killed(chosen[len(chosen) // 2], directories[-1])
    with Log.open(str(directories[-1]), config=CONFIG, clock=clock) as log:
        assert not log.recovery.was_clean
        assert log.compact(now=True).saved_bytes > 0
    return directories


class _WatchedFiles(OsFiles):
    before_rename: Callable[[], None] | None = None

    def rename(self, old: str, new: str) -> None:
        if self.before_rename is not None and not old.endswith(".tmp"):
            self.before_rename()
        super().rename(old, new)


def copy_as_killed(source: Path, target: Path) -> None:
    """The files as they are. Checkpoints are renamed to the copy's partition."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))
    names = [path.name.rpartition("-") for path in (source, target)]
    old, new = (f"\n{topic} {partition} " for topic, _, partition in names)
    for path in target.glob("*-offset-checkpoint"):
        path.write_text(path.read_text().replace(old, new))


def as_ours_reads(directory: Path, config: TopicConfig, now_ms: int) -> Compacted:
    """What a process that opens the directory reads; of a copy, since opening may change it."""
    copy = directory.with_name(f"read.{directory.name}")
    copy_as_killed(directory, copy)
    with Log.open(str(copy), config=config, clock=ManualClock(now_ms)) as log:
        seen = seen_in(log)
        assert [as_record(each) for each in seen] == list(log.read(isolation=Isolation.LOG_END))
        fetched = log.fetch(log.log_start_offset, max_bytes=2**30, isolation=Isolation.COMMITTED)
        found = Compacted(
            directory=directory,
            config=config,
            records=tuple(seen),
            committed=tuple(log.read(isolation=Isolation.COMMITTED)),
            aborted=tuple(fetched.aborted),
            log_end_offset=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
        )
    shutil.rmtree(copy)
    return found


def keys_in(log: Log) -> set[bytes | None]:
    return {record.key for record in log.read(isolation=Isolation.LOG_END)}
