"""Rounds of a stock broker's own cleaner over topics of every kind, with what was there before each.

The topics are written while their policy is "delete", so that records without a key are taken, and nothing is
cleaned; then it becomes "compact" until the cleaner has been over them once. The second round meets the
horizons that the first has set for tombstones: some have passed, some have not. A marker gets its horizon in
the second round, the first that meets no data of its transaction; the third, of those topics, meets that.

A folder of rounds is laid out as `<round>/before/<topic>-0/` and `<round>/after/<topic>-0/`, with the files
that say something: .log, .txnindex, and before the round .snapshot and the leader epochs. `round.json` has,
of each topic, the settings, the broker's clock, the log end, and the cleaner's offsets before and after.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.interop import clients
from tests.interop.clients import NewRecord
from tests.interop.kafka import OLD, KafkaBroker, read_checkpoint, wait_for
from tests.interop.plan import Plan

SHORT_MS: Final = 1
LONG_MS: Final = 86_400_000
"""`delete.retention.ms`: over in the second round, and not over."""

ROUND_FILE: Final = "round.json"
CLEANER_OFFSETS_FILE: Final = "cleaner-offset-checkpoint"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES: Final = 1024
CLEANABLE: Final[Mapping[str, object]] = {
    "segment.bytes": SEGMENT_BYTES,
    "min.cleanable.dirty.ratio": 0,
    "file.delete.delay.ms": 0,
}
"""Settings of topics whose dirty part is cleaned as soon as their policy becomes "compact"."""

_KEPT_BEFORE = (".log", ".txnindex", ".snapshot")
_KEPT_AFTER = (".log", ".txnindex")
_CONTROL_KEYS = (b"\0\0\0\0", b"\0\0\0\1")  # those of the markers ABORT and COMMIT


# --- what is written ------------------------------------------------------------------------------


@dataclass
class _Rows:
    """Makes records: few keys, so that they repeat inside of batches and across segments."""

    random: random.Random
    time_ms: int

    def take(self, label: str, count: int) -> list[NewRecord]:
        return [self._one(label) for _ in range(count)]

    def one(self, label: str, key: bytes) -> NewRecord:
        self.time_ms += 1
        return NewRecord(key, label.encode(), timestamp_ms=self.time_ms)

    def tombstone(self, key: bytes) -> NewRecord:
        return self.one("", key)._replace(value=None)

    def _one(self, label: str) -> NewRecord:
        self.time_ms += self.random.choice((1, 1, 1, 5, -3))
        key = b"k%d" % self.random.randrange(9)
        value: bytes | None = b"%s " % label.encode() * self.random.randrange(1, 5)
        if self.random.random() < 0.2:
            value = None
        elif self.random.random() < 0.05:
            value = b""
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if self.random.random() < 0.2:
            headers = (("h", b"%d" % self.random.randrange(100)), ("null", None), ("h", b""))
        return NewRecord(key, value, headers, self.time_ms)


def _write_codecs(plan: Plan, topic: str, rows: _Rows, turn: int) -> None:
    """Batches of every codec, without producer ids; some records have no key, or an empty one."""
    for codec in CODECS:
        plan.producer(f"{topic}-{codec}", compression_type=codec, enable_idempotence="false")
    for number in range(12):
        name = f"{topic}-{CODECS[(number + turn) % len(CODECS)]}"
        records = rows.take(f"{topic}-{turn}-{number}", rows.random.randrange(1, 7))
        if number % 4 == 1:
            records.insert(1, NewRecord(None, b"no key", timestamp_ms=rows.time_ms))
            records.append(rows.one("empty key", b""))
        plan.batch(name, topic, records)
    plan.batch(f"{topic}-none", topic, [NewRecord(None, b"no key", timestamp_ms=rows.time_ms)])
    plan.batch(f"{topic}-gzip", topic, [rows.tombstone(b"gone-%d" % turn)])
    # The last batch of the round is emptied: it stays, for its offset.
    for _ in range(2):
        plan.batch(f"{topic}-none", topic, [NewRecord(None, b"n" * 600, timestamp_ms=rows.time_ms)])
    plan.batch(f"{topic}-none", topic, [NewRecord(b"end", b"e" * 600, timestamp_ms=rows.time_ms)])


def _write_producers(plan: Plan, topic: str, rows: _Rows, turn: int) -> None:
    """Idempotent producers; some have one batch, all of which is superseded by others."""
    names = [plan.producer(f"{topic}-{n}", compression_type=CODECS[n]) for n in range(3)]
    once = [plan.producer(f"{topic}-once-{n}") for n in range(4)]
    for number in range(16):
        if number % 4 == 0:
            plan.batch(once[number // 4], topic, [rows.one("once", b"k%d" % number)] * 2)
            plan.batch(names[0], topic, [rows.one("instead", b"k%d" % number)])
        plan.batch(names[number % 3], topic, rows.take(f"{turn}-{number}", rows.random.randrange(1, 6)))
    _write_end(plan, names[0], topic, rows)


def _write_transactions(plan: Plan, topic: str, rows: _Rows, turn: int) -> None:
    """Two transactional producers whose transactions overlap, and one without transactions between them.
    Transactions that commit and abort, of several batches and of one, some of which lose all their records;
    and data under the keys that markers have."""
    first, second = (plan.transactional(f"{topic}-{n}") for n in range(2))
    plain = plan.producer(f"{topic}-plain", compression_type="lz4")
    plan.batch(plain, topic, [rows.one("with a tombstone", b"x"), rows.tombstone(b"gone-%d" % turn)])
    for number in range(5 if turn == 1 else 2):
        ends = ("abort", "commit") if rows.random.random() < 0.5 else ("commit", "abort")
        plan.do("begin", first)
        plan.batch(first, topic, rows.take(f"first-{turn}-{number}", 3))
        plan.do("begin", second)
        plan.batch(second, topic, rows.take(f"second-{turn}-{number}", 2))
        plan.batch(first, topic, rows.take(f"first again-{turn}-{number}", 1))
        plan.batch(plain, topic, rows.take(f"plain-{turn}-{number}", 2))
        plan.do(ends[0], first)
        plan.batch(second, topic, rows.take(f"second again-{turn}-{number}", 2))
        plan.do(ends[1], second)
        plan.do("begin", first)
        plan.batch(first, topic, [rows.one("short-lived", b"k0")])
        plan.do("commit", first)
    plan.batch(plain, topic, [rows.one("like a marker", key) for key in _CONTROL_KEYS])
    # Several markers at the end, so that the ones before are not kept for being the last of their producers.
    for name in (first, second):
        plan.do("begin", name)
        plan.batch(name, topic, [rows.one("last of its producer", b"last")])
        plan.do("commit", name)
    _write_end(plan, plain, topic, rows)


def _write_open(plan: Plan, topic: str, rows: _Rows, turn: int) -> None:
    """A transaction that begins in the first round, and is aborted for its producer in the second."""
    plain = plan.producer(f"{topic}-plain")
    for number in range(10):
        plan.batch(plain, topic, rows.take(f"plain-{turn}-{number}", 4))
        if turn == 1 and number == 6:
            name = plan.transactional(topic)
            plan.do("begin", name)
            plan.batch(name, topic, rows.take("open", 3))
        if turn == 2 and number == 6:
            plan.transactional(topic)
    _write_end(plan, plain, topic, rows)


def _write_append_time(plan: Plan, topic: str, rows: _Rows, turn: int) -> None:
    for codec in ("none", "zstd"):
        plan.producer(f"{topic}-{codec}", compression_type=codec, enable_idempotence="false")
    for number in range(12):
        name = f"{topic}-{('none', 'zstd')[number % 2]}"
        plan.batch(name, topic, rows.take(f"{turn}-{number}", 5))
    _write_end(plan, f"{topic}-none", topic, rows)


def _write_end(plan: Plan, name: str, topic: str, rows: _Rows) -> None:
    """More than a segment, so that everything before lies in sealed ones."""
    for number in range(2):
        value = NewRecord(b"end-%d" % number, b"e" * 600, timestamp_ms=rows.time_ms)
        plan.batch(name, topic, [value])


Write = Callable[[Plan, str, _Rows, int], None]

TOPICS: Final[Mapping[str, tuple[Write, Mapping[str, object]]]] = {
    "codecs-long": (_write_codecs, {"delete.retention.ms": LONG_MS}),
    "codecs-short": (_write_codecs, {"delete.retention.ms": SHORT_MS}),
    "producers": (_write_producers, {"delete.retention.ms": SHORT_MS}),
    "transactions-long": (_write_transactions, {"delete.retention.ms": LONG_MS}),
    "transactions-short": (_write_transactions, {"delete.retention.ms": SHORT_MS}),
    "open": (_write_open, {"delete.retention.ms": LONG_MS}),
    "append-time": (
        _write_append_time,
        {"delete.retention.ms": SHORT_MS, "message.timestamp.type": "LogAppendTime"},
    ),
}


ROUNDS: Final[Mapping[int, Sequence[str]]] = {
    1: tuple(TOPICS),
    2: tuple(TOPICS),
    3: ("transactions-long", "transactions-short"),
}
"""The topics of each round."""


# --- the rounds -----------------------------------------------------------------------------------


def run_rounds(home: Path, target: Path, *, seed: int) -> None:
    """Write the topics, let the cleaner of a broker in `home` go over them, and fill `target`."""
    configs = {topic: {**CLEANABLE, **config} for topic, (_, config) in TOPICS.items()}
    with KafkaBroker(home, config={"log.cleaner.backoff.ms": 50}, version=OLD) as broker:
        broker.create_topics(dict.fromkeys(configs, 1), configs)
        for turn, topics in ROUNDS.items():
            rows = _Rows(random.Random(seed * 10 + turn), int(time.time() * 1000))
            plan = Plan()
            for topic in topics:
                TOPICS[topic][0](plan, topic, rows, turn)
            plan.run(broker.bootstrap)
            clean(broker, {topic: configs[topic] for topic in topics}, target / str(turn))


def clean(broker: KafkaBroker, configs: Mapping[str, Mapping[str, object]], target: Path) -> None:
    """One round of the cleaner over each of these topics, of one partition each and not compacted so far,
    with their settings; fills `target`."""
    checkpoint = broker.log_dir / CLEANER_OFFSETS_FILE
    before = read_checkpoint(checkpoint)
    story: dict[str, dict[str, object]] = {}
    for topic, config in configs.items():
        directory = broker.partition_dir(topic)
        _, log_end_offset = clients.offset_range(broker.bootstrap, topic)
        _, stable = clients.offset_range(broker.bootstrap, topic, isolation="read_committed")
        bases = [int(path.stem) for path in directory.glob("*.log")]
        story[topic] = {
            "config": dict(config),
            "now_ms": int(time.time() * 1000),
            "log_end_offset": log_end_offset,
            "offset_before": before.get((topic, 0)),
            # It cleans whole segments: neither the active one nor the one with the last stable offset.
            "offset_after": max(before.get((topic, 0), 0), *(base for base in bases if base <= stable)),
        }
        _copy(directory, target / "before" / directory.name, _KEPT_BEFORE)
    ends = {(topic, 0): told["offset_after"] for topic, told in story.items()}
    clients.alter_topics(broker.bootstrap, list(configs), {"cleanup.policy": "compact"})
    wait_for(
        lambda: ends.items() <= read_checkpoint(checkpoint).items(), "the cleaner to finish", timeout_s=60
    )
    clients.alter_topics(broker.bootstrap, list(configs), {"cleanup.policy": "delete"})
    for topic in configs:
        directory = broker.partition_dir(topic)
        _copy(directory, target / "after" / directory.name, _KEPT_AFTER)
    stored = {"kafka_version": OLD, "topics": story}
    (target / ROUND_FILE).write_text(json.dumps(stored, indent=1) + "\n")


def _copy(source: Path, target: Path, suffixes: tuple[str, ...]) -> None:
    """Copy the segments' files but those without a byte; of a broker that runs, but writes nothing to them.

    Of the snapshots the last one does: the ones before are for a log that is cut."""
    target.mkdir(parents=True)
    snapshots = sorted(source.glob("*.snapshot"))
    for path in source.iterdir():
        says_something = path.stat().st_size and path not in snapshots[:-1]
        if path.suffix in suffixes and (says_something or path.suffix == ".log"):
            shutil.copyfile(path, target / path.name)
    if ".snapshot" in suffixes:
        shutil.copyfile(source / "leader-epoch-checkpoint", target / "leader-epoch-checkpoint")


# --- what was kept of them ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CleanerRound:
    """One topic in one round."""

    topic: str
    before: Path
    after: Path
    config: Mapping[str, object]
    now_ms: int
    """Before the round began."""
    log_end_offset: int
    offset_before: int | None
    offset_after: int

    @property
    def delete_retention_ms(self) -> int:
        return int(str(self.config["delete.retention.ms"]))


def load_round(folder: Path) -> dict[str, CleanerRound]:
    """By topic."""
    stored = json.loads((folder / ROUND_FILE).read_text())
    return {
        topic: CleanerRound(
            topic=topic,
            before=folder / "before" / f"{topic}-0",
            after=folder / "after" / f"{topic}-0",
            **told,
        )
        for topic, told in stored["topics"].items()
    }


def load_rounds(folder: Path) -> dict[tuple[str, int], CleanerRound]:
    """By topic and round."""
    rounds = {turn: load_round(folder / str(turn)) for turn in ROUNDS}
    return {(topic, turn): rounds[turn][topic] for turn, topics in ROUNDS.items() for topic in topics}
