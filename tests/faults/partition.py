"""Operations on a partition while its disk fails, and what must hold afterwards.

A :class:`Workload` is one action on a partition with a past. :func:`run` does it once while an operation
fails, and continues as a program would: it reads, writes on if the log allows it, otherwise reopens the log,
and dies at some point of all this. At each step the log must agree with its history, and so must the states
of power cuts after the failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ReopenRequiredError, StorageError
from logstore.format.batch import encode_batch
from logstore.partition.log import Log
from logstore.testing import FAULTS, Fault, FaultyFiles, Image, ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import Note
from tests.crash.history import (
    FIRST,
    Deleted,
    Deleting,
    Durable,
    History,
    Refused,
    Truncated,
    Truncating,
)
from tests.crash.partition import PATH, PartitionScenario, abandon
from tests.crash.writer import Writer, check_lookups, found_in
from tests.faults.interrupt import Interrupter, Place
from tests.partition.helpers_rules import write_placed

CONFIG = TopicConfig(segment_bytes=1_500, index_interval_bytes=100, retention_ms=-1)
STORE_CONFIG = StoreConfig(linger_ms=0)
LINGERING = StoreConfig(linger_ms=5)


class Disk(FaultyFiles):
    """A disk in memory that can fail, and its history."""

    def __init__(self, past: Past) -> None:
        self.memory = MemoryFiles(past.image)
        self.said_before = past.said
        super().__init__(self.memory)

    def note(self, said: Any) -> None:
        self.memory.note(said)

    def said(self, number: int | None = None) -> list[Any]:
        """All notes so far; with ``number``, those up to and right after the operation of this number."""
        trace = self.memory.trace
        end = len(trace)
        if number is not None:
            end = next((n for n in range(number + 1, end) if not isinstance(trace[n], Note)), end)
        return [*self.said_before, *(entry.said for entry in trace[:end] if isinstance(entry, Note))]

    def history(self) -> History:
        return History(self.said())


class Past(NamedTuple):
    """A disk, and the notes of its writers."""

    image: Image = Image()
    said: tuple[Any, ...] = ()


class Session(Writer):
    """A partition on a disk that may fail."""

    def __init__(self, disk: Disk, rng: random.Random, store_config: StoreConfig = STORE_CONFIG) -> None:
        self.disk = disk
        self._store_config = store_config
        self.is_open = True
        clock = ManualClock()
        self.clock = clock
        super().__init__(self._open(), disk.note, rng, clock, 1_000 * len(disk.said_before))

    def _open(self) -> Log:
        return Log.open(
            PATH, config=CONFIG, store_config=self._store_config, files=self.disk, clock=self.clock
        )

    def let_go(self) -> None:
        """Release the log as the death of the process would."""
        self.is_open = False
        abandon(self.log)

    def open_again(self) -> None:
        self.log = self._open()
        self.is_open = True
        self.begin()

    def close(self) -> None:
        self.is_open = False
        self.log.close()
        self.say(Durable(self.end))

    # Actions besides those of every writer

    def append_much(self) -> None:
        """Append more than a segment at once."""
        self.append(40, size_bytes=60)

    def append_singly(self) -> None:
        """Append records that gather until the linger time is over."""
        for _ in range(3):
            (value,) = self.values(1, 20)
            assert self.log.append(value) == self.end
            self.appended(1)
        self.let_time_pass(5)

    def append_replicated(self) -> None:
        """Append a copy of a leader's batch."""
        batch = encode_batch(
            [None] * 2,
            self.values(2, 20),
            self.clock.now_ms(),
            base_offset=self.end,
            partition_leader_epoch=7,
        )
        assert self.log.append_replicated(bytes(batch)) is not None
        self.appended(2)

    def adopt_file(self) -> None:
        """Adopt a file that another process wrote."""
        values, now_ms = self.values(6, 20), self.clock.now_ms()
        batches = [encode_batch([None] * 2, values[n : n + 2], now_ms) for n in (0, 2, 4)]
        path = self.disk.memory.absolute(f"{PATH}/../file-{self.number}")  # never again the same
        places = {"producer": self.number, "base_offset": self.end, "leader_epoch": self.log.leader_epoch}
        write_placed(path, *batches, files=self.disk.memory, **places)
        offsets = self.log.adopt_file(path)
        assert offsets == range(self.end, self.end + 6)
        self.appended(6)

    def let_time_pass(self, ms: int) -> None:
        self.clock.advance(ms)
        self.log._context.scheduler.run_due()
        self.say_durable()

    def start_over(self) -> None:
        floor = self.log.log_start_offset
        offset = self.end + 10
        self.say(Truncating(0))
        self.say(Deleting(offset))
        self.log.truncate_fully_and_start_at(offset)
        self.end = offset
        self.say(Truncated(floor))
        self.say(Deleted(offset))
        self.say(Truncated(offset))
        self._last = FIRST
        self._borders = [offset]
        self._sequences.clear()

    def delete_some(self) -> None:
        offset = self.end - 2
        self.say(Deleting(offset))
        self.say(Deleted(self.log.delete_before(offset)))

    def retain(self) -> None:
        self.log.reconfigure(replace(CONFIG, retention_bytes=1_000))
        self.say(Deleting(self.end))
        self.log.enforce_retention()
        self.say(Deleted(self.log.log_start_offset))

    def truncate_to(self, offset: int) -> None:
        self._borders = [offset]
        self.truncate()

    def read_everywhere(self) -> None:
        found = found_in(self.log)
        check_lookups(self.log, found)
        self.log.find_timestamp(self.clock.now_ms())

    def recover(self, tail: bytes = b"") -> None:
        """Let the process die, and open the log in the next one."""
        self.let_go()
        if tail:
            log = self.disk.memory.open(self.log.writer.core.active.path)
            log.write_at(log.size_bytes(), [tail])
        self.open_again()

    def stop_and_start(self) -> None:
        self.close()
        self.open_again()


