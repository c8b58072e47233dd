"""The high watermark (section 3.12 of the storage rules)."""

import pytest

from logstore.errors import UsageError
from logstore.model import Role
from tests.partition.helpers_rules import add, add_batches, crash, identity, offsets_of, open_log


@pytest.fixture
def replica(log):
    """Five records, of which a leader says how far they are replicated."""
    log.set_role(Role.LEADER)
    add_batches(log, 5)
    return log


def test_a_single_replicas_high_watermark_is_its_end(log):
    for end in (1, 2, 3):
        add(log, b"a")
        assert log.high_watermark == end


def test_a_single_replicas_high_watermark_cannot_be_set(log):
    with pytest.raises(UsageError, match="only replica"):
        log.update_high_watermark(0)


def test_a_managed_one_stays_where_it_is(replica):
    assert replica.high_watermark == 0
    replica.flush()
    assert replica.high_watermark == 0


@pytest.mark.parametrize(("offset", "result"), [(0, 0), (3, 3), (5, 5), (6, 5), (2**62, 5)])
def test_it_is_clamped_to_the_log_end(replica, offset, result):
    assert replica.update_high_watermark(offset) == replica.high_watermark == result


def test_it_never_goes_back(replica):
    replica.update_high_watermark(4)
    assert replica.update_high_watermark(2) == 4


def test_it_is_never_below_the_log_start(replica):
    replica.update_high_watermark(3)
    replica.delete_before(3)
    assert replica.high_watermark == 3
    replica.truncate_fully_and_start_at(9)
    assert replica.high_watermark == 9


@pytest.mark.parametrize("offset", [-1, True, "1", None])
def test_it_must_be_an_offset(replica, offset):
    with pytest.raises(UsageError, match="offset"):
        replica.update_high_watermark(offset)


def test_moving_it_decides_transactions(log):
    log.set_role(Role.LEADER)
    add(log, b"a", producer=identity(0, transactional=True))
    log.append_end_marker(7, 0, committed=True)
    add(log, b"b")
    assert [log.update_high_watermark(offset) and log.last_stable_offset for offset in (1, 2, 3)] == [0, 2, 3]


def test_it_is_stored_with_a_checkpoint(replica):
    replica.update_high_watermark(3)
    replica.checkpoint()
    assert replica._context.home.high_watermark(replica.partition) == 3


@pytest.mark.parametrize("how", ["close", "crash"])
def test_it_is_where_it_was_stored_however_often_the_log_is_opened(replica, how):
    replica.update_high_watermark(3)
    replica.checkpoint()
    log = replica
    for _ in range(2):
        if how == "close":
            log.close()
        else:
            crash(log)
        log = open_log(log.directory)
    log.set_role(Role.LEADER)
    assert log.high_watermark == log.last_stable_offset == 3
    assert len(offsets_of(log)) == 3
    assert log.update_high_watermark(4) == 4


def test_without_a_stored_one_it_begins_at_the_log_start(replica):
    crash(replica)
    log = open_log(replica.directory)
    log.set_role(Role.LEADER)
    assert (log.high_watermark, log.log_end_offset) == (0, 5)


def test_what_was_appended_before_it_is_managed_is_below_it(log):
    add_batches(log, 2)
    log.close()
    log = open_log(log.directory)
    add_batches(log, 1)
    log.set_role(Role.LEADER)
    assert log.high_watermark == 3


def test_what_gathers_when_it_begins_to_be_managed_is_below_it(log):
    log.append(b"a")
    log.set_role(Role.LEADER)
    assert (log.high_watermark, log.log_end_offset) == (1, 1)


def test_moving_it_wakes_followers(replica):
    records = replica.follow(0, timeout=0.2)
    replica.update_high_watermark(2)
    assert [record.offset for record in records] == [0, 1]


def test_a_retention_waits_for_it(tmp_path):
    log = open_log(tmp_path / "t-0", retention_bytes=0)
    log.set_role(Role.LEADER)
    for _ in range(3):
        add_batches(log, 1)
        log.roll()
    log.update_high_watermark(2)
    assert log.enforce_retention() == 2
