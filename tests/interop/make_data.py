"""Make the committed data again: `python -m tests.interop.make_data [maker ...]`, from the root of the tree.

A stock Kafka broker, Kafka's own producers (Writer.java) and, for the formats before version 2, Kafka's own
record builder (Legacy.java) write it; Kafka's own consumer (Reader.java) says what is in it, and kafka-python
must agree. Run by hand when a case is added: the bytes hold topic ids, producer ids and marker timestamps, so
every run changes them. The makers are listed in `MAKERS`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from tests.interop import clients
from tests.interop.cleaner_rounds import run_rounds
from tests.interop.clients import Isolation, NewRecord, SeenRecord
from tests.interop.fixtures import CLEANER_ROUNDS, DATA, ExpectedPartition, decode_record, store_expected
from tests.interop.kafka import (
    OLD,
    KafkaBroker,
    read_checkpoint,
    run_program,
    unavailable_reason,
    wait_for,
)
from tests.interop.plan import Plan
from tests.interop.scripts import shapes

TIME_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SHAPES = shapes()[:-1]  # Kafka's producer refuses the last one: its timestamp is -1

# kafka-python needs one more package for the wrong header checksum of magic 0's lz4.
ONE_CLIENT_ONLY = ("legacy-v0-lz4",)

CLEANER_SEED = 1
CLEANER = {"log.cleaner.backoff.ms": 100}
SMALL_SEGMENTS = {"segment.bytes": 1024, "index.interval.bytes": 256}
COMPACT = {
    **SMALL_SEGMENTS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
    "file.delete.delay.ms": 0,
}


def old_broker(home: Path, config: Mapping[str, object] | None = None) -> KafkaBroker:
    """A broker that still knows the old formats, with its metadata log beside the topics, not among them."""
    return KafkaBroker(home, version=OLD, config={"metadata.log.dir": home / "metadata", **(config or {})})


# --- what is written ------------------------------------------------------------------------------


def _numbered(label: str, numbers: Iterable[int]) -> list[NewRecord]:
    """Records that name themselves, one millisecond apart, under ten keys."""
    return [
        NewRecord(f"key-{n % 10}".encode(), f"{label}-{n}".encode(), timestamp_ms=TIME_MS + n)
        for n in numbers
    ]


def write_codec(plan: Plan, codec: str) -> None:
    """Shapes; text that compresses; bytes that do not; a value longer than the blocks of snappy and lz4."""
    topic = f"codec-{codec}"
    name = plan.producer(topic, compression_type=codec, enable_idempotence="false")
    noise = random.Random(7)
    plan.batch(name, topic, SHAPES)
    plan.batch(name, topic, _numbered("text that compresses", range(10, 30)))
    plan.batch(name, topic, [NewRecord(b"noise", noise.randbytes(700), timestamp_ms=TIME_MS + 40)])
    if codec != "none":
        long = b"forty bytes that are repeated many times" * 4000
        plan.batch(name, topic, [NewRecord(b"long", long, timestamp_ms=TIME_MS + 41)])


def write_idempotent(plan: Plan) -> None:
    """Two producers in turn, each with more batches than a broker remembers (five)."""
    topic = "idempotent"
    names = [plan.producer(f"idempotent-{n}") for n in range(2)]
    for turn in range(7):
        for number, name in enumerate(names):
            start = (turn * 2 + number) * 10
            plan.batch(name, topic, _numbered(name, range(start, start + 1 + turn % 3)))


def write_transactions(plan: Plan, topic: str, rounds: int) -> None:
    """Two transactional producers whose transactions overlap, and one without transactions in between.

    In each round the first aborts and the second commits; in every third round the other way round. Markers
    carry the broker's time, years after the records', so segment.ms makes the first marker roll a segment.
    """
    first, second = (plan.transactional(f"{topic}-{n}") for n in range(2))
    plain = plan.producer(f"{topic}-plain", compression_type="lz4")
    for turn in range(rounds):
        at = turn * 100
        plan.do("begin", first)
        plan.batch(first, topic, _numbered("first", range(at, at + 3)))
        plan.do("begin", second)
        plan.batch(second, topic, _numbered("second", range(at + 10, at + 12)))
        plan.batch(first, topic, _numbered("first", range(at + 20, at + 21)))
        plan.batch(plain, topic, _numbered("plain", range(at + 30, at + 32)))
        plan.do("commit" if turn % 3 == 2 else "abort", first)
        plan.batch(second, topic, _numbered("second", range(at + 40, at + 42)))
        plan.do("abort" if turn % 3 == 2 else "commit", second)


def write_open_transaction(plan: Plan) -> None:
    """One committed, one aborted and one transaction left open, with plain records behind it."""
    topic = "transactional-open"
    name = plan.transactional(topic)
    plain = plan.producer(f"{topic}-plain")
    for turn, end in enumerate(("commit", "abort")):
        plan.do("begin", name)
        plan.batch(name, topic, _numbered(end, range(turn * 10, turn * 10 + 2)))
        plan.do(end, name)
    plan.do("begin", name)
    plan.batch(name, topic, _numbered("open", range(20, 23)))
    plan.batch(plain, topic, _numbered("plain", range(30, 32)))


def write_compacted(plan: Plan) -> None:
    """Ten keys many times over, every second batch lz4, every fourth with a tombstone.

    The one batch of a third producer loses its record but stays, empty, for its sequence numbers.
    """
    topic = "compacted"
    names = [plan.producer(topic), plan.producer(f"{topic}-lz4", compression_type="lz4")]
    once = plan.producer(f"{topic}-once")
    plan.batch(once, topic, [NewRecord(b"key-0", b"its producer's only batch", timestamp_ms=TIME_MS)])
    for turn in range(40):
        records = _numbered("value", range(turn * 5, turn * 5 + 5))
        if turn % 4 == 3:
            tombstone = NewRecord(f"gone-{turn}".encode(), None, timestamp_ms=TIME_MS + turn * 5)
            records = [tombstone, *records[1:]]
        plan.batch(names[turn % 2], topic, records)


def write_append_time(plan: Plan) -> None:
    for codec in ("none", "lz4", "zstd"):
        name = plan.producer(f"append-time-{codec}", compression_type=codec)
        plan.batch(name, "append-time", _numbered(codec, range(5)))
        plan.batch(name, "append-time", SHAPES)


def write_numbered(plan: Plan, topic: str, batches: int, *, partition: int = 0, label: str = "value") -> None:
    """Batches of five records each."""
    name = plan.producer(f"{topic}-{partition}-{label}")
    for turn in range(batches):
        plan.batch(name, topic, _numbered(label, range(turn * 5, turn * 5 + 5)), partition)


# --- what is seen of it ---------------------------------------------------------------------------


def observe(broker: KafkaBroker, topics: Sequence[tuple[str, int]]) -> list[ExpectedPartition]:
    """What Kafka's consumer sees of the partitions; fails where kafka-python sees otherwise."""
    words = [word for topic, partition in topics for word in (topic, str(partition))]
    views = json.loads(run_program("Reader.java", broker.bootstrap, *words, version=OLD))
    seen = []
    for topic, partition in topics:
        view = views[f"{topic}-{partition}"]
        uncommitted, committed = view["read_uncommitted"], view["read_committed"]
        records = tuple(decode_record(each) for each in uncommitted["records"])
        visible = tuple(decode_record(each) for each in committed["records"])
        if not set(visible) <= set(records):
            raise AssertionError(f"{topic}: the committed view is no part of the other")
        if topic not in ONE_CLIENT_ONLY:
            _compare_clients(broker, topic, partition, records, visible)
        expected = ExpectedPartition(
            directory=broker.partition_dir(topic, partition),
            topic=topic,
            partition=partition,
            log_start_offset=uncommitted["start"],
            log_end_offset=uncommitted["end"],
            last_stable_offset=committed["end"],
            records=records,
            committed=visible,
        )
        seen.append(expected)
    return seen


