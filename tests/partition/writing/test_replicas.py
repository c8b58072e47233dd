"""What replicas ask of a log: the leader epoch that the caller goes by, and a leader's gaps in a follower."""

import pytest

import logstore
from logstore.errors import (
    DiskFullError,
    LeaderFencedError,
    ReadOnlyError,
    UnknownLeaderEpochError,
    UsageError,
)
from logstore.model import Isolation, Role
from tests.partition.helpers_rules import (
    WatchedFiles,
    add,
    batch,
    crash,
    offsets_of,
    open_log,
    values_of,
)

# The expected leader epoch (KIP-320) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "error"), [(None, None), (4, None), (3, LeaderFencedError), (5, UnknownLeaderEpochError)]
)
def test_a_leader_appends_and_serves_in_its_own_epoch_only(log, epoch, error):
    log.assign_leader_epoch(4)
    add(log, b"before")
    calls = [
        lambda: log.append_batch(batch(b"a"), leader_epoch=epoch),
        lambda: log.fetch(0, leader_epoch=epoch),
    ]
    for call in calls:
        if error is None:
            assert call() is not None
        else:
            with pytest.raises(error, match=f"leader epoch {epoch} is expected, and .* has 4"):
                call()
    assert log.log_end_offset == (2 if error is None else 1)
    assert not log.needs_reopen


@pytest.mark.parametrize("epoch", [-1, 2**31, True, "1", 1.0])
def test_an_epoch_is_a_number_of_31_bits(log, epoch):
    for call in (
        lambda: log.append_batch(batch(b"a"), leader_epoch=epoch),
        lambda: log.append_replicated(batch(b"a"), leader_epoch=epoch),
        lambda: log.fetch(0, leader_epoch=epoch),
    ):
        with pytest.raises(UsageError, match="leader_epoch"):
            call()


def test_a_reader_elsewhere_does_not_know_the_present_epoch(tmp_path):
    with logstore.open(tmp_path) as store, logstore.open(tmp_path, read_only=True) as other:
        store.create_topic("t")[0].append(b"a", flush=True)
        assert other["t"][0].fetch(0).data
        with pytest.raises(ReadOnlyError, match="only the writer's process knows this"):
            other["t"][0].fetch(0, leader_epoch=0)


def test_a_follower_refuses_the_answer_of_a_former_leader(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=3), leader_epoch=3)
    with pytest.raises(LeaderFencedError, match="there is a newer leader"):
        log.append_replicated(batch(b"b", base_offset=1, partition_leader_epoch=2), leader_epoch=2)
    assert values_of(log) == [b"a"]


def test_batches_of_a_newer_epoch_than_the_one_asked_are_left_out(log):
    data = b"".join(
        bytes(batch(b"v", base_offset=number, partition_leader_epoch=epoch))
        for number, epoch in enumerate([1, 1, 2, 1])
    )
    result = log.append_replicated(data, leader_epoch=1)
    assert (result.base_offset, result.last_offset) == (0, 1)
    assert log.append_replicated(data[2 * len(data) // 4 :], leader_epoch=1) is None
    assert log.log_end_offset == 2


def test_a_follower_may_lag_behind_the_epoch_that_it_asks_in(log):
    assert log.append_replicated(batch(b"a", partition_leader_epoch=1), leader_epoch=7).last_offset == 0
    assert log.leader_epoch == 1


# A leader's gaps --------------------------------------------------------------------------------------------


def replicate_with_gaps(log, count, *, epoch=0):
    """Every second offset is missing."""
    for _ in range(count):
        offset = log.log_end_offset + 1
        log.append_replicated(batch(b"%d" % offset, base_offset=offset, partition_leader_epoch=epoch))


def test_a_gap_costs_a_follower_no_flush(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    log.set_role(Role.FOLLOWER)
    before = files.count("flush")
    replicate_with_gaps(log, 10)
    assert files.count("flush") == before
    assert values_of(log, isolation=Isolation.LOG_END) == [b"%d" % n for n in range(1, 20, 2)]


@pytest.mark.parametrize("role", [Role.ALONE, Role.LEADER])
def test_a_log_of_another_role_is_checkpointed_past_it(tmp_path, role):
    log = open_log(tmp_path / "t-0")
    log.set_role(role)
    replicate_with_gaps(log, 3)
    assert log._context.home.recovery_point(log.partition) == 6


@pytest.mark.parametrize("segment_bytes", [200, 10_000])
def test_a_killed_follower_has_its_gaps_and_all_records_again(tmp_path, segment_bytes):
    log = open_log(tmp_path / "t-0", segment_bytes=segment_bytes)
    log.set_role(Role.FOLLOWER)
    replicate_with_gaps(log, 20)
    found = offsets_of(log, isolation=Isolation.LOG_END)
    crash(log)
    again = open_log(tmp_path / "t-0", segment_bytes=segment_bytes)
    assert offsets_of(again, isolation=Isolation.LOG_END) == found == list(range(1, 40, 2))
    assert again.verify()


@pytest.mark.parametrize("role", [Role.ALONE, Role.LEADER])
def test_whoever_ceases_to_be_a_follower_keeps_them_too(tmp_path, role):
    log = open_log(tmp_path / "t-0")
    log.set_role(Role.FOLLOWER)
    replicate_with_gaps(log, 5)
    log.set_role(role)
    crash(log)
    again = open_log(tmp_path / "t-0")
    assert (again.role, offsets_of(again, isolation=Isolation.LOG_END)) == (role, [1, 3, 5, 7, 9])
    assert again.verify()


def test_readers_elsewhere_see_them_as_the_writer_does(tmp_path):
    store = logstore.open(tmp_path)
    log = store.create_topic("t")[0]
    log.set_role(Role.FOLLOWER)
    replicate_with_gaps(log, 5)
    with logstore.open(tmp_path, read_only=True) as other:
        assert offsets_of(other["t"][0], isolation=Isolation.LOG_END) == [1, 3, 5, 7, 9]
        assert other["t"][0].verify()


@pytest.mark.parametrize("role", [Role.FOLLOWER, Role.LEADER])
def test_a_role_for_which_there_is_no_room_changes_nothing(tmp_path, role):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a", b"b")
    files.fill()
    with pytest.raises(DiskFullError):
        log.set_role(role)
    assert (log.role, log.needs_reopen, log.high_watermark) == (Role.ALONE, False, 2)
    files.heal()
    log.set_role(role)
    crash(log)
    assert open_log(tmp_path / "t-0").role is role
