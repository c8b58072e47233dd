"""That a log was one of several replicas was not stored: the next open took it for the only one, showed it to
its end, and let compaction and retention remove what no other replica had. Readers in other processes took
the end for the high watermark all the time.

With a watermark of 4 in ten records, a reopened log gave all ten; with one of 0, ``compact(now=True)`` made
one record of 200. Now the role is stored with the log and known before anything is done to it, and the stored
high watermark of a replicated log is never above what was said to be replicated.
"""

import pytest
from tests.crash.partition import abandon
from tests.logdir.helpers import crash as crash_store
from tests.partition.helpers_rules import (
    add_batches,
    batch,
    crash,
    identity,
    offsets_of,
    open_log,
    run_background,
)

import logstore
from logstore import Log, NewRecord, StoreConfig, TopicConfig
from logstore.errors import OffsetOutOfRangeError, UnsupportedVersionError, UsageError
from logstore.format import checksum
from logstore.format.metadata import decode_role, encode_role
from logstore.model import Isolation, Role
from logstore.partition.state.sidecars import read_role
from logstore.testing import ManualClock, explore

REPLICATED = [Role.LEADER, Role.FOLLOWER]


def end(log, how):
    if how == "close":
        log.close()
    else:
        crash(log)


def replica(path, role=Role.FOLLOWER, *, records=10, watermark=4, **settings):
    """A log that is opened as one of several, with a stored high watermark."""
    log = open_log(path, **settings)
    log.set_role(role)
    add_batches(log, records)
    log.update_high_watermark(watermark)
    log.checkpoint()
    return log


