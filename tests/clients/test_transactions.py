# ruff: noqa: PT012 - the blocks are what is tested
"""Transactions of producers: all or nothing, in every reader's eyes, and what wrong use is told."""

from __future__ import annotations

import contextlib
import random
import shutil
import threading

import pytest

import logstore
from logstore import Isolation
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import ProducedPartition, ProduceResult
from logstore.broker.storing.transactions import LocalLogs
from logstore.broker.transactions.coordinator import TransactionCoordinator
from logstore.broker.transactions.requests import (
    AddPartitionsResult,
    EndTransactionResult,
    ListTransactions,
)
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.clients.transactions.status import TransactionStatus
from logstore.errors import (
    CorruptionError,
    InvalidConfigError,
    InvalidTransactionStateError,
    ProducerFencedError,
    ReadOnlyError,
    RecordTooLargeError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.messages.transaction_records import encode_transaction_key
from logstore.model import ProducerIdentity
from logstore.testing import ManualClock


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("a", partitions=2)
        store.create_topic("b")
        yield store


def committed(store, topic="a"):
    return sorted(record.value for log in store[topic] for record in log.read(isolation=Isolation.COMMITTED))


def everything(store, topic="a"):
    return sorted(record.value for log in store[topic] for record in log.read(isolation=Isolation.LOG_END))


class TestAllOrNothing:
    def test_leaving_the_block_commits(self, store):
        with store.producer(transactional_id="x") as producer:
            for number in range(3):
                with producer.transaction():
                    sent = producer.send("a", b"%d" % number)
                    producer.send("b", b"%d" % number)
                assert sent.result().offset >= 0
        assert committed(store) == committed(store, "b") == [b"0", b"1", b"2"]
        for log in (*store["a"], *store["b"]):  # all but the last marker, which can be written once more
            assert log.durable_offset >= log.log_end_offset - 1

    def test_an_exception_aborts_and_goes_on(self, store):
        with store.producer(transactional_id="x", linger_ms=10_000) as producer:
            sent = []
            with pytest.raises(KeyError, match="what"), producer.transaction():
                sent.append(producer.send("a", b"lost"))
                raise KeyError("what")
            with pytest.raises(InvalidTransactionStateError, match="was aborted"):
                sent[0].result()
            with producer.transaction():
                producer.send("a", b"kept")
        assert committed(store) == [b"kept"]

    def test_what_was_sent_already_is_aborted_too(self, store):
        with store.producer(transactional_id="x", linger_ms=0) as producer:
            with pytest.raises(KeyError), producer.transaction():
                producer.send("a", b"lost", partition=0).result()
                raise KeyError
            assert everything(store) == [b"lost"]
            assert committed(store) == []
            assert store["a"][0].last_stable_offset == store["a"][0].log_end_offset

    def test_by_hand(self, store):
        with store.producer(transactional_id="x") as producer:
            with producer.transaction() as transaction:
                producer.send("a", b"1")
                transaction.commit()
                with pytest.raises(InvalidTransactionStateError, match="is over"):
                    transaction.abort()
            with producer.transaction() as transaction:
                producer.send("a", b"2")
                transaction.abort()
        assert committed(store) == [b"1"]

    def test_a_transaction_without_records_writes_nothing(self, store):
        with store.producer(transactional_id="x") as producer:
            end = store["__transaction_state"][0].log_end_offset
            with producer.transaction():
                pass
            assert store["__transaction_state"][0].log_end_offset == end

    def test_offsets_of_a_consumer(self, store):
        store["a"][0].extend([b"1", b"2"])
        with (
            store.consumer("a", group="g", isolation=Isolation.COMMITTED) as consumer,
            store.producer(transactional_id="x") as producer,
        ):
            records = consumer.poll(timeout=5)
            with pytest.raises(KeyError), producer.transaction() as transaction:
                transaction.commit_offsets(consumer)
                raise KeyError
            assert consumer.committed() == {}
            with producer.transaction() as transaction:
                for record in records:
                    producer.send("b", record.value)
                transaction.commit_offsets(consumer)
                transaction.commit_offsets("other", {("a", 1): 0})
            assert consumer.committed()[("a", 0)].offset == 2
        assert committed(store, "b") == [b"1", b"2"]
        assert store.offsets("other")[("a", 1)].offset == 0

    def test_the_next_opening_ends_what_was_decided(self, tmp_path, store):
        """As after a kill between the decision and the markers."""
        producer = store.producer(transactional_id="x")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "logstore.broker.storing.transactions.LocalLogs._append_marker", lambda *arguments: False
            )
            with producer.transaction():
                producer.send("a", b"kept")
            assert committed(store) == []
            producer.close()
            store.close()
        with logstore.open(tmp_path / "store") as again:
            assert committed(again) == [b"kept"]


