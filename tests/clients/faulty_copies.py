"""A topic that is copied exactly once, on a disk that fails at random: by processes one after the other, each
of which gives up at the first error that reaches it, or reopens what must be reopened."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Any

import logstore
from logstore.clock import SystemClock
from logstore.errors import FencedError, LogstoreError, RetriableError, StorageError
from logstore.format.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logstore.store import Store
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.clients.copying import SOURCE, TARGET, Copied, Settings, check, copy, end_what_is_open, fill

RECORDS = 100
LIVES = 10
PATIENCE = 200


class World:
    """One store. All is drawn from the seed; the threads of a transform take turns as they like."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.files = FaultyFiles(MemoryFiles())
        settings = Settings.draw(self.chance)
        self.settings = settings._replace(max_poll_records=self.chance.choice((1, 5)), patience_ms=100)
        self.clock = SystemClock() if settings.workers else ManualClock()
        self.store = self._open()
        fill(self.store, RECORDS)
        self.error_count = 0
        """How many copies the disk has stopped."""
        self.copied = Copied(0, False, 0)

    def _open(self) -> Store:
        return logstore.open("/store", files=self.files, clock=self.clock, config=self.settings.store)

    def live(self) -> None:
        """Copy, while some operations of the disk fail; then look at what is there."""
        self.files.fail(
            FAULTS[self.chance.choice(list(FAULTS))],
            at=self.chance.randint(1, 30),
            times=self.chance.choice((1, 1, 3)),
            path=self.chance.choice(("", SOURCE, TARGET, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)),
        )
        try:
            copy(self.store, self.settings)
        except (StorageError, RetriableError, FencedError):
            self.error_count += 1
        self.files.heal()
        self.go_on()
        copied = check(self.store)
        assert copied.count >= self.copied.count, (copied, self.copied)
        self.copied = copied

    def go_on(self) -> None:
        """The disk works again."""
        if self.chance.random() < 0.5:
            self._reopen_store()
        else:
            try:
                self._reopen_logs()
                self._end_what_is_open()
                return
            except (LogstoreError, AssertionError):  # this process cannot: the next one must
                self._reopen_store()
        self._end_what_is_open()

    def _reopen_store(self) -> None:
        with contextlib.suppress(LogstoreError):
            if self.chance.random() < 0.5:
                self.store.close()
        self.store._directory.abandon()  # type: ignore[union-attr]
        self.store = self._open()

    def _reopen_logs(self) -> None:
        for name, topic in self.store.items():
            for number in topic.held_partitions:
                if (name, number) in self.store.damaged or topic[number].needs_reopen:
                    topic.reopen(number)

    def _end_what_is_open(self) -> None:
        error: Any = None
        for _ in range(PATIENCE):
            try:
                end_what_is_open(self.store, self.settings)
                return
            except (StorageError, RetriableError) as caught:  # what failed is tried again
                error = caught
                if isinstance(self.clock, ManualClock):
                    self.clock.advance(1_000)
                    self.store.run_background()
                else:
                    time.sleep(0.05)
        raise AssertionError("what is open does not end") from error

    def end(self) -> None:
        """Without failures everything gets copied."""
        copy(self.store, self.settings._replace(patience_ms=None))
        self.copied = check(self.store)
        assert self.copied.is_done, self.copied
        self.store.close()


def run(seed: int) -> World:
    """A whole history."""
    world = World(seed)
    for _ in range(LIVES):
        if not world.copied.is_done:
            world.live()
    world.end()
    return world
