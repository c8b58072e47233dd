"""``__share_group_state``: what is written is there after each open, and what is redundant is deleted."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import logstore
from logstore.broker.share.stored import ShareChange, ShareState, apply_change
from logstore.broker.storing import shares as share_storage
from logstore.broker.storing.shares import ShareStorage
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ReadOnlyError, RecordTooLargeError, StorageError, UsageError
from logstore.format.loops import scan_batches
from logstore.format.messages.share_records import (
    ShareBatch,
    ShareKey,
    ShareUpdate,
    decode_share_key,
    encode_share_key,
    encode_share_update,
)
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles

TOPIC = uuid.UUID("01234567-89ab-cdef-1122-334455667788")
KEY = ShareKey("orders", TOPIC, 0)
OTHER = ShareKey("orders", TOPIC, 1)
START = ShareState(0, 0, 0)
NAME = "__share_group_state"


class World:
    """A store in memory, opened again at will."""

    def __init__(self, *, files=None, **settings):
        self.files = files or MemoryFiles()
        self.clock = ManualClock()
        self.config = StoreConfig(**settings)
        self.open()

    def open(self):
        self.store = logstore.open("/store", files=self.files, clock=self.clock, config=self.config)
        self.storage = ShareStorage(self.store._directory)

    def reopen(self):
        self.store.close()
        self.open()

    def close(self):
        self.store.close()

    def log(self, number=0):
        return self.store[NAME][number]

    def batch_count(self, number=0):
        data = self.log(number).fetch(0, max_bytes=2**24).data
        return len(scan_batches(data, 0, len(data), check=False)[0])

    def shown(self, number=0):
        """What was written: ``S`` for a snapshot, ``u`` for an update, ``-`` for a tombstone."""
        return "".join(
            "-" if record.value is None else "S" if decode_share_key(record.key).is_snapshot else "u"
            for record in self.log(number).read()
        )


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_the_partition_is_the_one_that_kafka_finds():
    lines = (Path(__file__).parents[2] / "format/messages/share_records.txt").read_text().splitlines()
    expected = [line.split("\t")[1:] for line in lines if line.startswith("partition of 50")]
    world = World(share_coordinator_state_topic_num_partitions=50)
    for group, partition, number in expected:
        assert world.storage.partition_for(ShareKey(group, TOPIC, int(partition))) == int(number)
    assert len(expected) == 12
    world.close()


def test_nothing_is_made_before_it_is_needed(world):
    world.storage.delete(KEY)
    world.storage.write([])
    assert world.storage.load() == {}
    assert NAME not in world.store


def test_the_topic_keeps_all_until_it_is_redundant(world):
    world.storage.write_snapshot(KEY, START)
    config = world.log().config
    assert (config.cleanup_policy, config.retention_ms, config.retention_bytes) == ("delete", -1, -1)


def test_a_change_needs_a_state(world):
    with pytest.raises(UsageError, match="has no state yet"):
        world.storage.write_update(KEY, ShareChange(5))
    world.storage.write_snapshot(KEY, START)
    world.storage.delete(KEY)
    with pytest.raises(UsageError, match="has no state yet"):
        world.storage.write_update(KEY, ShareChange(5))
    assert world.storage.load() == {}


def test_a_snapshot_comes_after_so_many_updates():
    world = World(share_coordinator_snapshot_update_records_per_snapshot=3)
    world.storage.write_snapshot(KEY, START)
    for offset in range(6):
        world.storage.write_update(KEY, ShareChange(offset))
    world.reopen()  # which counts those that are there
    for offset in range(6, 9):
        world.storage.write_update(KEY, ShareChange(offset))
    assert world.shown() == "SuuuSuuuSu"
    world.close()


def test_changes_are_one_batch(world):
    world.storage.write([(KEY, START), (OTHER, START), (KEY, ShareChange(4)), (OTHER, None)])
    assert world.shown() == "SSu-"
    assert world.batch_count() == 1
    assert world.storage.load() == {KEY: ShareState(0, 0, 4)}


def test_many_changes_are_several_batches(world):
    batches = tuple(ShareBatch(2 * at, 2 * at, 2, 1) for at in range(4_000))
    keys = [ShareKey("g", TOPIC, number) for number in range(10)]
    world.storage.write([(key, ShareState(0, 0, 0, batches)) for key in keys])
    assert world.batch_count() > 1
    world.reopen()
    assert world.storage.load() == dict.fromkeys(keys, ShareState(0, 0, 0, batches))


def test_a_state_that_is_too_large_is_refused_and_the_last_one_stays(world):
    world.storage.write_snapshot(KEY, START)
    batches = tuple(ShareBatch(2 * at, 2 * at, 2, 1) for at in range(60_000))
    with pytest.raises(RecordTooLargeError, match="let fewer records be in flight"):
        world.storage.write_snapshot(KEY, ShareState(0, 0, 0, batches))
    assert world.storage.load() == {KEY: START}
    world.storage.write_update(KEY, ShareChange(3))
    assert world.storage.load() == {KEY: ShareState(0, 0, 3)}


def test_updates_without_a_snapshot_are_a_state(world):
    """As in Kafka; the snapshot may be below the log start offset."""
    world.storage.write_snapshot(KEY, START)
    update = ShareUpdate(7, 2, 40, -1, (ShareBatch(41, 41, 2, 1),))
    row = logstore.NewRecord(encode_share_update(update), encode_share_key(OTHER, is_snapshot=False))
    world.log().extend([row])
    assert world.storage.load()[OTHER] == ShareState(0, 2, 40, (ShareBatch(41, 41, 2, 1),))


def test_a_reader_cannot_write(world):
    world.storage.write_snapshot(KEY, START)
    with logstore.open("/store", files=world.files, clock=world.clock, read_only=True) as reader:
        storage = ShareStorage(reader._directory)
        assert storage.load() == {KEY: START}
        with pytest.raises(ReadOnlyError, match="share groups"):
            storage.write_update(KEY, ShareChange(1))


def test_what_is_redundant_is_deleted_once_its_successor_is_durable(world, monkeypatch):
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 100)
    world.storage.write([(KEY, START), (OTHER, START)])
    for offset in range(98):
        world.storage.write_update(KEY, ShareChange(offset))
    assert world.shown()[-2:] == "SS", "states that have not changed are written again"
    world.storage.write_update(KEY, ShareChange(98))
    assert world.log().log_start_offset == 0, "a power cut would take them"
    world.log().flush()
    world.storage.write_update(KEY, ShareChange(99))
    assert world.log().log_start_offset == 100
    assert world.shown() == "SSuu"
    world.reopen()
    assert world.storage.load() == {KEY: ShareState(0, 0, 99), OTHER: START}


def test_the_log_stays_short(world, monkeypatch):
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 100)
    keys = [ShareKey("g", TOPIC, number) for number in range(40)]
    world.storage.write([(key, START) for key in keys], flush=True)
    lengths = []
    for offset in range(3_000):
        world.storage.write_update(keys[0], ShareChange(offset), flush=True)
        lengths.append(world.log().log_end_offset - world.log().log_start_offset)
    assert max(lengths) < 2 * 160 + 2 * len(keys)
    assert world.log().log_end_offset < 1.4 * len(lengths)


def test_tombstones_are_deleted_too(world, monkeypatch):
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 10)
    for _ in range(8):
        world.storage.write_snapshot(KEY, START, flush=True)
        world.storage.delete(KEY, flush=True)
    assert world.log().log_end_offset - world.log().log_start_offset <= 10
    assert world.storage.load() == {}


@pytest.mark.parametrize("fault", ["ENOSPC", "short write"])
def test_what_was_not_written_is_not_there(fault):
    world = World(files=FaultyFiles(MemoryFiles()))
    world.storage.write_snapshot(KEY, START)
    world.files.fail(FAULTS[fault], at=1, kinds={"write"})
    with pytest.raises(StorageError):
        world.storage.write([(KEY, ShareChange(5)), (OTHER, START)])
    assert world.files.failures
    assert world.storage.load() == {KEY: START}
    world.storage.write_update(KEY, ShareChange(6))
    world.reopen()
    assert world.storage.load() == {KEY: ShareState(0, 0, 6)}
    world.close()


@pytest.mark.parametrize("is_new", [True, False])
def test_what_is_deleted_while_it_is_read_is_read_anew(world, monkeypatch, is_new):
    """The snapshots that replace it are newer than the end of the log that the reader has seen."""
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 10)
    world.storage.write([(KEY, START), (OTHER, START)])
    offsets = iter(range(1, 1_000))

    def write_some(*, flush):
        for _ in range(30):
            world.storage.write_update(KEY, ShareChange(next(offsets)), flush=flush)

    replay = share_storage.replay

    def replay_later(*args):
        monkeypatch.setattr(share_storage, "replay", replay)
        write_some(flush=True)
        assert world.log().log_start_offset > args[3], "beyond what is to be read"
        return replay(*args)

    with logstore.open("/store", files=world.files, clock=world.clock, read_only=True) as reader:
        beside = ShareStorage(reader._directory)
        if not is_new:
            beside.load()
        world.storage.write_update(KEY, ShareChange(0))
        monkeypatch.setattr(share_storage, "replay", replay_later)
        found = beside.load()
        assert share_storage.replay is replay
        assert found == world.storage.load() == {KEY: ShareState(0, 0, 30), OTHER: START}


def test_threads_write_side_by_side(tmp_path, monkeypatch):
    """Each its own share-partitions, while the background flushes and what is redundant is deleted; a reader
    beside them never sees a state that goes back. Takes 1 s."""
    monkeypatch.setattr(share_storage, "_TIDY_EVERY", 50)
    config = StoreConfig(topic=TopicConfig(flush_ms=5))
    thread_count, update_count = 4, 250
    keys = [ShareKey("g", TOPIC, number) for number in range(thread_count)]
    with logstore.open(tmp_path / "store", config=config) as store:
        storage = ShareStorage(store._directory)
        storage.write([(key, START) for key in keys], flush=True)

        def work(key):
            for offset in range(1, update_count):
                storage.write_update(key, ShareChange(offset, (ShareBatch(offset, offset, 2, 1),)))

        with (
            ThreadPoolExecutor(thread_count) as pool,
            logstore.open(tmp_path / "store", read_only=True) as reader,
        ):
            running = [pool.submit(work, key) for key in keys]
            beside = ShareStorage(reader._directory)
            before = beside.load()
            while not all(each.done() for each in running):
                found = beside.load()
                assert found.keys() == before.keys()
                assert all(found[key].start_offset >= before[key].start_offset for key in keys)
                before = found
            for each in running:
                each.result()
        last = update_count - 1
        expected = dict.fromkeys(keys, ShareState(0, 0, last, (ShareBatch(last, last, 2, 1),)))
        assert storage.load() == expected
        for _ in range(2_000):
            if store[NAME][0].log_start_offset:
                break
            storage.write_update(keys[0], ShareChange(last), flush=True)
            time.sleep(0.005)  # for the background, which deletes
        assert store[NAME][0].log_start_offset > 0
    with logstore.open(tmp_path / "store") as store:
        assert ShareStorage(store._directory).load() == expected


KEYS = st.builds(ShareKey, st.sampled_from(["a", "grüße"]), st.just(TOPIC), st.integers(0, 2))
OFFSET = st.integers(0, 60)
BATCHES = st.lists(
    st.builds(
        lambda first, more, *rest: ShareBatch(first, first + more, *rest),
        OFFSET,
        st.integers(0, 9),
        st.sampled_from([0, 2, 4]),
        st.integers(0, 3),
        st.sampled_from([-1, 9]),
    ),
    max_size=4,
).map(tuple)
STATES = st.builds(ShareState, st.integers(0, 2), st.integers(0, 2), OFFSET, st.just(())).flatmap(
    lambda state: BATCHES.map(lambda batches: apply_change(state, ShareChange(batches=batches)))
)
CHANGES = st.builds(ShareChange, st.just(-1) | OFFSET, BATCHES, st.integers(-1, 5), st.integers(-1, 9))


class Stored(RuleBasedStateMachine):
    """The states against a dict, through writes, opens and deletions of what is redundant. Takes 3 s."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(share_storage, "_TIDY_EVERY", 5)
        self.world = World(
            share_coordinator_state_topic_num_partitions=2,
            share_coordinator_snapshot_update_records_per_snapshot=3,
        )
        self.reader = logstore.open("/store", files=self.world.files, clock=self.world.clock, read_only=True)
        self.beside = ShareStorage(self.reader._directory)
        self.expected = {}

    def teardown(self):
        self.patch.undo()
        self.reader.close()
        self.world.close()

    @rule(changes=st.lists(st.tuples(KEYS, STATES | CHANGES | st.none()), max_size=6), flush=st.booleans())
    def write(self, changes, flush):
        given = []
        for key, change in changes:
            if isinstance(change, ShareChange):
                if key not in self.expected:
                    continue
                self.expected[key] = apply_change(self.expected[key], change)
            elif change is None:
                self.expected.pop(key, None)
            else:
                self.expected[key] = change
            given.append((key, change))
        self.world.storage.write(given, flush=flush)

    @rule()
    def reopen(self):
        self.world.reopen()

    @rule()
    def look_beside(self):
        assert self.beside.load() == self.expected

    @invariant()
    def states_are_the_dict(self):
        assert self.world.storage.load() == self.expected


TestStored = Stored.TestCase
TestStored.settings = settings(max_examples=30, stateful_step_count=30)