class TestWrongUse:
    def test_a_record_outside(self, store):
        with store.producer(transactional_id="x") as producer:
            with pytest.raises(InvalidTransactionStateError, match=r"with producer.transaction\(\)"):
                producer.send("a", b"1")
            with producer.transaction():
                producer.send("a", b"1")
            with pytest.raises(InvalidTransactionStateError):
                producer.send("a", b"2")
        assert everything(store) == [b"1"]

    def test_a_producer_without_an_id(self, store):
        with store.producer() as producer, pytest.raises(UsageError, match="transactional_id="):
            producer.transaction()

    def test_twice_and_two_at_a_time(self, store):
        with store.producer(transactional_id="x") as producer:
            transaction = producer.transaction()
            with pytest.raises(InvalidTransactionStateError, match="has not begun"):
                transaction.commit()
            with transaction:
                producer.send("a", b"1")
                with pytest.raises(InvalidTransactionStateError, match="has an open"), producer.transaction():
                    pass
            with pytest.raises(InvalidTransactionStateError, match="is used once"), transaction:
                pass
        assert committed(store) == [b"1"]

    @pytest.mark.parametrize("first", [[], [b"0"]], ids=["nothing is open", "a batch is open"])
    def test_another_thread(self, store, first):
        errors = []

        def use(action):
            try:
                action()
            except UsageError as error:
                errors.append(str(error))

        with (
            store.producer(transactional_id="x", linger_ms=10_000) as producer,
            producer.transaction() as transaction,
        ):
            for value in first:
                producer.send("a", value, partition=0)
            for action in (
                lambda: producer.send("a", b"1", partition=0),
                lambda: producer.send("unknown", b"1"),
                transaction.commit,
                transaction.abort,
            ):
                thread = threading.Thread(target=use, args=(action,))
                thread.start()
                thread.join()
        assert len(errors) == 4
        assert all("begun by another thread" in error for error in errors)
        assert committed(store) == first

    def test_another_producer_takes_the_id(self, store):
        first = store.producer(transactional_id="x")
        with pytest.raises(ProducerFencedError, match="another producer"), first.transaction():
            first.send("a", b"lost")
            with store.producer(transactional_id="x") as second, second.transaction():
                second.send("a", b"kept")
        with pytest.raises(ProducerFencedError), first.transaction():
            pass
        assert committed(store) == [b"kept"]

    def test_a_record_that_fails_aborts_the_rest(self, store):
        with store.producer(transactional_id="x") as producer:
            with pytest.raises(RecordTooLargeError), producer.transaction():
                producer.send("a", b"lost")
                producer.send("a", b"x" * 2_000_000)
            with producer.transaction():
                producer.send("a", b"kept")
        assert committed(store) == [b"kept"]

    @pytest.mark.parametrize(
        "settings",
        [
            {"transactional_id": ""},
            {"transactional_id": 7},
            {"transactional_id": "x" * 32_768},
            {"transactional_id": "\ud800"},
            {"transactional_id": "x", "acks": 1},
            {"transactional_id": "x", "enable_idempotence": False},
            {"transactional_id": "x", "transaction_timeout_ms": 0},
        ],
    )
    def test_settings(self, store, settings):
        with pytest.raises(InvalidConfigError):
            store.producer(**settings)

    def test_a_time_out_that_the_store_does_not_allow(self, store):
        with pytest.raises(UsageError, match="transaction_max_timeout_ms"):
            store.producer(transactional_id="x", transaction_timeout_ms=900_001)

    def test_a_group_that_the_consumer_has_left(self, store):
        with store.producer(transactional_id="x") as producer:
            consumer = store.consumer("a")
            with pytest.raises(UsageError, match="no group"), producer.transaction() as transaction:
                transaction.commit_offsets(consumer)
            with pytest.raises(UsageError, match="neither a consumer"), producer.transaction() as transaction:
                transaction.commit_offsets(7)
            with pytest.raises(UsageError, match="needs offsets"), producer.transaction() as transaction:
                transaction.commit_offsets("g")


