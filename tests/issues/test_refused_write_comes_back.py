"""A write reached the disk, but the system reported a failure: the append was refused, and the file cut back.
The next batch, of the same size, took its place. A power cut before the next flush could keep the refused
batch and what followed its successor: two pasts in one log, each batch with a correct checksum. Found by the
fault tests with the seed 966.

After such a failure the cut is flushed before other records take the place, and before a clean stop.
"""

from __future__ import annotations

import itertools
import random

import pytest
from tests.crash.partition import PartitionScenario
from tests.faults.partition import LINGERING, WORKLOADS, Disk, Past, Session, make_past, run, settle

from logstore.errors import ReopenRequiredError, StorageError
from logstore.testing import FAULTS, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.operations import FlushFile, Note


def refuse(session: Session) -> None:
    """Let an append fail whose bytes reach the file."""
    session.disk.fail(FAULTS["late EIO"], kinds={"write"}, path=".log")
    with pytest.raises(StorageError):
        session.append(2)
    session.disk.heal()
    settle(session, session.disk.history)


def refuse_also_the_cut(session: Session) -> None:
    session.disk.fail(FAULTS["late EIO"], kinds={"write"}, path=".log")
    session.disk.fail(FAULTS["EIO"], kinds={"truncate"}, path=".log")
    with pytest.raises(StorageError):
        session.append(2)
    session.disk.heal()
    settle(session, session.disk.history)


REFUSALS = {
    "once": refuse,
    "twice": lambda session: [refuse(session), refuse(session)],
    "and the cut": refuse_also_the_cut,
}
NEXT = {
    "append": lambda session: None,
    "roll": Session.roll,
    "adopt": Session.adopt_file,
    "truncate": lambda session: session.truncate_to(session.end - 1),
    "close": Session.stop_and_start,
    "kill": Session.recover,
}


@pytest.mark.damaged
@pytest.mark.parametrize(("how", "what"), list(itertools.product(REFUSALS, NEXT)))
def test_no_power_cut_shows_a_refused_batch_in_front_of_later_ones(how: str, what: str) -> None:
    disk = Disk(Past())
    session = Session(disk, random.Random(0))
    session.append(1, flush=True)
    REFUSALS[how](session)
    point = len(disk.memory.trace)
    NEXT[what](session)
    session.append(2)
    session.append(1)
    states, rng, check = CrashStates(disk.memory.image, 0), random.Random(0), PartitionScenario().check
    for number, entry in enumerate(disk.memory.trace):
        if isinstance(entry, Note):
            continue
        states.follow(entry)
        if number >= point:
            for choices in states.choices(24, rng):
                check(MemoryFiles(states.image(choices)), disk.said(number))


def test_the_run_that_found_it() -> None:
    assert run(make_past(), WORKLOADS["append and flush"], FAULTS["late EIO"], 1, seed=966).failed


def flushes(disk: Disk) -> int:
    return sum(isinstance(entry, FlushFile) and entry.path.endswith(".log") for entry in disk.memory.trace)


def test_only_a_write_that_reached_the_file_costs_a_flush() -> None:
    disk = Disk(Past())
    session = Session(disk, random.Random(0))
    session.append(1)
    before = flushes(disk)
    disk.fail(FAULTS["ENOSPC"], kinds={"write"}, path=".log")
    with pytest.raises(StorageError):
        session.append(2)
    disk.heal()
    settle(session, disk.history)
    session.append(2)
    assert flushes(disk) == before
    refuse(session)
    for _ in range(3):
        session.append(2)
    assert flushes(disk) == before + 1


def test_a_cut_that_cannot_be_flushed_makes_the_log_ask_to_be_reopened() -> None:
    disk = Disk(Past())
    session = Session(disk, random.Random(0))
    session.append(1, flush=True)
    refuse(session)
    disk.fail(FAULTS["failed flush"], path=".log")
    with pytest.raises(StorageError):
        session.log.extend([b"next"])
    disk.heal()
    assert session.log.needs_reopen
    with pytest.raises(ReopenRequiredError):
        session.log.extend([b"next"])
    session.let_go()
    session.open_again()
    session.append(2, flush=True)


def test_the_thread_that_writes_lingering_records_does_not_wait_for_it() -> None:
    disk = Disk(Past())
    session = Session(disk, random.Random(0), LINGERING)
    session.append(1, flush=True)
    refuse(session)
    may_wait = []
    disk.memory.before = lambda operation: (
        may_wait.append(session.log.writer.core.may_wait) if isinstance(operation, FlushFile) else None
    )
    (value,) = session.values(1, 20)
    session.log.append(value)
    session.let_time_pass(5)
    session.appended(1)
    session.let_time_pass(0)
    assert [record.value for record in session.log.read(session.end - 1)] == [value]
    assert may_wait == [True]
