"""The partitions that logstore writes for Kafka to judge.

Each topic is a script of appends, which a `Recorder` carries out. `write_topics` lays each topic down three
times, as partitions `CLOSED`, `RECOVERED` and `CRASHED`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from logstore.config import TopicConfig
from logstore.format.batch import rebase_batch
from logstore.format.compression import Codec
from logstore.model import ProducerIdentity
from logstore.partition.log import Log
from tests.interop.clients import NewRecord
from tests.interop.ours import TIME_MS, Producer, Recorder, Written, encode, numbered, open_ours

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

CLOSED, RECOVERED, CRASHED = 0, 1, 2
"""How a directory was left: closed; copied from an open log, torn, and recovered by us; or not recovered."""

SMALL_SEGMENTS = TopicConfig(segment_bytes=1024, index_interval_bytes=256)


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


def write_adopted(to: Recorder) -> None:
    """Files that became segments: the first one, and others between appends and behind each other."""
    producer = Producer(2**62 + 7)
    for turn in range(3):
        for part in (0, 40):
            numbers = range(turn * 100 + part, turn * 100 + part + 40)
            batches = [numbered("adopted", numbers[start : start + 4]) for start in range(0, 40, 4)]
            to.adopt_file(batches, Codec.ZSTD if turn == 1 else Codec.NONE, producer)
        to.batch(numbered("appended", range(turn * 100 + 90, turn * 100 + 95)))
        if turn == 1:
            to.reopen()


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
    "idempotent": (write_idempotent, SMALL_SEGMENTS),
    "transactions": (write_transactions, TopicConfig()),
    "transactions-segments": (write_transactions, SMALL_SEGMENTS),
    "open-transaction": (write_open_transaction, TopicConfig()),
    "segments": (write_segments, TopicConfig(segment_bytes=4096, index_interval_bytes=512)),
    "segments-indexed": (write_segments, TopicConfig(segment_bytes=4096, index_interval_bytes=0)),
    "rolled": (write_rolled, TopicConfig()),
    "adopted": (write_adopted, TopicConfig(index_interval_bytes=256)),
    "epochs": (write_epochs, TopicConfig()),
    "replicated": (write_replicated, TopicConfig()),
    "truncated": (write_truncated, TopicConfig()),
    "deleted": (write_deleted, SMALL_SEGMENTS),
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