class LossyBroker:
    """Passes requests on, and loses some of them, or their answers. Repeats itself with the same seed."""

    def __init__(self, broker, seed):
        self._broker = broker
        self._random = random.Random(seed)

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def _ask(self, ask, failed):
        drawn = self._random.random()
        if drawn < 0.15:
            return Answered(failed)
        pending = ask()
        return Answered(failed) if drawn < 0.3 else pending

    def produce(self, request):
        lost = ProducedPartition(request.partitions[0].partition, ErrorCode.NETWORK_EXCEPTION)
        return self._ask(lambda: self._broker.produce(request), ProduceResult((lost,)))

    def add_partitions_to_transaction(self, request):
        lost = AddPartitionsResult(dict.fromkeys(request.partitions, ErrorCode.NETWORK_EXCEPTION))
        return self._ask(lambda: self._broker.add_partitions_to_transaction(request), lost)

    def end_transaction(self, request):
        lost = EndTransactionResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return self._ask(lambda: self._broker.end_transaction(request), lost)


@pytest.mark.parametrize("seed", range(20))
def test_a_network_that_loses_requests_and_answers(store, seed):
    """Some 40 ms each."""
    chance = random.Random(seed)
    producer = Producer(
        LossyBroker(store._open_broker(store._directory), seed),
        config=ProducerConfig(transactional_id="x", retry_backoff_ms=1, linger_ms=chance.choice((0, 5))),
    )
    kept = []
    for number in range(12):
        values = [b"%d-%d" % (number, each) for each in range(chance.randint(0, 4))]
        is_kept = chance.random() < 0.6
        with producer.transaction() as transaction:
            for value in values:
                producer.send("a", value, partition=chance.randrange(2))
            if not is_kept:
                transaction.abort()
        kept += values if is_kept else []
        assert committed(store) == sorted(kept)
    producer.close()


def test_a_clock_set_by_hand(tmp_path):
    with logstore.open(tmp_path / "store", clock=ManualClock()) as store:
        store.create_topic("a")
        with store.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("a", b"1")
        assert committed(store) == [b"1"]


class TestStatuses:
    """They are what readers see."""

    @pytest.mark.parametrize("committed", [True, False])
    def test_right_after_an_end_it_is_over(self, store, monkeypatch, committed):
        """The coordinator has not stored yet that all markers are durable."""
        monkeypatch.setattr(TransactionCoordinator, "_complete", lambda self, *arguments: None)
        with store.producer(transactional_id="x") as producer, producer.transaction() as transaction:
            for number in range(2):
                producer.send("a", b"1", partition=number).result()
            transaction.commit_offsets("g", {("a", 0): 0})
            if not committed:
                transaction.abort()
        (status,) = store.transactions()
        assert status.state == ("CompleteCommit" if committed else "CompleteAbort")
        assert status.partitions == ()
        broker = store._open_broker(store._directory)
        (described,) = broker.describe_transactions(("x",)).poll()
        assert described.state.is_ending

    def test_partitions_without_a_marker_are_left(self, store):
        marker = LocalLogs._append_marker
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                LocalLogs,
                "_append_marker",
                lambda self, transaction, partition: (
                    partition.partition == 0 and marker(self, transaction, partition)
                ),
            )
            producer = store.producer(transactional_id="x")
            with producer.transaction():
                for number in range(2):
                    producer.send("a", b"1", partition=number)
            (status,) = store.transactions()
            assert (status.state, status.partitions) == ("PrepareCommit", (store["a"][1].partition,))


