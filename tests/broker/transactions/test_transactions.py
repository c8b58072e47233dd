"""Transactions at the seam, on a clock set by hand."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.transactions.requests import ListTransactions
from logstore.broker.transactions.states import TransactionState
from logstore.config import TopicConfig
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.model import Isolation, TopicPartition
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from tests.broker.rig import T0, T1, Rig, Transactional, batch_of

OK = ErrorCode.NONE


@pytest.fixture
def rig():
    return Rig()


@pytest.fixture
def producer(rig):
    made = Transactional(rig)
    assert made.start() is OK
    return made


@pytest.fixture
def newer(rig):
    """One whose transactions each have an epoch of their own (KIP-890)."""
    made = Transactional(rig, "newer", takes_epoch=True)
    assert made.start() is OK
    return made


def committed(rig, partition=T0):
    return [record.value for record in rig.directory.log(partition).read(isolation=Isolation.COMMITTED)]


def described(rig, name="shop"):
    (found,) = rig.now(rig.broker.describe_transactions((name,)))
    return found


def test_all_partitions_end_alike(rig, producer):
    for outcome in (True, False, True):
        assert producer.add(T0, T1) is OK
        assert producer.write(b"%d" % outcome, to=T0) is OK
        assert producer.write(b"%d" % outcome, to=T1) is OK
        before = len(committed(rig))
        assert producer.end(committed=outcome) is OK
        assert len(committed(rig)) == len(committed(rig, T1)) == before + outcome
    assert committed(rig) == committed(rig, T1) == [b"1", b"1"]
    assert rig.directory.log(T0).open_transactions() == {}


def test_offsets_are_part_of_it(rig, producer):
    def stored(**options):
        return rig.now(rig.broker.offset_fetch(OffsetFetchRequest("g", **options)))

    for outcome, expected in ((False, None), (True, 7), (False, 7)):
        assert producer.commit_offsets("g", {T0: 7 if outcome else 9}) is OK
        assert T0 in stored(require_stable=True).unstable
        assert producer.end(committed=outcome) is OK
        found = stored().offsets.get(T0)
        assert (None if found is None else found.offset) == expected
        assert not stored(require_stable=True).unstable


def test_a_batch_needs_its_partition_in_the_open_transaction(rig, producer):
    assert producer.write(b"a") is ErrorCode.INVALID_TXN_STATE
    assert producer.add(T0) is OK
    assert producer.write(b"a", to=T1) is ErrorCode.INVALID_TXN_STATE
    assert producer.write(b"a") is OK
    assert producer.end() is OK
    assert producer.write(b"b") is ErrorCode.INVALID_TXN_STATE
    assert rig.directory.log(T1).log_end_offset == 0
    data = batch_of([b"x"], rig.clock.now_ms(), producer_id=5, producer_epoch=0, transactional=True)
    (found,) = rig.now(rig.broker.produce(ProduceRequest(1, 0, (ProducePartition(T0, data),)))).partitions
    assert found.error is ErrorCode.INVALID_TXN_STATE


def test_a_new_producer_aborts_what_the_old_one_left_and_shuts_it_out(rig, producer):
    assert producer.send(b"lost") is OK
    successor = Transactional(rig)
    assert successor.start() is OK
    assert (successor.producer_id, successor.epoch) == (producer.producer_id, producer.epoch + 2)
    assert producer.write(b"late") is ErrorCode.PRODUCER_FENCED
    assert producer.add(T1) is ErrorCode.PRODUCER_FENCED
    assert producer.end() is ErrorCode.PRODUCER_FENCED
    assert producer.commit_offsets("g", {T0: 1}) is ErrorCode.PRODUCER_FENCED
    assert successor.send(b"new") is OK
    assert successor.end() is OK
    assert committed(rig) == [b"new"]


def test_time_is_up(rig):
    slow = Transactional(rig, timeout_ms=20_000)
    assert slow.start() is OK
    assert slow.send(b"slow") is OK
    rig.pass_time(20_000)
    assert described(rig).state is TransactionState.ONGOING
    rig.pass_time(10_000)
    for _ in range(5):
        rig.pass_time(0)
    assert described(rig).state is TransactionState.COMPLETE_ABORT
    assert rig.directory.log(T0).open_transactions() == {}
    assert slow.end() is ErrorCode.PRODUCER_FENCED
    assert slow.start() is OK
    assert slow.send(b"again") is OK
    assert slow.end() is OK
    assert committed(rig) == [b"again"]


def test_each_transaction_has_its_epoch_where_the_client_can(rig, newer):
    for epoch in range(3):
        assert newer.epoch == epoch
        assert newer.send(b"%d" % epoch) is OK
        old = newer.me
        assert newer.end() is OK
        newer_now = newer.epoch
        newer.epoch = old.producer_epoch
        assert newer.write(b"late") is ErrorCode.PRODUCER_FENCED
        assert newer.end() is OK  # asked once more: the answer was lost
        assert newer.epoch == newer_now
    assert committed(rig) == [b"0", b"1", b"2"]
    assert newer.end(committed=False) is OK  # nothing to abort: only the next epoch
    assert newer.epoch == 4
    assert newer.end() is ErrorCode.INVALID_TXN_STATE


def test_epochs_are_used_up(rig, newer):
    entry = rig.broker._transaction_coordinator()._entries["newer"]
    entry.transaction = entry.transaction._replace(producer_epoch=2**15 - 2)
    newer.epoch, first = 2**15 - 2, newer.producer_id
    assert newer.send(b"last") is OK
    last = newer.me
    assert newer.end() is OK
    assert newer.producer_id != first
    assert newer.epoch == 0
    now = newer.me
    newer.producer_id, newer.epoch = last.producer_id, last.producer_epoch
    assert newer.end() is OK  # asked once more
    assert newer.me == now
    assert newer.send(b"first") is OK
    assert newer.end() is OK
    assert committed(rig) == [b"last", b"first"]


def test_a_producer_that_goes_on_asks_for_the_next_epoch(rig, producer):
    first = producer.me
    asks = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    assert producer.start(**asks) is OK
    assert producer.epoch == first.producer_epoch + 1
    assert producer.start(**asks) is OK  # asked once more
    assert producer.epoch == first.producer_epoch + 1
    assert producer.start(producer_id=first.producer_id, producer_epoch=9) is ErrorCode.PRODUCER_FENCED
    assert producer.start(producer_id=123, producer_epoch=0) is ErrorCode.PRODUCER_FENCED


def test_an_end_is_asked_twice(producer):
    for outcome in (True, False):
        assert producer.send(b"a") is OK
        assert producer.end(committed=outcome) is OK
        assert producer.end(committed=outcome) is OK
        assert producer.end(committed=not outcome) is ErrorCode.INVALID_TXN_STATE


def test_what_is_refused(rig, producer):
    def start(name, timeout_ms=1000):
        return rig.now(rig.broker.init_producer_id(InitProducerIdRequest(name, timeout_ms))).error

    assert start("") is ErrorCode.INVALID_REQUEST
    assert start("a", 0) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert start("a", 900_001) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    stranger = Transactional(rig, "stranger")
    assert stranger.add(T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stranger.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.epoch += 1
    assert producer.add(T0) is ErrorCode.PRODUCER_FENCED
    producer.producer_id += 1
    assert producer.add(T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert described(rig, "stranger").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_a_partition_that_is_deleted_ends_no_transaction(rig, producer):
    rig.directory.create_topic("gone", 1, TopicConfig())
    gone = TopicPartition("gone", 0)
    assert producer.add(T0, gone) is OK
    assert producer.write(b"a") is OK
    assert producer.write(b"a", to=gone) is OK
    rig.directory.delete_topic("gone")
    assert producer.end() is OK
    assert committed(rig) == [b"a"]
    assert producer.send(b"b") is OK
    assert producer.end() is OK


def test_they_are_listed_and_described(rig, producer, newer):
    start_ms = rig.clock.now_ms()
    assert producer.add(T0, T1) is OK
    rig.pass_time(5_000)

    def names(**filters):
        found = rig.now(rig.broker.list_transactions(ListTransactions(**filters)))
        return sorted(each.transactional_id for each in found)

    assert names() == ["newer", "shop"]
    assert names(states=frozenset({TransactionState.ONGOING})) == ["shop"]
    assert names(producer_ids=frozenset({newer.producer_id})) == ["newer"]
    assert names(open_for_ms=5_000) == []
    assert names(open_for_ms=4_999) == ["shop"]
    found = described(rig)
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert found.partitions == {T0, T1}
    assert (found.start_ms, found.timeout_ms) == (start_ms, 60_000)


def test_an_id_that_is_not_used_is_forgotten(rig, producer):
    rig.pass_time(604_800_000)
    assert described(rig).error is OK
    rig.pass_time(10_001)
    assert described(rig).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    records = list(rig.directory.log(TopicPartition(TRANSACTIONS_TOPIC, 0)).read())
    assert records[-1].value is None
    first = producer.producer_id
    assert producer.start() is OK
    assert producer.producer_id != first


class TestALogThatRefusesItsMarker:
    """The decision stands. The marker is tried again, by a timer and by the next request of the id."""

    @pytest.fixture
    def disk(self):
        return FaultyFiles(MemoryFiles())

    @pytest.fixture
    def producer(self, disk):
        rig = Rig(files=disk)
        made = Transactional(rig, takes_epoch=True)
        assert made.start() is OK
        assert made.send(b"a") is OK
        disk.fail(FAULTS["ENOSPC"], kinds=["write"], path="t-0/", times=None)
        assert made.end() is OK
        assert committed(rig) == []
        return made

    def test_the_next_request_is_told(self, producer, disk):
        successor = Transactional(producer.rig)
        for _ in range(3):
            assert producer.add(T1) is ErrorCode.KAFKA_STORAGE_ERROR
            assert successor.start() is ErrorCode.KAFKA_STORAGE_ERROR
        disk.heal()
        assert producer.add(T1) is OK
        assert committed(producer.rig) == [b"a"]

    def test_it_is_tried_again_in_time(self, producer, disk):
        rig = producer.rig
        for _ in range(3):
            tries = len(disk.failures)
            rig.pass_time(500)
            assert len(disk.failures) == tries + 1
        disk.heal()
        rig.pass_time(500)
        assert committed(rig) == [b"a"]