def _compare_clients(
    broker: KafkaBroker,
    topic: str,
    partition: int,
    records: Sequence[SeenRecord],
    visible: Sequence[SeenRecord],
) -> None:
    views: dict[Isolation, Sequence[SeenRecord]] = {"read_uncommitted": records, "read_committed": visible}
    for isolation, wanted in views.items():
        found = clients.consume(broker.bootstrap, topic, partition=partition, isolation=isolation)
        if found != list(wanted):
            pairs = [(a, b) for a, b in zip(found, wanted, strict=False) if a != b]
            raise AssertionError(
                f"{topic}-{partition} {isolation}: {len(found)} against {len(wanted)} records, {pairs[:2]}"
            )


def keep(case: str, seen: Sequence[ExpectedPartition]) -> None:
    """Copy the partition directories of a stopped broker into the case's folder, with expected.json."""
    target = DATA / case
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for each in seen:
        shutil.copytree(each.directory, target / each.directory.name)
    store_expected(target, OLD, seen)


def wait_until_cleaned(broker: KafkaBroker, topic: str, partition: int = 0) -> None:
    """Wait until the cleaner has reached the active segment and replaced files are gone."""
    directory = broker.partition_dir(topic, partition)

    def is_cleaned() -> bool:
        active = max(int(path.stem) for path in directory.glob("*.log"))
        reached = read_checkpoint(broker.log_dir / "cleaner-offset-checkpoint").get((topic, partition), 0)
        passing = {path.suffix for path in directory.iterdir()} & {".deleted", ".cleaned", ".swap"}
        return reached >= active > 0 and not passing

    wait_for(is_cleaned, f"the cleaner to finish {topic}", timeout_s=60)


# --- the cases ------------------------------------------------------------------------------------


