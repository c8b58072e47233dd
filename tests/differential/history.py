"""A history of one log, made from a seed, with the model that follows it.

Everything that changes a log happens: appends of all kinds, transactions of several producers that overlap,
rolls, flushes, compaction, deletion from both ends, retention, and restarts, clean or killed. ``checks.py``
looks at the log between the steps.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.model import Isolation, NewRecord, ProducerIdentity, Record, Role, TimestampType
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.testing import ManualClock
from tests.differential.model import Model
from tests.logdir.helpers import QuickFiles

KEYS = [b"a", b"b", b"c", b"d", b"e", b"long key " * 5, None]
CODECS = ["producer", "producer", "zstd", "lz4", "gzip", "snappy"]
PRODUCERS = 4


class History:
    """One store with one log."""

    def __init__(self, seed: int, path: Path, *, manages_high_watermark: bool = False) -> None:
        self.chance = random.Random(seed)
        self._source_chance = random.Random(-seed - 1)
        """For what came later, so that what a seed found before is found again."""
        self.clock = ManualClock()
        self.model = Model()
        self.path = path
        self.manages_high_watermark = manages_high_watermark
        chance = self.chance
        self.topic_config = TopicConfig(
            cleanup_policy="compact" if chance.random() < 0.5 else "delete",
            compression_type=chance.choice(CODECS),
            segment_bytes=chance.choice([700, 2000, 10**6]),
            index_interval_bytes=chance.choice([0, 150, 4096]),
            file_delete_delay_ms=0,
            retention_ms=60_000 if chance.random() < 0.5 else -1,
            delete_retention_ms=chance.choice([0, 10**9]),
            min_cleanable_dirty_ratio=0.01,
            message_timestamp_type="LogAppendTime" if self._source_chance.random() < 0.3 else "CreateTime",
        )
        self.store_config = StoreConfig(
            linger_ms=chance.choice([0, 5]),
            batch_bytes=chance.choice([300, 10**5]),
            batch_cache_bytes=chance.choice([0, 10**6]),
        )
        self._keys = KEYS if self.topic_config.cleanup_policy == "delete" else KEYS[:-1]
        self._numbers = iter(range(10**9))
        self._producers: dict[int, int] = {}
        """Sequence of those that append."""
        self._open()
        self.log_is_new = True
        if manages_high_watermark:
            self.model.high_watermark = self.log.high_watermark
        self.watcher_store: Any = None

    def _open(self) -> None:
        self.store = logstore.open(
            str(self.path), clock=self.clock, files=QuickFiles(), config=self.store_config
        )
        self.log: Log = self.store.require_topic("t", config=self.topic_config)[0]
        if self.manages_high_watermark:
            self.log.set_role(Role.FOLLOWER)

    def close(self) -> None:
        if self.watcher_store is not None:
            self.watcher_store.close()
        self.store.close()

    @property
    def watcher(self) -> ReadOnlyLog:
        """Opened once, and used from then on."""
        if self.watcher_store is None:
            self.watcher_store = logstore.open(str(self.path), read_only=True)
        log = self.watcher_store["t"][0]
        assert isinstance(log, ReadOnlyLog)
        return log

    # Steps

    def step(self) -> str:
        """Change something; returns what."""
        names, weights = zip(*STEPS.items(), strict=True)
        (name,) = self.chance.choices(names, weights)
        getattr(self, f"_{name}")()
        assert self.log.log_end_offset == self.model.end, name
        self.log.writer.gathering.drain()  # for readers elsewhere
        if self.manages_high_watermark:
            self._move_high_watermark()
        elif self._source_chance.random() < 0.1:
            self.log.assign_leader_epoch(self.log.leader_epoch + self._source_chance.choice([1, 1, 5]))
        return str(name)

    def _new_records(self, most: int) -> list[NewRecord]:
        chance = self.chance
        return [
            NewRecord(
                None
                if chance.random() < 0.1
                else b"%d" % next(self._numbers) + b"." * chance.choice([0, 5, 80]),
                key=chance.choice(self._keys),
                headers=[("h", b"%d" % chance.randrange(3)), ("n", None)][: chance.randrange(3)],
                timestamp_ms=self.clock.now_ms() - chance.choice([0, 0, 5, 700]),
            )
            for _ in range(chance.randint(1, most))
        ]

    def _note(self, news: list[NewRecord], offsets: range, producer: int | None = None) -> None:
        is_append_time = self.topic_config.message_timestamp_type == "LogAppendTime"
        for new, offset in zip(news, offsets, strict=True):
            assert new.timestamp_ms is not None
            record = Record(
                offset,
                self.clock.now_ms() if is_append_time else new.timestamp_ms,
                new.key,
                new.value,
                tuple(new.headers),
                topic="t",
                partition=0,
                timestamp_type=TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME,
                leader_epoch=self.log.leader_epoch,
            )
            self.model.add(record, producer)

    def _append(self) -> None:
        (new,) = self._new_records(1)
        offset = self.log.append(new.value, key=new.key, headers=new.headers, timestamp_ms=new.timestamp_ms)
        self._note([new], range(offset, offset + 1))

    def _extend(self) -> None:
        news = self._new_records(8)
        self._note(news, self.log.extend(news))

    def _transact(self) -> None:
        producer = self.chance.randrange(PRODUCERS) + 1 + self._generation * 10
        sequence = self._producers.get(producer, 0)
        news = self._new_records(3)
        offsets = self.log.extend(news, producer=ProducerIdentity(producer, 0, sequence, True))
        self._producers[producer] = sequence + len(news)
        self._note(news, offsets, producer)

    _generation = 0

    def _end_transaction(self) -> None:
        open_now = sorted(self.model.open_since)
        if not open_now:
            return
        producer, is_commit = self.chance.choice(open_now), self.chance.random() < 0.4
        marker = self.log.append_end_marker(producer, 0, committed=is_commit).base_offset
        self.model.mark(marker, producer, is_commit=is_commit)

    def _roll(self) -> None:
        self.log.roll()

    def _flush(self) -> None:
        self.log.flush()

    def _let_time_pass(self) -> None:
        self.clock.advance(self.chance.choice([1, 10, 1500, 50_000]))
        self._run_background()

    def _run_background(self) -> None:
        self.log._context.scheduler.run_due()
        self._follow_retention()
        if self.topic_config.cleanup_policy == "compact":  # which the background does, too
            self._learn_compacted()

    def _follow_retention(self) -> None:
        start = self.log.log_start_offset
        assert start >= self.model.start
        if start > self.model.start and self.topic_config.cleanup_policy == "compact":
            gone = self.model.records(self.model.start, start)
            assert not gone, f"compacted records went: {gone}"
        self.model.start = start

    def _retain(self) -> None:
        self.log.enforce_retention()
        self._follow_retention()

    def _compact(self) -> None:
        if self.topic_config.cleanup_policy == "compact":
            self.log.compact(now=True)
            self._learn_compacted()

    def _learn_compacted(self) -> None:
        there = list(self.log.read(isolation=Isolation.LOG_END))
        self.model.compact(there)
        self._compacted_to = self.model.end

    _compacted_to = 0
    """Where the log ended: a marker far above what was cleaned has told that it may be."""

    def _delete_before(self) -> None:
        if self.topic_config.cleanup_policy == "delete":
            most = self.model.limit(Isolation.HIGH_WATERMARK)
            offset = self.chance.randint(self.model.start, min(most, self.model.start + 15))
            self.log.delete_before(offset)
            self.model.start = offset

    def _truncate(self) -> None:
        """Never into what was compacted: what was decided there is not undecided again."""
        lowest = max(self.model.end - 10, self.model.start, self._compacted_to)
        end = self.chance.randint(min(lowest, self.model.end), self.model.end)
        if self.log.truncate_to(end):
            there = {record.offset for record in self.log.read(isolation=Isolation.LOG_END)}
            self.model.cut(end, there)
            self._generation += 1  # sequences that were cut off are taken by nobody
            self._producers.clear()

    def _restart(self) -> None:
        self.store.close()
        self._reopen()

    def _kill(self) -> None:
        self.store._directory.abandon()
        self._reopen()

    def _reopen(self) -> None:
        self._open()
        if self.manages_high_watermark:
            self.model.high_watermark = self.log.high_watermark

    def _move_high_watermark(self) -> None:
        if self.chance.random() < 0.5:
            self.log.update_high_watermark(self.chance.randint(self.model.start, self.model.end))
        self.model.high_watermark = self.log.high_watermark

    # Damage

    def flip(self, is_in_active: bool) -> Flip | None:
        """Change one bit of a batch of some segment; None if there is none."""
        segments = self.log.writer.core.view.segments
        chosen = segments if is_in_active else segments[:-1]
        paths = [path for path in (Path(each.path) for each in chosen) if path.stat().st_size]
        if not paths:
            return None
        path = self.chance.choice(paths)
        return Flip(path, self.chance.randrange(path.stat().st_size), 1 << self.chance.randrange(8))


class Flip:
    """One bit of a file changed; and back again at the end."""

    def __init__(self, path: Path, position: int, mask: int) -> None:
        self.path = path
        self.position = position
        self._mask = mask

    def __enter__(self) -> Flip:
        self._change()
        return self

    def __exit__(self, *error: object) -> None:
        self._change()

    def _change(self) -> None:
        """As a disk does it: the file's times say nothing."""
        status = self.path.stat()
        with self.path.open("r+b") as file:
            file.seek(self.position)
            (byte,) = file.read(1)
            file.seek(self.position)
            file.write(bytes([byte ^ self._mask]))
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))


STEPS = {
    "append": 4,
    "extend": 5,
    "transact": 10,
    "end_transaction": 6,
    "roll": 2,
    "flush": 1,
    "let_time_pass": 2,
    "retain": 1,
    "compact": 2,
    "delete_before": 1,
    "truncate": 1,
    "restart": 1,
    "kill": 1,
}
"""What may happen, and how often."""
