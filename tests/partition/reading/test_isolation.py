"""How far a reader sees: high watermark, last stable offset, durable offset (sections 3.5 and 8.4)."""

import pytest

from logstore.format.control import ControlType, decode_control_record
from logstore.model import AbortedTransaction, Isolation, Role
from tests.partition.helpers_rules import (
    add,
    add_batches,
    decode_all,
    identity,
    offsets_of,
    open_log,
    values_of,
)

LOG_END, HIGH_WATERMARK, COMMITTED, DURABLE = Isolation
ONE, TWO = 1, 2


def begin(log, producer, *values, sequence=0):
    return add(log, *values, producer=identity(sequence, producer=producer, transactional=True))


def commit(log, producer):
    return log.append_end_marker(producer, 0, committed=True).base_offset


def abort(log, producer):
    return log.append_end_marker(producer, 0, committed=False).base_offset


def committed(log, start=None):
    return values_of(log, start, isolation=COMMITTED)


# High watermark and log end


def test_on_a_single_replica_the_high_watermark_is_the_log_end(log):
    add(log, b"a", b"b")
    assert log.high_watermark == log.log_end_offset == 2


def test_a_managed_high_watermark_bounds_reads(log):
    add(log, b"a", b"b")
    log.set_role(Role.LEADER)
    add(log, b"c")
    assert offsets_of(log, isolation=HIGH_WATERMARK) == [0, 1]
    assert offsets_of(log, isolation=COMMITTED) == [0, 1]
    assert offsets_of(log, isolation=LOG_END) == [0, 1, 2]


def test_the_default_isolation_is_the_high_watermark(log):
    log.set_role(Role.LEADER)
    add(log, b"a")
    assert offsets_of(log) == []
    assert log.fetch(0).data == b""


def test_the_readable_offsets_are_those_that_a_read_gives(log):
    log.set_role(Role.LEADER)
    add_batches(log, 4)
    log.update_high_watermark(3)
    log.delete_before(1)
    assert log.readable_offsets() == range(1, 3)
    assert log.readable_offsets(LOG_END) == range(1, 4)
    assert list(log.readable_offsets()) == offsets_of(log)


def test_the_readable_offsets_end_where_they_begin_if_there_are_none(log):
    log.set_role(Role.LEADER)
    add_batches(log, 2)
    assert log.readable_offsets() == range(0)


@pytest.mark.parametrize("start", [1, 2])
def test_a_read_between_the_limit_and_the_log_end_is_empty(log, start):
    log.set_role(Role.LEADER)
    add_batches(log, 3)
    log.update_high_watermark(1)
    assert offsets_of(log, start) == []
    assert log.fetch(start)[:2] == (b"", start)


def test_a_fetch_leaves_out_a_batch_that_passes_the_high_watermark(log):
    log.set_role(Role.LEADER)
    add(log, b"a")
    add(log, b"b", b"c")
    log.update_high_watermark(2)
    assert [record.offset for record in decode_all(log.fetch(0).data)] == [0]
    assert offsets_of(log) == [0, 1]


# Durable


def test_durable_reads_stop_at_the_durable_offset(log):
    add(log, b"a", flush=True)
    add(log, b"b")
    assert offsets_of(log, isolation=DURABLE) == [0]
    log.flush()
    assert offsets_of(log, isolation=DURABLE) == [0, 1]


def test_a_durable_fetch_stops_there_too(log):
    add(log, b"a", flush=True)
    add(log, b"b")
    assert len(decode_all(log.fetch(0, isolation=DURABLE).data)) == 1


# Transactions


def test_committed_reads_stop_at_the_first_open_transaction(log):
    add(log, b"plain")
    begin(log, ONE, b"open")
    add(log, b"behind")
    assert log.last_stable_offset == 1
    assert committed(log) == [b"plain"]
    assert values_of(log) == [b"plain", b"open", b"behind"]


def test_a_committed_transaction_is_read(log):
    begin(log, ONE, b"a", b"b")
    commit(log, ONE)
    assert committed(log) == [b"a", b"b"]
    assert log.last_stable_offset == log.log_end_offset == 3


def test_an_aborted_transaction_is_left_out(log):
    add(log, b"x")
    begin(log, ONE, b"a", b"b")
    add(log, b"y")
    abort(log, ONE)
    assert committed(log) == [b"x", b"y"]
    assert values_of(log) == [b"x", b"a", b"b", b"y"]


