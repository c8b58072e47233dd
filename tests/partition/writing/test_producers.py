"""Idempotent and transactional producers through the log (section 3.10 of the storage rules). The table of
rules itself is tested in ``test_producer_state``."""

import pytest

from logstore.errors import (
    InvalidRecordError,
    InvalidTransactionStateError,
    LeaderFencedError,
    OutOfOrderError,
    ProducerFencedError,
)
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.state.producer_state import REMEMBERED_BATCHES
from tests.partition.helpers_rules import (
    add,
    batch,
    crash,
    headers_of,
    identity,
    offsets_of,
    open_log,
    values_of,
)

MAX_SEQUENCE = 2**31 - 1


def send(log, sequence, *values, **who):
    return add(log, *(values or (b"v",)), producer=identity(sequence, **who))


def reopened(log, how):
    if how == "close":
        log.close()
    else:
        crash(log)
    return open_log(log.directory)


# Sequences


def test_a_batch_carries_its_producer(log):
    send(log, 5, b"a", b"b", producer=9, epoch=3, transactional=True)
    (header,) = headers_of(log)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, 5)
    assert header.is_transactional


def test_each_of_the_last_five_batches_is_a_duplicate_and_an_older_one_is_not(log):
    for sequence in range(REMEMBERED_BATCHES + 1):
        send(log, sequence)
    for sequence in range(1, REMEMBERED_BATCHES + 1):
        assert send(log, sequence) == range(sequence, sequence + 1)
    with pytest.raises(OutOfOrderError):
        send(log, 0)
    assert log.log_end_offset == REMEMBERED_BATCHES + 1


@pytest.mark.parametrize("sequence", [0, 1, 3, 9])
def test_a_sequence_that_does_not_follow_is_refused(log, sequence):
    send(log, 0, b"a", b"b")
    with pytest.raises(OutOfOrderError):
        send(log, sequence)
    assert offsets_of(log) == [0, 1]


def test_after_a_refusal_the_right_sequence_is_taken(log):
    send(log, 0)
    with pytest.raises(OutOfOrderError):
        send(log, 5)
    assert send(log, 1) == range(1, 2)


def test_the_sequence_wraps(log):
    send(log, MAX_SEQUENCE - 1, b"a", b"b")
    assert send(log, 0) == range(2, 3)
    assert send(log, MAX_SEQUENCE - 1, b"a", b"b") == range(2)


def test_a_batch_may_wrap_inside(log):
    send(log, MAX_SEQUENCE, b"a", b"b", b"c")
    assert send(log, 2) == range(3, 4)


def test_a_newer_epoch_begins_at_0_and_fences_the_older(log):
    send(log, 4)
    with pytest.raises(OutOfOrderError):
        send(log, 5, epoch=1)
    send(log, 0, epoch=1)
    with pytest.raises(ProducerFencedError):
        send(log, 5)


def test_producers_do_not_mix(log):
    send(log, 0, producer=1)
    send(log, 0, producer=2)
    send(log, 1, producer=1)
    assert send(log, 0, producer=2) == range(1, 2)


def test_records_of_one_call_are_one_batch_however_many(tmp_path):
    log = open_log(tmp_path / "t-0", batch_bytes=100)
    add(log, *[b"x" * 50] * 20, producer=identity(0))
    assert [header.record_count for header in headers_of(log)] == [20]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ((-1, 0, 0), "producer_id"),
        ((2**63, 0, 0), "producer_id"),
        ((7, -1, 0), "producer_epoch"),
        ((7, 2**15, 0), "producer_epoch"),
        ((7, 0, -1), "base_sequence"),
        ((7, 0, 2**31), "base_sequence"),
        ((7, 0, "0"), "base_sequence"),
        ((True, 0, 0), "producer_id"),
    ],
)
def test_an_identity_out_of_range_is_named(log, fields, named):
    with pytest.raises(InvalidRecordError, match=named):
        log.extend([b"v"], producer=ProducerIdentity(*fields))
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((-1, 0), "producer_id"), ((7, 2**15), "producer_epoch"), (("7", 0), "producer_id")],
)
def test_a_marker_of_nobody_is_refused(log, arguments, named):
    with pytest.raises(InvalidRecordError, match=named):
        log.append_end_marker(*arguments, committed=True)


# Transactions


def test_plain_data_in_an_open_transaction_is_refused(log):
    send(log, 0, transactional=True)
    with pytest.raises(InvalidTransactionStateError):
        send(log, 1)
    log.append_end_marker(7, 0, committed=True)
    send(log, 1)


def test_a_marker_of_an_older_producer_epoch_is_fenced(log):
    send(log, 0, epoch=2, transactional=True)
    with pytest.raises(ProducerFencedError):
        log.append_end_marker(7, 1, committed=True)
    assert log.log_end_offset == 1


