"""A commit whose marker only this replica has was shown to readers of committed data after the next open.

A snapshot of producers tells which transactions are open, and nothing of those that ended just before it. A
log that was closed, or cut, with its high watermark below a marker opened with the transaction decided: up to
the high watermark its records were given, although a new leader may still abort them. What ended from the
high watermark on is now looked up in the log.
"""

import pytest
from tests.partition.helpers_rules import crash, open_log

import logstore
from logstore.model import Isolation, NewRecord, ProducerIdentity, Role

HOWS = ["close", "kill", "truncate", "roll and close"]


def replica(path, *, committed, how):
    """Transaction 0 to 1, marker 2; others behind it. The high watermark is 2: the marker is above it."""
    log = open_log(path)
    log.set_role(Role.FOLLOWER)
    log.extend([NewRecord(b"a"), NewRecord(b"b")], producer=ProducerIdentity(1, 0, 0, True))
    log.append_end_marker(1, 0, committed=committed)
    log.extend([NewRecord(b"c")])
    log.extend([NewRecord(b"d")])
    log.update_high_watermark(2)
    assert log.last_stable_offset == 0
    if how == "roll and close":
        log.roll()
        log.extend([NewRecord(b"e")], producer=ProducerIdentity(1, 0, 2, True))
    if how == "truncate":
        log.truncate_to(4)
        log.flush()
    elif how == "kill":
        log.checkpoint()
        crash(log)
    else:
        log.close()
    return log if how == "truncate" else open_log(path)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("committed", [True, False])
def test_it_is_undecided_for_the_writer(tmp_path, how, committed):
    log = replica(tmp_path / "t-0", committed=committed, how=how)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    assert not [*log.read(isolation=Isolation.COMMITTED)]
    log.update_high_watermark(3)
    assert log.last_stable_offset == 3
    assert [record.value for record in log.read(isolation=Isolation.COMMITTED)] == [b"a", b"b"] * committed
    log.update_high_watermark(4)
    assert [record.offset for record in log.read(3, isolation=Isolation.COMMITTED)] == [3]


@pytest.mark.parametrize("how", ["close", "kill", "roll"])
def test_it_is_undecided_for_readers_elsewhere(tmp_path, how):
    with logstore.open(str(tmp_path)) as store:
        log = store.create_topic("t")[0]
        log.set_role(Role.FOLLOWER)
        log.extend([NewRecord(b"a"), NewRecord(b"b")], producer=ProducerIdentity(1, 0, 0, True))
        log.append_end_marker(1, 0, committed=True)
        log.append(b"c")
        log.update_high_watermark(2)
        if how == "roll":
            log.roll()
        log.flush()
        if how == "kill":
            log.checkpoint()
        if how != "close":
            check_reader(tmp_path)
    check_reader(tmp_path)


def check_reader(path):
    with logstore.open(str(path), read_only=True) as store:
        log = store["t"][0]
        assert (log.role, log.last_stable_offset) == (Role.FOLLOWER, 0)
        assert not [*log.read(isolation=Isolation.COMMITTED)]
        assert log.read_arrow(isolation=Isolation.COMMITTED).num_rows == 0
