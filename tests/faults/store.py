"""Operations on a store while its disk fails: like :mod:`tests.faults.partition`, with topics."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from logstore.errors import StorageError
from logstore.testing import Fault
from tests.crash.history import Deleted, Deleting, Durable, History
from tests.crash.store import (
    CONFIG,
    RETAINING,
    Created,
    LettingGo,
    Removed,
    Removing,
    StoreHistory,
    StoreScenario,
    StoreSession,
)
from tests.crash.writer import Writer, check_lookups, found_in
from tests.faults.interrupt import Interrupter, Place, uninterrupted
from tests.faults.partition import (
    Disk,
    Outcome,
    Past,
    check_error,
    check_refuses,
    cut_power,
    settle,
)


class Session(StoreSession):
    """A store on a disk that may fail."""

    def __init__(self, disk: Disk, rng: random.Random) -> None:
        self.disk = disk
        super().__init__(disk, disk.said_before, rng)  # type: ignore[arg-type]

    def history(self, name: str, number: int) -> History:
        return self.store_history().partition(name, number)

    def store_history(self) -> StoreHistory:
        return StoreHistory(self.disk.said())

    def writer(self, name: str = "a", number: int = 0) -> Writer:
        return self.writers[name, number]

    # Actions besides

    def write_to_all(self) -> None:
        for writer in self.writers.values():
            writer.append(3, size_bytes=100)

    def grow(self) -> None:
        count = len(self.store["a"]) + 1
        self._change("a", range(count), partial(self.store["a"].add_partitions, count))

    def hold_two(self) -> None:
        self._change("d", range(4), partial(self.store["d"].hold, [0, 2]))

    def let_one_go(self) -> None:
        self.files.note(LettingGo("d", 3))
        self.store["d"].let_go(3)
        self.files.note(Created("d", (1,)))
        del self.writers["d", 3]

    def remove_first(self) -> None:
        self.files.note(Removing("a"))
        self.store.delete_topic("a")
        self.files.note(Removed("a"))
        self.writers = {place: writer for place, writer in self.writers.items() if place[0] != "a"}

    def pass_minutes(self, minutes: int = 10) -> None:
        for writer in self.writers.values():
            writer.say(Deleting(writer.end))
        self.clock.advance(minutes * 60_000)
        self.store.run_background()
        for writer in self.writers.values():
            writer.say(Deleted(writer.log.log_start_offset))
            writer.say_durable()

    def close(self) -> None:
        self.store.close()
        for writer in self.writers.values():
            writer.say(Durable(writer.end))

    def recover(self) -> None:
        uninterrupted(self.store._directory.abandon)
        self._open()

    def reopen_partition(self) -> None:
        writer = self.writer()
        writer.log = self.store["a"].reopen(0)
        writer.begin()


Workload = Callable[[Session], object]

WORKLOADS: dict[str, Workload] = {
    "create": StoreSession.create,
    "add partitions": Session.grow,
    "hold": Session.hold_two,
    "let go": Session.let_one_go,
    "let go, and hold": lambda s: (s.let_one_go(), s._change("d", (1, 3), partial(s.store["d"].hold, [3]))),
    "configure": lambda s: s.store["a"].configure(segment_bytes=700),
    "remove": Session.remove_first,
    "write": Session.write_to_all,
    "flush": StoreSession.flush,
    "checkpoint": StoreSession.checkpoint,
    "a minute passes": lambda s: s.pass_minutes(1),
    "ten minutes pass": Session.pass_minutes,
    "close": Session.close,
    "stop and start": StoreSession.reopen,
    "recover": Session.recover,
    "reopen a partition": Session.reopen_partition,
    "remove, and minutes pass": lambda s: (s.remove_first(), s.pass_minutes()),
}


def make_past() -> Past:
    """A cleanly closed store with three topics, one of them with limits and one held in part."""
    disk = Disk(Past())
    session = Session(disk, random.Random(1))
    for name, count, held in (("a", 2, (0, 1)), ("c", 1, (0,)), ("d", 4, (1, 3))):
        config = RETAINING if name == "c" else CONFIG
        create = partial(session.store.create_topic, name, partitions=count, config=config, held=held)
        session._change(name, held, create)
    for _ in range(3):
        session.write_to_all()
    session.writer().append_as_producer()
    session.close()
    return Past(disk.memory.now(), tuple(disk.said()))


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
    disk, session = begin(past, rng)
    disk.fail(fault, at=at, times=times)
    point = len(disk.memory.trace)
    try:
        workload(session)
    except StorageError as error:
        check_error(error, fault, disk)
    disk.heal()
    if disk.failures:
        go_on(session, rng)
    return Outcome(bool(disk.failures), cut_power(past, disk, point, rng, max_states, StoreScenario().check))


def begin(past: Past, rng: random.Random) -> tuple[Disk, Session]:
    """A store with some unflushed records."""
    disk = Disk(past)
    session = Session(disk, rng)
    session.writer().append(2, flush=True)
    session.write_to_all()
    return disk, session


def count_lines(past: Past, workload: Workload) -> list[Place]:
    """The lines of the storage modules that a workload runs through."""
    _, session = begin(past, random.Random(0))
    interrupter = Interrupter(MemoryError)
    interrupter(lambda: workload(session))
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
    disk, session = begin(past, random.Random(0))  # the lines that were counted
    point = len(disk.memory.trace)
    interrupter = Interrupter(error, at)
    with suppress(error):
        interrupter(lambda: workload(session))
    if interrupter.has_struck:
        go_on(session, rng)
    return Outcome(
        interrupter.has_struck, cut_power(past, disk, point, rng, max_states, StoreScenario().check)
    )


def go_on(session: Session, rng: random.Random) -> None:
    """Continue as the program would, now that the cause is gone."""
    if not session.store._directory._is_closed:
        live_on(session)
        if rng.random() < 0.5:
            session.store.close()
        else:
            session.store._directory.abandon()
    else:
        with suppress(StorageError):
            session.store.close()  # again, or the rest of it: now the directory must be free
    session._open()
    check_store(session)
    write_on(session)
    report = session.store.verify()
    assert report, report


def live_on(session: Session) -> None:
    """Continue with the same store: read everything, write to what can be written, and to the rest after a
    reopen."""
    for place, writer in list(session.writers.items()):
        name, number = place
        if not is_held(session, name, number) or (name, number) in session.store.damaged:
            del session.writers[place]
            continue
        writer.log = session.store[name][number]
        settle(writer, partial(session.history, name, number))
        if writer.log.needs_reopen:
            check_refuses(writer.log)
            writer.log = session.store[name].reopen(number)
            writer.begin()
    for name, number in session.store.damaged:  # it could not be opened while the disk failed
        session.store[name].reopen(number)
    assert session.store.damaged == {}
    for name in session.store:
        session._add_writers(name)
    write_on(session)


def is_held(session: Session, name: str, number: int) -> bool:
    return name in session.store and number in session.store[name].held_partitions


def check_store(session: Session) -> None:
    assert session.store.damaged == {}
    session.store_history().check_topics(session.store)
    for (name, number), writer in session.writers.items():
        found = found_in(writer.log)
        session.history(name, number).check(found)
        check_lookups(writer.log, found)


def write_on(session: Session) -> None:
    for (name, number), writer in session.writers.items():
        writer.append(2)
        writer.append(1, flush=True)
        assert writer.log.durable_offset == writer.end
        session.history(name, number).check(found_in(writer.log))