def test_a_marker_of_an_older_coordinator_is_fenced(log):
    send(log, 0, transactional=True)
    log.append_end_marker(7, 0, committed=True, coordinator_epoch=5)
    send(log, 1, transactional=True)
    with pytest.raises(LeaderFencedError):
        log.append_end_marker(7, 0, committed=True, coordinator_epoch=4)
    log.append_end_marker(7, 0, committed=True, coordinator_epoch=5)


def test_a_marker_with_a_newer_epoch_makes_0_the_next_sequence(log):
    send(log, 0, transactional=True)
    log.append_end_marker(7, 1, committed=False)
    with pytest.raises(ProducerFencedError):
        send(log, 1, transactional=True)
    with pytest.raises(OutOfOrderError):
        send(log, 1, epoch=1)
    send(log, 0, epoch=1)


def test_a_replicated_transaction_counts_as_the_leaders_did(log):
    log.append_replicated(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=3, transactional=True))
    assert log.last_stable_offset == 0
    with pytest.raises(OutOfOrderError):
        send(log, 9, transactional=True)
    send(log, 4, transactional=True)


# Expiry


def test_a_producer_expires_by_the_clock_not_by_its_records(tmp_path):
    log = open_log(tmp_path / "t-0", producer_id_expiration_ms=1000)
    log.extend([(None, b"old", 5)], producer=identity(0))
    log._context.clock.advance(999)
    assert log.expire_producers() == 0
    log._context.clock.advance(1)
    assert log.expire_producers() == 1
    assert send(log, 50) == range(1, 2)


def test_an_open_transaction_does_not_expire(tmp_path):
    log = open_log(tmp_path / "t-0", producer_id_expiration_ms=1000)
    send(log, 0, transactional=True)
    log._context.clock.advance(5000)
    assert log.expire_producers() == 0


# Reopening


@pytest.mark.parametrize("how", ["close", "crash"])
def test_the_last_batch_is_remembered(log, how):
    send(log, 0)
    send(log, 1, b"a", b"b")
    log = reopened(log, how)
    assert send(log, 1, b"a", b"b") == range(1, 3)
    assert send(log, 3) == range(3, 4)


@pytest.mark.parametrize("how", ["close", "crash"])
def test_epochs_and_open_transactions_are_remembered(log, how):
    send(log, 0, epoch=2, transactional=True)
    log = reopened(log, how)
    assert log.last_stable_offset == 0
    with pytest.raises(ProducerFencedError):
        send(log, 1, epoch=1, transactional=True)
    log.append_end_marker(7, 2, committed=False)
    assert values_of(log, isolation=Isolation.COMMITTED) == []


@pytest.mark.parametrize("how", ["close", "crash"])
def test_a_producer_without_a_segment_left_is_remembered(log, how):
    send(log, 0)
    log.roll()
    log.delete_before(1)
    log = reopened(log, how)
    assert send(log, 0) == range(1)


def test_after_a_crash_all_five_batches_above_the_snapshot_are_remembered(log):
    for sequence in range(5):
        send(log, sequence)
    log = reopened(log, "crash")
    assert [send(log, sequence).start for sequence in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("how", ["close", "crash"])
def test_aborted_transactions_are_remembered_across_segments(log, how):
    send(log, 0, b"a", transactional=True)
    log.roll()
    send(log, 1, b"b", transactional=True)
    log.append_end_marker(7, 0, committed=False)
    add(log, b"c")
    log = reopened(log, how)
    assert values_of(log, isolation=Isolation.COMMITTED) == [b"c"]


@pytest.mark.parametrize("how", ["close", "crash"])
def test_a_producer_whose_batch_holds_the_log_start_is_remembered(log, how):
    send(log, 0, b"a", b"b", b"c")
    log.delete_before(1)
    log = reopened(log, how)
    assert send(log, 0, b"a", b"b", b"c") == range(3)


@pytest.mark.parametrize("how", ["close", "crash"])
def test_a_producer_without_a_segment_left_is_remembered_where_the_log_start_is_inside_the_next(log, how):
    send(log, 0)
    log.roll()
    add(log, b"a", b"b")
    log.delete_before(2)
    log = reopened(log, how)
    assert send(log, 0) == range(1)


def test_a_producer_without_a_segment_left_is_remembered_after_a_second_crash(log):
    send(log, 0)
    log.roll()
    send(log, 0, producer=8)
    log = reopened(log, "crash")  # both segments are recovered
    log.delete_before(1)
    add(log, b"a")
    log.roll()
    log = reopened(log, "crash")
    assert send(log, 0) == range(1)
    with pytest.raises(OutOfOrderError):
        send(log, 5)


def test_a_producer_without_a_segment_left_is_remembered_by_a_truncation_after_a_crash(log):
    send(log, 0)
    log.roll()
    add(log, b"a")
    add(log, b"b")
    log = reopened(log, "crash")
    log.delete_before(1)
    log.truncate_to(2)
    assert send(log, 0) == range(1)