# The next open ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "kill"])
@pytest.mark.parametrize("role", REPLICATED)
def test_it_is_where_it_was_stored(tmp_path, role, how):
    end(replica(tmp_path / "t-0", role), how)
    log = open_log(tmp_path / "t-0")
    assert (log.role, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (role, 4, 4, 10)
    assert offsets_of(log) == [0, 1, 2, 3]
    assert len(list(log.read(isolation=Isolation.LOG_END))) == 10


@pytest.mark.parametrize("how", ["close", "kill"])
def test_so_it_is_in_a_store(tmp_path, how):
    store = logstore.open(tmp_path)
    log = store.create_topic("t")[0]
    log.set_role(Role.LEADER)
    add_batches(log, 10)
    log.update_high_watermark(4)
    store.checkpoint()
    if how == "close":
        store.close()
    else:
        crash_store(store)
    with logstore.open(tmp_path) as store:
        assert (store["t"][0].role, store["t"][0].high_watermark) == (Role.LEADER, 4)
        assert store["t"].reopen(0).high_watermark == 4


def test_what_lies_above_it_is_not_compacted(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    log.set_role(Role.FOLLOWER)
    log.extend([NewRecord(b"v", key=b"k")] * 200)
    log.close()
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    log.compact(now=True)
    assert len(list(log.read(isolation=Isolation.LOG_END))) == 200


def test_what_lies_above_it_is_not_retained_away(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    log.set_role(Role.FOLLOWER)
    for _ in range(6):
        add_batches(log, 1)
        log.roll()
    log.update_high_watermark(2)
    log.close()
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    with pytest.raises(OffsetOutOfRangeError, match="high watermark 2"):
        log.delete_before(3)
    assert log.enforce_retention() == 2
    assert (log.log_start_offset, log.log_end_offset) == (2, 6)


def test_a_transaction_that_nobody_else_has_is_undecided_after_an_open(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.set_role(Role.LEADER)
    log.extend([b"v"], producer=identity(0, transactional=True))
    log.append_end_marker(7, 0, committed=True)
    log.update_high_watermark(1)
    log.close()
    log = open_log(tmp_path / "t-0")
    assert (log.high_watermark, log.last_stable_offset) == (1, 0)
    assert log.update_high_watermark(2) == log.last_stable_offset == 2


def test_with_no_checkpoint_of_it_it_begins_at_the_log_start(tmp_path):
    replica(tmp_path / "t-0").close()
    (tmp_path / "t-0" / "replication-offset-checkpoint").unlink()
    assert open_log(tmp_path / "t-0").high_watermark == 0


# Readers elsewhere ------------------------------------------------------------------------------------------


@pytest.fixture
def writer(tmp_path):
    clock = ManualClock()
    with logstore.open(tmp_path / "store", clock=clock) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=200))[0]
        log.set_role(Role.LEADER)
        add_batches(log, 10)
        log.update_high_watermark(4)
        clock.advance(5_000)
        store._directory.context.scheduler.run_due()
        yield store


@pytest.fixture
def seen(writer):
    with logstore.open(writer.path, read_only=True) as store:
        yield store["t"][0]


def test_a_reader_elsewhere_sees_what_the_writer_shows(writer, seen):
    assert (seen.role, seen.high_watermark, seen.last_stable_offset) == (Role.LEADER, 4, 4)
    assert seen.log_end_offset == 10
    assert offsets_of(seen) == [0, 1, 2, 3]
    assert seen.read_arrow()["offset"].to_pylist() == [0, 1, 2, 3]
    for refused in (seen.record_at, lambda offset: seen.pin(0, offset + 1)):
        with pytest.raises(OffsetOutOfRangeError):
            refused(4)
    assert seen.pin(0, 4).stop == 4


def test_a_reader_elsewhere_is_behind_by_one_interval_of_checkpoints(writer, seen):
    log = writer["t"][0]
    log.update_high_watermark(7)
    assert seen.high_watermark == 4
    writer._directory.context.clock.advance(5_000)
    writer._directory.context.scheduler.run_due()
    assert seen.high_watermark == 7


def test_a_standalone_log_stores_it_as_often(tmp_path):
    clock = ManualClock()
    log = open_log(tmp_path / "t-0", clock=clock)
    log.set_role(Role.LEADER)
    add_batches(log, 3)
    log.update_high_watermark(2)
    clock.advance(5_000)
    run_background(log)
    crash(log)
    assert open_log(tmp_path / "t-0").high_watermark == 2


def test_a_reader_elsewhere_follows_the_role(writer, seen):
    log = writer["t"][0]
    assert seen.high_watermark == 4
    log.set_role(Role.ALONE)
    assert (seen.role, seen.high_watermark) == (Role.ALONE, 10)


# The role itself --------------------------------------------------------------------------------------------


def test_alone_is_the_log_that_nobody_gave_a_role(tmp_path):
    log = open_log(tmp_path / "t-0")
    assert log.role is Role.ALONE
    log.set_role(Role.ALONE)
    assert not (tmp_path / "t-0" / ".role").exists()


def test_a_log_that_is_alone_again_ends_where_it_ends(tmp_path):
    log = replica(tmp_path / "t-0")
    log.set_role(Role.ALONE)
    assert log.high_watermark == 10
    crash(log)
    assert open_log(tmp_path / "t-0").high_watermark == 10


@pytest.mark.parametrize("role", ["leader", None, 1])
def test_it_must_be_a_role(tmp_path, role):
    with pytest.raises(UsageError, match="role is"):
        open_log(tmp_path / "t-0").set_role(role)


def test_a_leader_that_steps_down_keeps_its_watermark(tmp_path):
    log = replica(tmp_path / "t-0", Role.LEADER)
    log.set_role(Role.FOLLOWER)
    assert (log.role, log.high_watermark) == (Role.FOLLOWER, 4)
    crash(log)
    log = open_log(tmp_path / "t-0")
    assert (log.role, log.high_watermark) == (Role.FOLLOWER, 4)


@pytest.mark.parametrize("position", range(len(encode_role(Role.LEADER))))
def test_no_flipped_bit_makes_a_log_forget_that_it_is_replicated(tmp_path, position, caplog):
    path = tmp_path / ".role"
    for bit in range(8):
        data = bytearray(encode_role(Role.LEADER))
        data[position] ^= 1 << bit
        path.write_bytes(data)
        assert read_role(logstore.files.OsFiles(), str(tmp_path)) is Role.FOLLOWER
    assert "role is damaged" in caplog.text


def test_an_empty_role_is_a_damaged_one(tmp_path, caplog):
    log = replica(tmp_path / "t-0", Role.LEADER)
    log.close()
    (tmp_path / "t-0" / ".role").write_bytes(b"")
    log = open_log(tmp_path / "t-0")
    assert (log.role, log.high_watermark) == (Role.FOLLOWER, 4)
    assert "role is damaged" in caplog.text


def test_a_role_of_a_newer_version_is_not_guessed(tmp_path):
    lines = b"version: 1\nrole: leader\n"
    with pytest.raises(UnsupportedVersionError):
        decode_role(lines + b"crc32c: %08x\n" % checksum.crc32c(lines))


def test_a_new_topic_of_the_same_name_is_alone(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")[0].set_role(Role.FOLLOWER)
        store.delete_topic("t")
        assert store.create_topic("t")[0].role is Role.ALONE


# Other records at the same offsets --------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["truncate", "start over"])
def test_what_comes_behind_a_cut_is_not_replicated(tmp_path, cut):
    log = replica(tmp_path / "t-0", watermark=8)
    if cut == "truncate":
        log.truncate_to(3)
    else:
        log.truncate_fully_and_start_at(3)
    for offset in range(3, 9):
        log.append_replicated(batch(b"other", base_offset=offset))
    crash(log)
    log = open_log(tmp_path / "t-0")
    assert (log.high_watermark, log.log_end_offset) == (3, 9)


def test_what_comes_behind_a_loss_is_not_replicated(tmp_path):
    log = replica(tmp_path / "t-0", watermark=8)
    crash(log)
    for name in ("recovery-point-offset-checkpoint",):
        (tmp_path / "t-0" / name).unlink()
    file = tmp_path / "t-0" / f"{0:020}.log"
    file.write_bytes(file.read_bytes()[:-1_000])
    log = open_log(tmp_path / "t-0")
    lost_from = log.log_end_offset
    assert lost_from < 8
    for offset in range(lost_from, 9):
        log.append_replicated(batch(b"other", base_offset=offset))
    crash(log)
    assert open_log(tmp_path / "t-0").high_watermark == lost_from


class Replicated:
    """Sessions of a replicated log, cut at every point. What is said is how far it is replicated."""

    def session(self, files, said, rng):
        log = open_replica(files)
        if log.role is Role.ALONE:
            log.set_role(Role.FOLLOWER)
            files.note(0)
        for _ in range(10):
            step = rng.choice([self.grow, self.grow, self.cut, self.start_over, self.move, self.store])
            step(files, log, rng)

    def grow(self, files, log, rng):
        for offset in range(log.log_end_offset, log.log_end_offset + rng.randint(1, 3)):
            log.append_replicated(batch(b"%d" % rng.randrange(10**6), base_offset=offset))

    def cut(self, files, log, rng):
        log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset))
        files.note(log.high_watermark)

    def start_over(self, files, log, rng):
        log.truncate_fully_and_start_at(rng.randint(0, log.log_end_offset + 2))
        files.note(log.high_watermark)

    def move(self, files, log, rng):
        target = rng.randint(log.high_watermark, log.log_end_offset)
        files.note(target)
        log.update_high_watermark(target)

    def store(self, files, log, rng):
        log.checkpoint()

    def check(self, files, said):
        log = open_replica(files)
        if said:
            assert log.role is Role.FOLLOWER
            assert max(log.log_start_offset, 0) <= log.high_watermark <= log.log_end_offset
            assert log.high_watermark <= max(said[-1], log.log_start_offset)
        abandon(log)


def open_replica(files):
    return Log.open("/t-0", files=files, clock=ManualClock(), store_config=StoreConfig(linger_ms=0))


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_makes_more_of_it(seed):
    explored = explore(Replicated(), seed=seed, max_states=150)
    assert explored.state_count >= 25