class TestHanging:
    def test_they_are_listed_and_ended(self, store):
        log = store["b"][0]
        log.extend([b"committed"])
        offset = log.extend([b"left"], producer=ProducerIdentity(7, 3, 0, transactional=True)).start
        with store.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("b", b"mine").result()
            first, hanging = store.transactions()
            assert (first.transactional_id, first.state) == ("x", "Ongoing")
            assert first.partitions == (log.partition,)
            with pytest.raises(InvalidTransactionStateError, match="does not hang"):
                store.abort_hanging(first)
        since_ms = log.record_at(offset, isolation=Isolation.LOG_END).timestamp_ms
        assert hanging == (None, "Hanging", 7, 3, since_ms, -1, (log.partition,))
        assert committed(store, "b") == [b"committed"]
        store.abort_hanging(hanging)
        assert committed(store, "b") == [b"committed", b"mine"]
        assert log.durable_offset == log.log_end_offset
        assert [each.state for each in store.transactions()] == ["CompleteCommit"]
        with pytest.raises(InvalidTransactionStateError, match="is not there any more"):
            store.abort_hanging(hanging)

    def test_one_whose_last_marker_is_of_a_later_coordinator(self, store):
        """As Kafka leaves it, whose coordinators have epochs."""
        log = store["b"][0]
        log.extend([b"1"], producer=ProducerIdentity(7, 3, 0, transactional=True))
        log.append_end_marker(7, 3, committed=True, coordinator_epoch=5)
        log.extend([b"2"], producer=ProducerIdentity(7, 3, 1, transactional=True))
        log.extend([b"3"])
        (hanging,) = store.transactions()
        store.abort_hanging(hanging)
        assert committed(store, "b") == [b"1", b"3"]

    def test_wrong_use(self, store):
        with pytest.raises(UsageError, match=r"store.transactions\(\)"):
            store.abort_hanging("x")
        with logstore.open(store.path, read_only=True) as reader, pytest.raises(ReadOnlyError):
            reader.transactions()


class TestDamagedState:
    """What is stored of transactions cannot be read: nothing is said of them, and nothing done to them."""

    @pytest.fixture
    def damaged(self, store, tmp_path):
        """As after a kill: a store with an open transaction, and a record that is cut short in its
        ``__transaction_state``."""
        producer = store.producer(transactional_id="x")
        transaction = producer.transaction()
        transaction.__enter__()
        producer.send("a", b"1", partition=0).result()
        store["__transaction_state"][0].extend([(encode_transaction_key("y"), b"\0\1")])
        shutil.copytree(store.path, tmp_path / "killed")
        with logstore.open(tmp_path / "killed") as again:
            yield again

    def test_the_seam_says_why(self, damaged):
        broker = damaged._open_broker(damaged._directory)
        listed = broker.list_transactions(ListTransactions()).poll()
        (described,) = broker.describe_transactions(("x",)).poll()
        for each in (listed, described):
            assert each.error is ErrorCode.CORRUPT_MESSAGE
            assert "TransactionLogValue version 1 ends early" in each.message
        assert listed.transactions == ()

    def test_a_store_raises_it(self, damaged):
        for ask in (damaged.transactions, lambda: damaged.producer(transactional_id="x")):
            with pytest.raises(CorruptionError, match="ends early"):
                ask()

    def test_an_open_transaction_does_not_look_as_if_it_hung(self, damaged):
        log = damaged["a"][0]
        ((producer_id, (epoch, offset)),) = log.open_transactions().items()
        status = TransactionStatus(None, "Hanging", producer_id, epoch, offset, -1, (log.partition,))
        with pytest.raises(CorruptionError, match="ends early"):
            damaged.abort_hanging(status)
        assert log.open_transactions()


def test_a_block_that_goes_on_without_a_refused_record_is_aborted(store):
    store.create_topic("small", config=logstore.TopicConfig(max_message_bytes=1000))
    refused = [
        (RecordTooLargeError, lambda producer: producer.send("small", b"+10" * 1000)),
        (UnknownTopicError, lambda producer: producer.send("nowhere", b"+10")),
        (UsageError, lambda producer: producer.send("b", 10)),
    ]
    with store.producer(transactional_id="x") as producer:
        for error, send in refused:
            with pytest.raises(error), producer.transaction():
                producer.send("a", b"-10")
                with contextlib.suppress(error):
                    send(producer)
                producer.send("b", b"another")
            assert committed(store) == committed(store, "b") == []
        with producer.transaction():
            producer.send("a", b"right")
    assert committed(store) == [b"right"]


def test_all_partitions_with_something_to_send_are_let_in_together(store):
    store.create_topic("many", partitions=40)
    with store.producer(transactional_id="x", linger_ms=10_000) as producer, producer.transaction():
        for number in range(40):
            producer.send("many", b"%d" % number, partition=number)
    assert len(committed(store, "many")) == 40
    (log,) = store["__transaction_state"]
    assert log.log_end_offset <= 4  # each has all partitions: the id, the partitions, the decision, the end