def make_ordinary(home: Path) -> None:
    """All cases that one broker can write in one life."""
    topics: dict[str, Mapping[str, object]] = {
        **{f"codec-{codec}": {} for codec in CODECS},
        "idempotent": SMALL_SEGMENTS,
        "transactional": {},
        "transactional-segments": SMALL_SEGMENTS,
        "transactional-open": {},
        "compacted": COMPACT,
        "compacted-transactional": COMPACT,
        "append-time": {"message.timestamp.type": "LogAppendTime"},
        "segments": {"segment.bytes": 4096, "index.interval.bytes": 512},
    }
    plan = Plan()
    for codec in CODECS:
        write_codec(plan, codec)
    write_idempotent(plan)
    write_transactions(plan, "transactional", 3)
    write_transactions(plan, "transactional-segments", 6)
    write_open_transaction(plan)
    write_compacted(plan)
    write_transactions(plan, "compacted-transactional", 6)
    write_append_time(plan)
    write_numbered(plan, "segments", 60)
    with old_broker(home, CLEANER) as broker:
        for topic, config in topics.items():
            broker.create_topic(topic, config=config)
        plan.run(broker.bootstrap)
        for topic in ("compacted", "compacted-transactional"):
            wait_until_cleaned(broker, topic)
        clients.commit_group_offsets(broker.bootstrap, "group-1", {("segments", 0): 7, ("idempotent", 0): 3})
        clients.commit_group_offsets(broker.bootstrap, "group-2", {("segments", 0): 0})
        seen = observe(broker, [(topic, 0) for topic in topics])
        internal = observe(broker, [("__consumer_offsets", 0), ("__transaction_state", 0)])
    for each in seen:
        keep(each.topic, [each])
    keep("internal-topics", internal)


def make_epochs(home: Path) -> None:
    """Records of three leader epochs: every start of a single broker begins a new one."""
    broker = old_broker(home)
    for life in range(3):
        with broker:
            if life == 0:
                broker.create_topic("epochs")
            plan = Plan()
            write_numbered(plan, "epochs", 2, label=f"life-{life}")
            plan.run(broker.bootstrap)
            seen = observe(broker, [("epochs", 0)])
    keep("epochs", seen)


def make_killed(home: Path) -> None:
    """What SIGKILL leaves: preallocated indexes with zero tails, no marker, no snapshot at the end."""
    broker = old_broker(home)
    with broker:
        broker.create_topic("killed", config={**SMALL_SEGMENTS, "segment.index.bytes": 240})
        plan = Plan()
        write_numbered(plan, "killed", 20)
        plan.run(broker.bootstrap)
        seen = observe(broker, [("killed", 0)])
        broker.kill()
    keep("killed", seen)


def make_log_dir(home: Path) -> None:
    """A whole log directory with its checkpoint files.

    Partition 1 has its start moved into a segment, partition 2 is empty; a compacted topic stands beside.
    """
    broker = old_broker(home, CLEANER)
    with broker:
        broker.create_topic("many", partitions=3, config=SMALL_SEGMENTS)
        broker.create_topic("compact-one", config=COMPACT)
        plan = Plan()
        for partition in range(2):
            write_numbered(plan, "many", 20, partition=partition)
        write_numbered(plan, "compact-one", 20)
        plan.run(broker.bootstrap)
        clients.delete_records(broker.bootstrap, "many", 1, 47)
        wait_until_cleaned(broker, "compact-one")
        seen = observe(broker, [("many", 0), ("many", 1), ("many", 2), ("compact-one", 0)])
    # The segment wholly below the moved start is still there, since retention runs only every 5 minutes.
    keep("log-dir", seen)
    for path in broker.log_dir.iterdir():
        if path.is_file() and path.name not in {".lock", "bootstrap.checkpoint"}:
            shutil.copy(path, DATA / "log-dir")


def make_legacy(home: Path) -> None:
    """Segments of magic 0 and 1, kept as Kafka's builder made them; a broker serves copies to see them."""
    names = [f"v{magic}-{codec}" for magic in (0, 1) for codec in CODECS[:4]]
    names += ["v1-none-append-time", "v1-lz4-append-time", "mixed"]
    written = home / "written"
    run_program("Legacy.java", os.fspath(written), *names, version=OLD)
    topics = [f"legacy-{name}" for name in names]
    with old_broker(home / "broker") as broker:
        broker.serve_partitions({topic: [written / f"{topic}-0"] for topic in topics})
        seen = observe(broker, [(topic, 0) for topic in topics])
    for topic, each in zip(topics, seen, strict=True):
        keep(topic, [each])
        shutil.rmtree(DATA / topic / f"{topic}-0")
        shutil.copytree(written / f"{topic}-0", DATA / topic / f"{topic}-0")


def make_cleaner(home: Path) -> None:
    """What the cleaner found and left, round by round."""
    shutil.rmtree(CLEANER_ROUNDS, ignore_errors=True)
    run_rounds(home, CLEANER_ROUNDS, seed=CLEANER_SEED)


MAKERS: dict[str, Callable[[Path], None]] = {
    "ordinary": make_ordinary,
    "epochs": make_epochs,
    "killed": make_killed,
    "log-dir": make_log_dir,
    "legacy": make_legacy,
    "cleaner": make_cleaner,
}


def main(wanted: Sequence[str]) -> None:
    reason = unavailable_reason()
    if reason is not None:
        raise SystemExit(reason)
    for name in wanted or MAKERS:
        with tempfile.TemporaryDirectory() as home:
            MAKERS[name](Path(home))
        print(f"made {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