def settle(writer: Writer, history: Callable[[], History]) -> None:
    """After a failure: check that the log is in an allowed state, and note that state."""
    log = writer.log
    check_locks(log)
    if log.writer.gathering.rows.row_count and not log.needs_reopen:
        log.flush()  # writes what was gathered, and keeps its offsets
    found = found_in(log)
    history().check(found)
    assert log.durable_offset <= found.end
    writer.say(Refused(found.end))
    writer.say(Durable(log.durable_offset))
    writer.end = found.end
    writer._last = found.values[-1] if found.values else FIRST
    writer._borders = [border for border in writer._borders if border <= found.end] or [found.end]
    writer._sequences.clear()
    check_lookups(log, found)


def check_locks(log: Log) -> None:
    """Check that no lock is held."""
    assert not log.writer.guard.lock._is_owned(), "the log's lock is held"  # type: ignore[attr-defined]
    assert not log.writer.durability.commit._is_in_lock()
    assert not log.writer.durability.commit._is_flushing, "nobody can flush any more"
    lock = log._context.home._lock
    assert not log._context.home.is_used_here()
    assert lock.acquire(blocking=False)
    lock.release()


class Workload(NamedTuple):
    """Something to do to a log that has a few unflushed records."""

    act: Callable[[Session], object]
    store_config: StoreConfig = STORE_CONFIG
    prepare: Callable[[Session], object] = lambda session: None


WORKLOADS = {
    "append": Workload(lambda s: s.append(3)),
    "append and flush": Workload(lambda s: s.append(2, flush=True)),
    "append as producer": Workload(Session.append_as_producer),
    "append much": Workload(Session.append_much),
    "append singly": Workload(Session.append_singly, LINGERING),
    "append replicated": Workload(Session.append_replicated),
    "adopt file": Workload(Session.adopt_file),
    "adopt file for empty": Workload(Session.adopt_file, prepare=Session.roll),
    "flush": Workload(Session.flush),
    "flush sealed": Workload(Session.flush, prepare=Session.roll),
    "flush in background": Workload(lambda s: s.let_time_pass(1_000)),
    "roll": Workload(Session.roll),
    "checkpoint": Workload(Session.checkpoint),
    "checkpoint in background": Workload(lambda s: s.let_time_pass(60_000)),
    "delete before": Workload(Session.delete_some),
    "retention": Workload(Session.retain),
    "remove deleted": Workload(lambda s: s.let_time_pass(120_000), prepare=Session.delete_some),
    "truncate active": Workload(lambda s: s.truncate_to(s._borders[-2])),
    "truncate sealed": Workload(lambda s: s.truncate_to(3)),
    "start over": Workload(Session.start_over),
    "erase": Workload(Session.erase),
    "erase sealed": Workload(Session.erase, prepare=Session.roll),
    "new epoch": Workload(Session.new_epoch),
    "read": Workload(Session.read_everywhere),
    "close": Workload(Session.close),
    "stop and start": Workload(Session.stop_and_start),
    "recover": Workload(Session.recover),
    "recover torn": Workload(lambda s: s.recover(b"torn" * 20)),
    "recover rolled": Workload(Session.recover, prepare=Session.roll),
}


