"""Sessions of all operations on a partition: a scenario of the crash explorer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from threading import Event, Thread, current_thread
from typing import Any

from logstore.config import StoreConfig, TopicConfig
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.operations import FlushFile, Operation, Write
from tests.crash.history import Appending, Durable, Found, History, next_value
from tests.crash.scenario import RandomScenario
from tests.crash.writer import Writer, check_lookups, check_producers, found_in

PATH = "/t-0"
CONFIG = TopicConfig(segment_bytes=1_500, index_interval_bytes=100, retention_ms=-1)
STORE_CONFIG = StoreConfig(linger_ms=0)


def open_partition(files: Any, **options: Any) -> Log:
    options = {"config": CONFIG, "clock": ManualClock()} | options
    return Log.open(PATH, store_config=STORE_CONFIG, files=files, **options)


def abandon(log: Log) -> None:
    """Release a log as the death of the process would."""
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()


class Session(Writer):
    """A partition that is open on a disk, alone."""

    def __init__(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        self.files = files
        clock = ManualClock()
        log = open_partition(files, clock=clock)
        super().__init__(log, files.note, rng, clock, 1_000 * len(said))

    def reopen(self) -> None:
        """Stop cleanly, and open again."""
        self.log.close()
        self.say(Durable(self.end))
        self.log = open_partition(self.files, clock=self.clock)
        self.begin()

    def remove_deleted(self) -> None:
        """Advance the time until deleted files are removed."""
        self.clock.advance(120_000)
        self.log._context.scheduler.run_due()

    def append_from_two_threads(self) -> None:
        """A second thread appends and flushes while the first thread's flush is running."""
        (first,) = self.values(1, 20)
        self.number += 1
        second = self._last = next_value(self.number, first, 20)
        has_noted, has_written = Event(), Event()

        def append_second() -> None:
            self.say(Appending(self.end + 1, (second,)))
            self.log.extend([(None, second)], flush=True)

        thread = Thread(target=append_second)

        def is_group_commit(operation: Operation) -> bool:
            """Whether others wait for the flush; not that of a roll, during which no thread can append."""
            return isinstance(operation, FlushFile) and not self.log.writer.guard.lock._is_owned()  # type: ignore[attr-defined]

        def before(operation: Operation) -> None:
            if current_thread() is thread:
                if isinstance(operation, Write) and operation.path.endswith(".log"):
                    has_written.set()
                if is_group_commit(operation):
                    assert has_noted.wait(10)
            elif is_group_commit(operation) and thread.ident is None:
                thread.start()
                assert has_written.wait(10)

        self.files.before = before
        self.log.extend([(None, first)], flush=True)
        if thread.ident is None:  # an append that rolls does not flush its own records
            self.files.before = None
        self.say(Durable(self.end + 1))
        has_noted.set()
        if thread.ident is None:
            append_second()
        else:
            thread.join()
        self.files.before = None
        self.say(Durable(self.end + 2))
        self.appended(1)
        self.appended(1)


ACTIONS: dict[str, tuple[int, Callable[[Session], None]]] = {
    "append": (6, lambda s: s.append(s.rng.randint(1, 3), size_bytes=s.rng.choice((5, 50, 700)))),
    "append and flush": (4, lambda s: s.append(s.rng.randint(1, 3), flush=True)),
    "append as producer": (3, Session.append_as_producer),
    "append from two threads": (1, Session.append_from_two_threads),
    "flush": (2, Session.flush),
    "roll": (2, Session.roll),
    "checkpoint": (1, Session.checkpoint),
    "delete before": (1, Session.delete_before),
    "truncate": (1, Session.truncate),
    "remove deleted": (1, Session.remove_deleted),
    "new epoch": (1, Session.new_epoch),
    "erase": (1, Session.erase),
    "reopen": (1, Session.reopen),
}


def check_erased(files: MemoryFiles, history: History) -> None:
    """Check that no file contains a record that was erased for good."""
    for path, data in files.now().paths().items():
        for value in history.erased:
            whole = rb"(?<![0-9])" + re.escape(value)  # not the end of a larger number
            assert not re.search(whole, data), f"ERASED: {value[:30]!r} is still in {path}"


class PartitionScenario(RandomScenario):
    """Sessions of one partition."""

    table = ACTIONS

    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> Session:
        return Session(files, said, rng)

    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        history = History(said)
        check_erased(files, history)
        log = open_partition(files)
        found = found_in(log)
        history.check(found)
        assert log.durable_offset >= history.durable
        report = log.verify()
        assert report, str(report)
        check_lookups(log, found)
        appended = (*check_producers(log), b"more")
        log.extend([(None, b"more")], flush=True)
        abandon(log)
        again = open_partition(MemoryFiles(files.now()))
        cut_bytes = again.recovery.cut_bytes
        assert cut_bytes == 0, f"a second recovery cut {cut_bytes} bytes more"
        expected = Found(found.start, (*found.values, *appended))
        assert found_in(again) == expected, "the second open found another log"