def test_control_records_are_never_delivered(log):
    begin(log, ONE, b"a")
    commit(log, ONE)
    begin(log, TWO, b"b")
    abort(log, TWO)
    for isolation in Isolation:
        log.flush()
        assert set(offsets_of(log, isolation=isolation)) <= {0, 2}


def test_a_fetch_carries_the_control_batches(log):
    begin(log, ONE, b"a")
    offset = abort(log, ONE)
    marker = decode_all(log.fetch(0).data)[-1]
    assert marker.offset == offset
    assert decode_control_record(marker).control_type is ControlType.ABORT


def test_interleaved_transactions_end_each_by_itself(log):
    begin(log, ONE, b"1a")
    begin(log, TWO, b"2a")
    begin(log, ONE, b"1b", sequence=1)
    abort(log, ONE)
    assert log.last_stable_offset == 1
    begin(log, TWO, b"2b", sequence=1)
    commit(log, TWO)
    assert committed(log) == [b"2a", b"2b"]


def test_a_producers_second_transaction_is_its_own(log):
    begin(log, ONE, b"a")
    abort(log, ONE)
    begin(log, ONE, b"b", sequence=1)
    commit(log, ONE)
    begin(log, ONE, b"c", sequence=2)
    abort(log, ONE)
    begin(log, ONE, b"d", sequence=3)
    assert committed(log) == [b"b"]
    assert log.last_stable_offset == 6


@pytest.mark.parametrize("start", range(7))
def test_a_read_may_begin_inside_an_aborted_transaction(log, start):
    begin(log, ONE, b"0")
    add(log, b"1")
    begin(log, ONE, b"2", sequence=1)
    begin(log, TWO, b"3")
    abort(log, ONE)  # 4
    commit(log, TWO)  # 5
    add(log, b"6")
    assert offsets_of(log, start, isolation=COMMITTED) == [o for o in (1, 3, 6) if o >= start]


def test_a_fetch_lists_the_aborted_transactions(log):
    begin(log, ONE, b"a")
    abort(log, ONE)
    assert log.fetch(0, isolation=COMMITTED).aborted == (AbortedTransaction(ONE, 0, 1, 2),)
    assert log.fetch(0).aborted == ()


def test_the_list_is_complete_across_segments(log):
    begin(log, ONE, b"0")
    log.roll()
    add(log, b"1")
    log.roll()
    begin(log, ONE, b"2", sequence=1)
    log.roll()
    begin(log, TWO, b"3")
    log.roll()
    abort(log, TWO)  # 4
    abort(log, ONE)  # 5
    add(log, b"6")
    assert committed(log) == [b"1", b"6"]
    listed = log.fetch(0, isolation=COMMITTED).aborted
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in listed] == [(ONE, 0, 5)]
    assert [entry[1:3] for entry in log.fetch(3, isolation=COMMITTED).aborted] == [(3, 4), (0, 5)]


def test_the_list_stops_at_what_is_returned(log):
    begin(log, ONE, b"0")
    abort(log, ONE)
    begin(log, ONE, b"2", sequence=1)
    abort(log, ONE)
    size = len(log.fetch(0, max_bytes=1).data)
    assert len(log.fetch(0, max_bytes=size, isolation=COMMITTED).aborted) == 1
    assert len(log.fetch(0, isolation=COMMITTED).aborted) == 2


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated(log):
    log.set_role(Role.LEADER)
    begin(log, ONE, b"a")
    commit(log, ONE)
    log.update_high_watermark(1)
    assert log.last_stable_offset == 0
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_the_last_stable_offset_is_never_below_the_log_start(log):
    begin(log, ONE, b"a")
    add(log, b"b")
    log.delete_before(1)
    assert log.last_stable_offset == 1


def test_transactions_survive_reopening(tmp_path):
    log = open_log(tmp_path / "t-0")
    begin(log, ONE, b"a")
    abort(log, ONE)
    begin(log, TWO, b"b")
    log.close()
    log = open_log(tmp_path / "t-0")
    assert log.last_stable_offset == 2
    commit(log, TWO)
    assert committed(log) == [b"b"]


def test_a_truncated_marker_opens_its_transaction_again(log):
    begin(log, ONE, b"a")
    marker = abort(log, ONE)
    log.truncate_to(marker)
    assert log.last_stable_offset == 0
    commit(log, ONE)
    assert committed(log) == [b"a"]