def make_past() -> Past:
    """A partition of some segments, cleanly closed, with a producer and epochs."""
    memory = Disk(Past())
    session = Session(memory, random.Random(1))
    session.append(3, size_bytes=200)
    session.append(3, size_bytes=200)
    session.append_as_producer()
    session.new_epoch()
    session.append(4, size_bytes=300)
    session.roll()
    session.append(2)
    session.close()
    assert len(session.log.writer.core.segments) >= 3
    return Past(memory.memory.now(), tuple(memory.said()))


class Outcome(NamedTuple):
    """The result of a run."""

    failed: bool
    """An operation failed: there is one of this number."""
    state_count: int
    """How many power cuts were checked."""


def run(
    past: Past,
    workload: Workload,
    fault: Fault,
    at: int,
    *,
    times: int | None = 1,
    max_states: int = 2,
    seed: int = 0,
) -> Outcome:
    """Do it while operation number ``at`` fails, and the ``times`` - 1 after it."""
    rng = random.Random(f"{seed}/{at}/{times}")
    disk, session = begin(past, workload, rng)
    disk.fail(fault, at=at, times=times)
    point = len(disk.memory.trace)
    try:
        workload.act(session)
    except StorageError as error:
        check_error(error, fault, disk)
    if times is None and session.is_open and not fault.kinds & {"read", "open", "stat"}:
        found_in(session.log)
    disk.heal()
    if disk.failures:
        go_on(session, workload, rng)
    return Outcome(bool(disk.failures), cut_power(past, disk, point, rng, max_states))


def begin(past: Past, workload: Workload, rng: random.Random) -> tuple[Disk, Session]:
    """A log with a few unflushed records."""
    disk = Disk(past)
    session = Session(disk, rng, workload.store_config)
    session.append(1, flush=True)
    session.append(2)
    session.append_as_producer()
    workload.prepare(session)
    return disk, session


def count_lines(past: Past, workload: Workload) -> list[Place]:
    """The lines of the storage modules that a workload runs through."""
    _, session = begin(past, workload, random.Random(0))
    interrupter = Interrupter(MemoryError)
    interrupter(lambda: workload.act(session))
    return interrupter.places


def interrupt(
    past: Past,
    workload: Workload,
    error: type[BaseException],
    at: int,
    *,
    max_states: int = 1,
    seed: int = 0,
) -> Outcome:
    """Do it while line number ``at`` raises ``error``."""
    rng = random.Random(f"{seed}/{at}/{error.__name__}")
    disk, session = begin(past, workload, random.Random(0))  # the lines that were counted
    point = len(disk.memory.trace)
    interrupter = Interrupter(error, at)
    with suppress(error):
        interrupter(lambda: workload.act(session))
    if interrupter.has_struck:
        go_on(session, workload, rng)
    return Outcome(interrupter.has_struck, cut_power(past, disk, point, rng, max_states))


def check_error(error: StorageError, fault: Fault, disk: Disk) -> None:
    """Check that the error names the operation, the file and the reason; or says that the log must be
    reopened."""
    assert disk.failures, f"nothing failed, but: {error}"
    assert error.filename, f"{error!r} names no path"
    if isinstance(error, ReopenRequiredError):
        assert "must be reopened" in str(error) or "open it again" in str(error)
        return
    assert error.errno == fault.errno
    assert any(path == error.filename for _, path in disk.failures), f"{error!r} for {disk.failures}"


