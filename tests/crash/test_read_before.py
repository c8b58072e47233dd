"""A reader that has read records, which a power cut then takes, is told by the leader epochs.

Each session appends, and notes what a reader has read at once, flushed or not, with the epoch that it was
told. After each cut the reader comes back: either the log's epochs say that it has read too far (KIP-320), or
the records are still the ones that it has read.
"""

import pytest

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.partition.log import Log
from logstore.partition.state.home import LogHome
from logstore.partition.writing.core import LogCore
from logstore.testing import CrashError, ManualClock, explore
from tests.rotation import seed_of_turn

CONFIG = TopicConfig(segment_bytes=1_000, retention_ms=-1)
STEPS = ("append", "flush", "cut", "reopen", "roll", "look", "checkpoint")
STORE_CONFIG = StoreConfig(linger_ms=0, topic=CONFIG)


class InStore:
    """Two logs of a store."""

    def __init__(self, files):
        self.store = logstore.open("/d", files=files, config=STORE_CONFIG, clock=ManualClock())
        topic = self.store.require_topic("t", partitions=2)
        self.logs = list(topic)
        self.close = self.store.close

    def cut(self, number, offset):
        self.logs[number].truncate_to(offset)

    def reopen(self, number):
        self.store["t"].reopen(number)
        self.logs = list(self.store["t"])


class Alone:
    """A log that is its own store."""

    def __init__(self, files):
        self.files = files
        self.open()

    def open(self):
        self.logs = [
            Log.open("/t-0", config=CONFIG, store_config=STORE_CONFIG, files=self.files, clock=ManualClock())
        ]
        self.close = self.logs[0].close

    def cut(self, number, offset):
        self.logs[number].truncate_to(offset)

    def reopen(self, number):
        self.logs[0].close()
        self.open()


def told(log, epoch):
    """Where an epoch ended, as a broker answers."""
    return log.log_end_offset if epoch == log.leader_epoch else log.end_offset_for_epoch(epoch)[1]


def check_read(logs, said):
    for partition, epoch, first, values in said:
        log = logs[partition]
        assert log.leader_epoch >= epoch, "clients ignore metadata with an epoch that has gone back"
        if told(log, epoch) < first + len(values):
            continue  # it is told
        found = {record.offset: record.value for record in log.read(first)}
        assert [found.get(first + number) for number in range(len(values))] == values, (epoch, first)


class Scenario:
    def __init__(self, place):
        self.place = place

    def session(self, files, said, rng):
        opened = self.place(files)
        check_read(opened.logs, said)
        number = 1_000 * len(said)
        for _ in range(rng.randrange(2, 9)):
            partition = rng.randrange(len(opened.logs))
            log = opened.logs[partition]
            kind = rng.choice(
                ("append", "append", "append", "flush", "cut", "reopen", "roll", "look", "checkpoint")
            )
            if kind == "append":
                values = [b"%d" % (number + each) for each in range(rng.randrange(1, 4))]
                number += len(values)
                first = log.extend(values).start
                files.note((partition, log.leader_epoch, first, values))
            elif kind == "look":
                files.note((partition, log.leader_epoch, 0, []))
            elif kind == "cut":
                opened.cut(partition, rng.randrange(log.log_end_offset + 1))
            elif kind == "reopen":
                opened.reopen(partition)
            else:
                getattr(log, kind)()
        opened.close()

    def check(self, files, said):
        if not files.is_directory("/d" if self.place is InStore else "/t-0"):
            return
        opened = self.place(files)
        check_read(opened.logs, said)
        for log in opened.logs:  # what takes the offsets of the lost records
            log.extend([b"another"] * 12)
        check_read(opened.logs, said)
        opened.close()
        check_read(self.place(files).logs, said)


def explore_sessions(place, count, first):
    """Power cuts in so many histories; returns the number of states that they left."""
    return sum(
        explore(Scenario(place), seed=seed, max_states=300, depth=3, states_per_point=6).state_count
        for seed in range(first, first + count)
    )


@pytest.mark.slow
@pytest.mark.parametrize("place", [Alone, InStore])
def test_a_reader_is_told_that_what_it_has_read_is_gone(place):
    """1.5 s each."""
    assert explore_sessions(place, 3, 3 * seed_of_turn()) >= 100


def no_epoch_after_a_crash(monkeypatch):
    monkeypatch.setattr(LogHome, "_begin_after_crash_locked", lambda home: None)
    monkeypatch.setattr(LogHome, "epoch_after_crash", lambda home, latest: latest)


def no_epoch_after_a_cut(monkeypatch):
    monkeypatch.setattr(LogCore, "_epoch_after_cut", lambda core: core.leader_epoch)


def nothing_stored_before_records(monkeypatch):
    monkeypatch.setattr(LogHome, "store_leader_epoch", lambda home: None)


def nothing_kept(monkeypatch):
    monkeypatch.setattr(LogHome, "_decode_leader_epoch", lambda home: 0)


FAULTS = [no_epoch_after_a_crash, no_epoch_after_a_cut, nothing_stored_before_records, nothing_kept]


@pytest.mark.slow
@pytest.mark.damaged
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_control_finds(fault, monkeypatch):
    """0.5 s each."""
    fault(monkeypatch)
    with pytest.raises(CrashError):
        explore_sessions(InStore, 40, 0)
