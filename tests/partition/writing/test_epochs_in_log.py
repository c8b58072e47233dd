"""Leader epochs as the log keeps them (section 3.11 of the storage rules)."""

import pytest

from logstore.errors import UsageError
from tests.partition.helpers_rules import add, batch, crash, headers_of, open_log


def entries(log):
    return [tuple(entry) for entry in log.epoch_entries]


def test_a_new_log_is_in_epoch_0(log):
    assert (log.leader_epoch, entries(log)) == (0, [])
    add(log, b"a")
    assert entries(log) == [(0, 0)]


def test_a_new_leader_begins_at_the_log_end(log):
    add(log, b"a", b"b")
    log.assign_leader_epoch(4)
    assert (log.leader_epoch, entries(log)) == (4, [(0, 0), (4, 2)])
    add(log, b"c")
    assert [header.partition_leader_epoch for header in headers_of(log)] == [0, 4]


def test_the_same_epoch_again_changes_nothing(log):
    log.assign_leader_epoch(4)
    add(log, b"a")
    log.assign_leader_epoch(4)
    assert entries(log) == [(4, 0)]


def test_an_epoch_without_records_gives_way_to_the_next(log):
    log.assign_leader_epoch(4)
    log.assign_leader_epoch(6)
    assert entries(log) == [(6, 0)]


@pytest.mark.parametrize("epoch", [-1, 3, 2**31, True, "5", 5.0])
def test_an_epoch_that_goes_back_or_is_none_is_refused(log, epoch):
    log.assign_leader_epoch(4)
    with pytest.raises(UsageError, match="epoch"):
        log.assign_leader_epoch(epoch)
    add(log, b"a")


def test_the_largest_epoch_can_be_written(log):
    log.assign_leader_epoch(2**31 - 1)
    add(log, b"a")
    assert headers_of(log)[0].partition_leader_epoch == 2**31 - 1


def test_what_is_gathered_belongs_to_the_old_epoch(log):
    log.append(b"a")
    log.assign_leader_epoch(2)
    log.append(b"b")
    assert [header.partition_leader_epoch for header in headers_of(log)] == [0, 2]
    assert entries(log) == [(0, 0), (2, 1)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(0, (0, 2)), (1, (0, 2)), (3, (3, 5)), (4, (3, 5)), (7, (7, 6)), (8, (-1, -1)), (-1, (-1, -1))],
)
def test_where_an_epoch_ended(log, epoch, answer):
    add(log, b"0", b"1")
    log.assign_leader_epoch(3)
    add(log, b"2", b"3", b"4")
    log.assign_leader_epoch(7)
    log.append(b"5")
    assert log.end_offset_for_epoch(epoch) == answer


@pytest.mark.parametrize("how", ["close", "crash"])
def test_epochs_survive(log, how):
    add(log, b"a")
    log.assign_leader_epoch(4)
    add(log, b"b")
    if how == "close":
        log.close()
    else:
        crash(log)
    log = open_log(log.directory)
    assert (log.leader_epoch, entries(log)) == (4 if how == "close" else 5, [(0, 0), (4, 1)])


def test_a_followers_epoch_is_that_of_its_leader(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=9))
    add(log, b"b")
    assert [header.partition_leader_epoch for header in headers_of(log)] == [9, 9]


@pytest.mark.damaged
def test_a_replicated_epoch_that_contradicts_the_history_replaces_it(log):
    log.append_replicated(batch(b"a", partition_leader_epoch=9))
    log.append_replicated(batch(b"b", base_offset=1, partition_leader_epoch=5))
    assert entries(log) == [(5, 1)]