def go_on(session: Session, workload: Workload, rng: random.Random) -> None:
    """Continue as the program would, now that the cause is gone."""
    if session.is_open and not session.log.is_closed:
        settle(session, session.disk.history)
        if session.log.needs_reopen:
            check_refuses(session.log)
        else:
            write_on(session)
            if rng.random() < 0.5:
                workload.act(session)
        if rng.random() < 0.5 and session.is_open:
            with suppress(*([ReopenRequiredError] if session.log.needs_reopen else [])):
                session.close()
        elif session.is_open:
            session.let_go()
    elif not session.is_open:
        with suppress(StorageError):
            session.log.close()  # again, or the rest of it: now the directory must be free
    if not session.is_open:
        open_in_trouble(session, rng)
    check_opened(session)
    write_on(session)
    report = session.log.verify()
    assert report, report


def open_in_trouble(session: Session, rng: random.Random) -> None:
    """Open the log, sometimes with another failure on the way, and then once more."""
    if rng.random() < 0.3:
        session.disk.fail(FAULTS["EIO"], at=rng.randint(1, 100))
        with suppress(StorageError):
            session.open_again()
        session.disk.heal()
    if session.is_open:
        session.begin()
    else:
        session.open_again()


def check_refuses(log: Log) -> None:
    """Check that a log that must be reopened accepts nothing, promises nothing, and can be read."""
    durable_offset, found = log.durable_offset, found_in(log)
    for change in (
        lambda: log.extend([b"refused"]),
        lambda: log.append(b"refused"),
        lambda: log.truncate_to(0),
        log.flush,
        log.checkpoint,
    ):
        with pytest.raises(ReopenRequiredError, match="must be reopened"):
            change()
    assert log.durable_offset == durable_offset
    assert found_in(log) == found
    check_lookups(log, found)


def check_opened(session: Session) -> None:
    found = found_in(session.log)
    session.disk.history().check(found)
    check_lookups(session.log, found)


def write_on(session: Session) -> None:
    session.append(2)
    session.append_as_producer()
    session.append(1, flush=True)
    assert session.log.durable_offset == session.end
    session.disk.history().check(found_in(session.log))


Check = Callable[[MemoryFiles, Sequence[Any]], None]
check_partition: Check = PartitionScenario().check


def cut_power(
    past: Past,
    disk: Disk,
    point: int,
    rng: random.Random,
    max_states: int,
    check: Check = check_partition,
) -> int:
    """Check what a kill leaves at the end, and some states of power cuts after ``point`` of the trace;
    returns how many."""
    trace = disk.memory.trace
    check(MemoryFiles(disk.memory.now()), disk.said())
    ends = [number for number in range(point, len(trace)) if not isinstance(trace[number], Note)]
    chosen = {rng.choice(ends) for _ in range(max_states)} if ends else set()
    if rng.random() < 0.5:
        chosen |= set(ends[-1:])  # most has been promised there
    states = CrashStates(past.image, rng.randrange(1 << 30))
    for number, entry in enumerate(trace):
        if isinstance(entry, Note):
            continue
        states.follow(entry)
        if number not in chosen:
            continue
        choices = random_choices(states, rng)
        try:
            check(MemoryFiles(states.image(choices)), disk.said(number))
        except Exception as error:
            if is_unread_index(error, disk):
                continue
            story = [f"  {entry!s:.150}" for entry in trace[max(number - 40, 0) : number + 1]]
            error.add_note("\n".join(["the power was cut after:", *story, states.describe(choices)]))
            raise
    return len(chosen) + 1


def is_unread_index(error: Exception, disk: Disk) -> bool:
    """Whether the error is only about index entries. A recovery completes the last ones of the segment before
    the recovery point, but continues without them if it cannot read that segment. Verifying reports it; no
    record is lost."""
    could_not_read = any(kind in {"open", "read", "stat", "map"} for kind, _ in disk.failures)
    found = [line for line in str(error).splitlines()[1:] if not line.startswith("  note: ")]
    problems = [line for line in found if "index: " in line and "No record is lost" in line]
    told = "1 problem:" if len(problems) == 1 else f"{len(problems)} problems:"
    return could_not_read and bool(problems) and str(error).startswith(told)


def random_choices(states: CrashStates, rng: random.Random) -> tuple[int, ...]:
    """A random state; more often than others the one without any unflushed data."""
    sizes = [len(domain.variants) for domain in states.domains()]
    if rng.random() < 0.3:
        return (0,) * len(sizes)
    return tuple(rng.randrange(size) for size in sizes)
