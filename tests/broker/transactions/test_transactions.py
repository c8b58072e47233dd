"""Transactions at the seam, on a clock set by hand."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.requests import (
    InitProducerIdRequest,
    OffsetFetchRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.transactions.requests import ListTransactions, TransactionMarker
from logstore.broker.transactions.states import TransactionState, state_of_number
from logstore.config import TopicConfig
from logstore.format.messages.transaction_records import decode_transaction_key, decode_transaction_value
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import ActiveProducer, Isolation, TopicPartition
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
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
    assert found.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


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


@pytest.mark.parametrize("ms", [0, 15_000], ids=["before it is seen", "later"])
def test_time_is_up_although_the_clock_was_set_back(rig, ms):
    """By an hour, for which readers of committed records waited."""
    slow = Transactional(rig, timeout_ms=20_000)
    assert slow.start() is OK
    assert slow.send(b"slow") is OK
    rig.pass_time(ms)
    rig.clock.jump(-3_600_000)
    for _ in range(2 - ms // 10_000):
        rig.pass_time(10_000)
    assert described(rig).state is TransactionState.ONGOING
    for _ in range(2):
        rig.pass_time(10_000)
    for _ in range(5):
        rig.pass_time(0)
    assert described(rig).state is TransactionState.COMPLETE_ABORT
    assert slow.end() is ErrorCode.PRODUCER_FENCED


def test_the_time_of_each_transaction_is_its_own_although_the_clock_was_set_back(rig):
    producer = Transactional(rig, timeout_ms=20_000)
    assert producer.start() is OK
    rig.clock.jump(-3_600_000)
    for number in range(6):
        assert producer.send(b"%d" % number) is OK
        rig.pass_time(10_000)
        assert producer.end() is OK
    assert len(committed(rig)) == 6


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


def test_a_producer_that_goes_on_has_no_transaction_to_end(rig, producer):
    """The one that was open is aborted for it; an end of it that comes late is none of the next, as with
    Kafka."""
    first = producer.me
    assert producer.send(b"a") is OK
    assert producer.start(producer_id=first.producer_id, producer_epoch=first.producer_epoch) is OK
    assert producer.epoch == first.producer_epoch + 1
    assert described(rig).state is TransactionState.EMPTY
    assert producer.end(committed=False) is ErrorCode.INVALID_TXN_STATE
    assert producer.send(b"b") is OK
    assert producer.end() is OK
    assert committed(rig) == [b"b"]


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
        assert found.error is OK
        return sorted(each.transactional_id for each in found.transactions)

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


class Reopened(Rig):
    """The broker of a directory that is there."""

    def __init__(self, image):
        self.clock = ManualClock()
        self.files = MemoryFiles(image)
        self.directory = LogDirectory("/data", files=self.files, clock=self.clock, seed=2)
        self.broker = LocalBroker(self.directory)
        self.broker.finish_transactions()


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_process_that_dies_at_any_operation_of_an_end(rig, newer, is_committed):
    """The next one is asked for the same end, by a producer that has not heard the answer. 1 s each."""
    assert newer.send(b"a") is OK
    assert newer.send(b"b", to=T1) is OK
    me = newer.me
    images = [rig.files.now()]
    rig.files.before = lambda operation: images.append(rig.files.now())
    assert newer.end(committed=is_committed) is OK
    rig.pass_time(1_000)  # that it is over is stored a little later
    rig.files.before = None
    images.append(rig.files.now())
    assert newer.epoch == me.producer_epoch + 1
    assert len(images) > 8
    for image in images:
        again = Reopened(image)
        producer = Transactional(again, "newer", takes_epoch=True)
        for other in (not is_committed, is_committed):
            producer.producer_id, producer.epoch = me.producer_id, me.producer_epoch
            state = described(again, "newer").state
            if state is TransactionState.ONGOING and other is not is_committed:
                continue  # nothing was decided: it would be
            expected = OK if other is is_committed else ErrorCode.INVALID_TXN_STATE
            assert producer.end(committed=other) is expected
        assert (producer.producer_id, producer.epoch) == (newer.producer_id, newer.epoch)
        late = Transactional(again, "newer")
        late.producer_id, late.epoch = me.producer_id, me.producer_epoch
        assert late.write(b"late") is ErrorCode.PRODUCER_FENCED
        assert producer.send(b"next") is OK
        assert producer.end() is OK
        assert committed(again) == [b"a", b"next"][not is_committed :]
        assert committed(again, T1) == [b"b"][not is_committed :]


def test_a_producer_whose_time_was_up_hears_it_after_a_restart_too(rig):
    """Its epoch is the one before, as of a producer that has ended the transaction itself."""
    slow = Transactional(rig, timeout_ms=20_000, takes_epoch=True)
    assert slow.start() is OK
    assert slow.send(b"kept") is OK
    assert slow.end() is OK
    assert slow.send(b"slow") is OK
    rig.pass_time(30_000)
    rig.pass_time(10_000)
    for _ in range(5):
        rig.pass_time(0)
    assert described(rig).state is TransactionState.COMPLETE_ABORT
    again = Reopened(rig.files.now())
    for each in (rig, again):
        slow.rig = each
        assert slow.end() is ErrorCode.PRODUCER_FENCED
        assert slow.end(committed=False) is ErrorCode.PRODUCER_FENCED
        assert slow.write(b"late") is ErrorCode.PRODUCER_FENCED


class TestWithoutTheCoordinator:
    """What partitions know of producers, and the end of a transaction that no coordinator will end."""

    def describe(self, rig, *partitions):
        return rig.now(rig.broker.describe_producers(partitions)).partitions

    def mark(self, rig, *partitions, epoch=0, **changes):
        marker = TransactionMarker(7, epoch, True, partitions)._replace(**changes)
        return [each.error for each in rig.soon(rig.broker.write_transaction_markers((marker,))).partitions]

    @pytest.fixture
    def hanging(self, rig):
        stamp = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        rig.directory.log(T1).append_batch(batch_of([b"a", b"b"], rig.clock.now_ms(), **stamp))
        return ActiveProducer(7, 0, 1, rig.clock.now_ms(), -1, 0)

    def test_each_partition_knows_its_own(self, rig, hanging):
        nowhere = TopicPartition("nowhere", 0)
        first, second, third = self.describe(rig, nowhere, T1, T0)
        assert (first.error, first.producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
        assert (second.partition, second.error, second.producers) == (T1, OK, (hanging,))
        assert (third.error, third.producers) == (OK, ())

    def test_a_marker_ends_it(self, rig, hanging):
        assert committed(rig, T1) == []
        assert self.mark(rig, T1, TopicPartition("t", 5)) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert committed(rig, T1) == [b"a", b"b"]
        (found,) = self.describe(rig, T1)
        assert found.producers == (hanging._replace(coordinator_epoch=0, transaction_first_offset=None),)

    def test_newer_epochs_refuse_it(self, rig, hanging):
        assert self.mark(rig, T1, epoch=3, coordinator_epoch=5) == [OK]
        assert self.mark(rig, T1, epoch=2, coordinator_epoch=5) == [ErrorCode.INVALID_PRODUCER_EPOCH]
        for coordinator_epoch in (4, -1):
            refused = self.mark(rig, T1, epoch=3, coordinator_epoch=coordinator_epoch)
            assert refused == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]

    def test_a_disk_that_refuses(self):
        disk = FaultyFiles(MemoryFiles())
        rig = Rig(files=disk)
        disk.fail(FAULTS["ENOSPC"], kinds=["write"], path="t-0/", times=None)
        assert self.mark(rig, T0, T1) == [ErrorCode.KAFKA_STORAGE_ERROR, OK]
        disk.heal()
        assert self.mark(rig, T0) == [OK]

    def test_a_disk_that_cannot_flush(self):
        disk = FaultyFiles(MemoryFiles())
        rig = Rig(files=disk)
        disk.fail(FAULTS["EIO"], kinds=["flush"], path="t-0/", times=None)
        assert self.mark(rig, T0) == [ErrorCode.KAFKA_STORAGE_ERROR]


STATE = TopicPartition(TRANSACTIONS_TOPIC, 0)


class TestEnds:
    """That a transaction is over is stored with what comes next of its id, or a little later. Nothing waits
    for it: the decision and the markers say the same."""

    @pytest.fixture
    def disk(self):
        return FaultyFiles(MemoryFiles())

    @pytest.fixture
    def rig(self, disk):
        return Rig(files=disk)

    def stored(self, rig, name="newer"):
        values = [
            decode_transaction_value(record.value)
            for record in rig.directory.log(STATE).read(isolation=Isolation.LOG_END)
            if decode_transaction_key(record.key) == name
        ]
        return [state_of_number(value.status).value for value in values]

    def test_the_next_transaction_takes_its_place(self, rig, newer):
        for outcome in (True, False, True):
            assert newer.send(b"%d" % outcome) is OK
            assert newer.end(committed=outcome) is OK
            assert described(rig, "newer").state in (
                TransactionState.COMPLETE_COMMIT,
                TransactionState.COMPLETE_ABORT,
            )
        assert self.stored(rig) == [
            *("Empty", "Ongoing", "PrepareCommit"),
            *("Ongoing", "PrepareAbort"),
            *("Ongoing", "PrepareCommit"),
        ]
        rig.pass_time(99)
        assert self.stored(rig)[-1] == "PrepareCommit"
        rig.pass_time(1)
        assert self.stored(rig)[-2:] == ["PrepareCommit", "CompleteCommit"]
        rig.pass_time(10_000)
        assert self.stored(rig)[-2:] == ["PrepareCommit", "CompleteCommit"]

    def test_those_of_many_ids_are_one_batch(self, rig):
        producers = [Transactional(rig, f"id-{number}", takes_epoch=True) for number in range(20)]
        for each in producers:
            assert each.start() is OK
            assert each.send(b"x") is OK
            assert each.end() is OK
        assert producers[0].send(b"y") is OK  # its end is not missing any more
        counts = rig.directory.log(STATE).writer.core.counts
        batches, records = counts.appended_batch_count, counts.appended_record_count
        rig.pass_time(100)
        assert (counts.appended_batch_count, counts.appended_record_count) == (batches + 1, records + 19)
        for each in producers:
            assert self.stored(rig, each.name)[-1] == (
                "Ongoing" if each is producers[0] else "CompleteCommit"
            )

    def test_closing_stores_them(self, rig, newer):
        assert newer.send(b"x") is OK
        assert newer.end() is OK
        rig.broker.close()
        assert self.stored(rig)[-1] == "CompleteCommit"

    def test_what_the_disk_refuses_is_tried_again(self, rig, newer, disk):
        assert newer.send(b"x") is OK
        assert newer.end() is OK
        disk.fail(FAULTS["ENOSPC"], kinds=["write"], path=TRANSACTIONS_TOPIC, times=None)
        rig.pass_time(100)
        assert newer.add(T0) is ErrorCode.KAFKA_STORAGE_ERROR
        rig.pass_time(500)
        disk.heal()
        assert self.stored(rig)[-1] == "PrepareCommit"
        rig.pass_time(500)
        assert self.stored(rig)[-1] == "CompleteCommit"
        assert newer.send(b"y") is OK

    def test_where_the_next_one_has_the_same_epoch_it_is_stored_at_once(self, rig, producer):
        assert producer.send(b"x") is OK
        assert producer.end() is OK
        assert self.stored(rig, "shop")[-1] == "CompleteCommit"
        log = rig.directory.log(STATE)
        assert producer.add(T0) is OK
        assert log.durable_offset >= log.log_end_offset - 1  # all but what was just added

    def test_a_new_producer_id_is_stored_at_once(self, rig, newer):
        """Else a power cut could leave records of an id that is in no state."""
        entry = rig.broker._transaction_coordinator()._entries["newer"]
        entry.transaction = entry.transaction._replace(producer_epoch=2**15 - 2)
        newer.epoch = 2**15 - 2
        assert newer.send(b"x") is OK
        assert newer.end() is OK
        assert newer.add(T0) is OK
        assert self.stored(rig)[-2:] == ["CompleteCommit", "Ongoing"]
        log = rig.directory.log(STATE)
        assert log.durable_offset >= log.log_end_offset - 1


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
