"""Producers, on a clock set by hand unless a test says otherwise."""

from __future__ import annotations

import gc
import os
import pickle
import random
import threading
import time
import warnings
import weakref
from datetime import UTC, datetime
from itertools import pairwise

import pytest

import logstore
from logstore import schedule
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered, Promise
from logstore.broker.requests import ProducedPartition, ProduceResult
from logstore.clients import producer as clients_producer
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import (
    ClosedError,
    ForkedError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    RetriableError,
    StorageError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.partitioner import partition_for_key
from tests.broker.rig import T0, T1, Rig
from tests.clients.flaky import FlakyBroker


@pytest.fixture
def rig():
    return Rig()


def producer_of(rig, broker=None, **settings):
    settings.setdefault("acks", 1)
    return Producer(broker or rig.broker, config=ProducerConfig(**settings), clock=rig.clock)


def values(rig, partition=T0):
    return [record.value for record in rig.directory.log(partition).read()]


def batches(rig, partition=T0):
    return bytes(rig.directory.log(partition).fetch(0).data).count(b"\x00\x00\x00\x00\x02")


class TestGathering:
    def test_records_linger_and_share_a_batch(self, rig):
        producer = producer_of(rig, linger_ms=5)
        sent = [producer.send("t", b"%d" % number, partition=0) for number in range(3)]
        producer.run_due()
        assert not sent[0].is_done
        rig.clock.advance(5)
        producer.run_due()
        assert [each.result(0).offset for each in sent] == [0, 1, 2]
        assert len(rig.directory.log(T0).fetch(0).data) < 3 * 70
        assert values(rig) == [b"0", b"1", b"2"]

    def test_a_full_batch_is_sent_at_once(self, rig):
        producer = producer_of(rig, batch_size=1000, linger_ms=1000)
        sent = [producer.send("t", b"x" * 100, partition=0) for _ in range(20)]
        assert [each.is_done for each in sent].count(True) >= 10
        producer.flush()
        assert [each.result(0).offset for each in sent] == list(range(20))

    def test_keys_go_where_kafka_puts_them(self, rig):
        producer = producer_of(rig)
        keys = [b"k%d" % number for number in range(50)]
        sent = [producer.send("t", b"v", key=key) for key in keys]
        producer.flush()
        assert [each.result(0).partition for each in sent] == [partition_for_key(key, 2) for key in keys]

    def test_records_without_a_key_change_partition_after_a_batch_of_bytes(self, rig):
        producer = producer_of(rig, batch_size=2000)
        sent = [producer.send("t", b"x" * 100) for _ in range(100)]
        producer.flush()
        numbers = [each.result(0).partition for each in sent]
        changes = sum(a != b for a, b in pairwise(numbers))
        assert 5 <= changes <= 10
        assert abs(numbers.count(0) - numbers.count(1)) <= 20

    def test_a_partitioner_of_ones_own(self, rig):
        asked = []

        def choose(topic, key, value, count):
            asked.append((topic, key, value, count))
            return 1

        producer = Producer(rig.broker, config=ProducerConfig(acks=1), clock=rig.clock, partitioner=choose)
        sent = producer.send("t", b"v", key=b"k")
        producer.flush()
        assert sent.result(0).partition == 1
        assert asked == [("t", b"k", b"v", 2)]

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_codecs(self, rig, codec):
        producer = producer_of(rig, compression=codec)
        sent = [
            producer.send("t", b"v" * 1000, key=b"k", headers=[("h", b"1")], partition=0) for _ in range(9)
        ]
        producer.flush()
        assert [each.result(0).offset for each in sent] == list(range(9))
        assert [
            (record.key, len(record.value), record.headers) for record in rig.directory.log(T0).read()
        ] == [(b"k", 1000, (("h", b"1"),))] * 9
        assert (len(rig.directory.log(T0).fetch(0).data) < 2000) == (codec != "none")

    def test_timestamps(self, rig):
        producer = producer_of(rig)
        when = datetime(2023, 11, 14, tzinfo=UTC)
        sent = [
            producer.send("t", b"a", partition=0),
            producer.send("t", b"b", partition=0, timestamp_ms=5),
            producer.send("t", b"c", partition=0, timestamp_ms=when),
        ]
        producer.flush()
        stamps = [rig.clock.now_ms(), 5, int(when.timestamp() * 1000)]
        assert [each.result(0).timestamp_ms for each in sent] == stamps
        assert [record.timestamp_ms for record in rig.directory.log(T0).read()] == stamps

    def test_log_append_time_is_told(self):
        rig = Rig(message_timestamp_type="LogAppendTime")
        producer = producer_of(rig)
        sent = producer.send("t", b"a", timestamp_ms=5)
        rig.clock.advance(100)
        producer.flush()
        assert sent.result(0).timestamp_ms == rig.clock.now_ms()


class TestAcks:
    def test_all_waits_for_the_flush(self, rig):
        producer = producer_of(rig, acks="all", linger_ms=0)
        sent = producer.send("t", b"a", partition=0)
        producer.run_due()
        assert rig.directory.log(T0).log_end_offset == 1
        assert not sent.is_done
        rig.pass_time(0)
        producer.run_due()
        assert sent.result(0).offset == 0
        assert rig.directory.log(T0).durable_offset == 1

    def test_none_tells_no_offset(self, rig):
        producer = producer_of(rig, acks=0, enable_idempotence=False)
        sent = producer.send("t", b"a", partition=0)
        producer.flush()
        assert sent.result(0).offset == -1
        assert values(rig) == [b"a"]


class TestRefusals:
    def test_a_record_that_the_topic_refuses_fails_alone(self):
        rig = Rig(cleanup_policy="compact", max_message_bytes=2000)
        producer = producer_of(rig)
        good = producer.send("t", b"a", key=b"k", partition=0)
        with pytest.raises(InvalidRecordError, match="key"):
            producer.send("t", b"b", partition=0)
        with pytest.raises(RecordTooLargeError):
            producer.send("t", b"x" * 3000, key=b"k", partition=0)
        with pytest.raises(InvalidTimestampError):
            producer.send("t", b"b", key=b"k", partition=0, timestamp_ms=rig.clock.now_ms() + 10**10)
        with pytest.raises(InvalidRecordError, match="value is a str"):
            producer.send("t", "text", key=b"k", partition=0)
        producer.flush()
        assert good.result(0).offset == 0
        assert values(rig) == [b"a"]

    def test_unknown_topics_and_partitions(self, rig):
        producer = producer_of(rig)
        with pytest.raises(UnknownTopicError, match="there is no topic 'tt'"):
            producer.send("tt", b"a")
        with pytest.raises(UnknownPartitionError, match="topic 't' has no partition 2"):
            producer.send("t", b"a", partition=2)
        with pytest.raises(UsageError, match="partition is '0'"):
            producer.send("t", b"a", partition="0")
        with pytest.raises(UsageError, match="topic is 5"):
            producer.send(5, b"a")

    def test_a_closed_producer(self, rig):
        producer = producer_of(rig)
        producer.send("t", b"a", partition=0)
        producer.close()
        producer.close()
        assert values(rig) == [b"a"]
        with pytest.raises(ClosedError, match="the producer is closed"):
            producer.send("t", b"b")

    def test_settings(self):
        for wrong in ({"acks": 2}, {"acks": True}, {"acks": 0}, {"compression": "zip"}, {"linger_ms": -1}):
            with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
                ProducerConfig(**wrong)
        with pytest.raises(InvalidConfigError, match="did you mean 'linger_ms'"):
            ProducerConfig(linger=5)

    def test_a_record_larger_than_the_memory(self, rig):
        producer = producer_of(rig, buffer_memory=1000)
        with pytest.raises(RecordTooLargeError, match="more than buffer_memory, 1000"):
            producer.send("t", b"x" * 1000)

    def test_memory_that_is_used_up(self, rig):
        class Stuck(FlakyBroker):
            def produce(self, request):
                codes = (ErrorCode.NETWORK_EXCEPTION for _ in request.partitions)
                partitions = zip(request.partitions, codes, strict=True)
                return Answered(
                    ProduceResult(tuple(ProducedPartition(p.partition, c) for p, c in partitions))
                )

        producer = producer_of(
            rig, Stuck(rig.broker, 0), buffer_memory=10_000, batch_size=2000, max_block_ms=0
        )
        sent = []

        def send_more():
            while True:
                sent.append(producer.send("t", b"x" * 100, partition=0))

        with pytest.raises(RetriableError, match="wait to be delivered, and there was no room"):
            send_more()
        assert 40 <= len(sent) <= 75

    def test_what_a_topic_is_like_is_waited_for_no_longer_than_max_block_ms(self, rig, monkeypatch):
        """Two questions, and one time for both."""
        now, waited = [100.0], []

        def wait_for(_, seconds):
            waited.append(seconds)
            now[0] += seconds

        monkeypatch.setattr(clients_producer, "wait_for", wait_for)
        monkeypatch.setattr(clients_producer.time, "monotonic", lambda: now[0])
        with pytest.raises(RetriableError, match=r"topic 't' within max_block_ms \(500\): .*again"):
            producer_of(rig, max_block_ms=500).send("t", b"a")
        assert sum(waited) == 0.5


class TestFailures:
    def test_an_error_is_told_by_the_handle_the_callback_and_the_flush(self, rig):
        told = []
        producer = producer_of(rig, retries=0)
        rig.directory.log(T0).close()
        seen = producer.send("t", b"a", partition=0)
        called = producer.send("t", b"b", partition=1, on_delivery=lambda *outcome: told.append(outcome))
        producer.run_due()
        rig.clock.advance(10)
        producer.run_due()
        with pytest.raises(RetriableError, match="t-0"):
            seen.result(0)
        producer.flush()  # somebody was told
        ((delivered, error),) = told
        assert (delivered, error) == (called.result(0), None)
        producer.send("t", b"c", partition=0)
        rig.clock.advance(10)
        with pytest.raises(RetriableError, match="t-0"):
            producer.flush()
        producer.flush()

    def test_leaving_the_with_raises_what_nobody_was_told(self, rig):
        rig.directory.log(T0).close()
        with pytest.raises(RetriableError, match="t-0"), producer_of(rig, retries=0) as producer:
            producer.send("t", b"a", partition=0)

    def test_a_callback_that_raises_harms_nobody(self, rig, caplog):
        producer = producer_of(rig)
        producer.send("t", b"a", partition=0, on_delivery=lambda *_: 1 / 0)
        sent = producer.send("t", b"b", partition=0)
        producer.flush()
        assert sent.result(0).offset == 1
        assert "callback of a record of t-0 failed" in caplog.text

    def test_a_callback_may_send(self, rig):
        producer = producer_of(rig)
        more = []
        producer.send("t", b"a", partition=0, on_delivery=lambda *_: more.append(producer.send("t", b"b")))
        producer.flush()
        producer.flush()
        assert more[0].result(0).offset >= 0

    def test_a_callback_may_not_flush(self, rig, caplog):
        producer = producer_of(rig)
        producer.send("t", b"a", partition=0, on_delivery=lambda *_: producer.flush())
        producer.flush()
        assert "cannot be called from a callback" in caplog.text

    def test_a_callback_may_not_wait_for_a_record_that_is_on_its_way(self, rig, caplog):
        """It waited for itself: the producer delivered nothing more."""
        producer, told = producer_of(rig), []

        def tell(*_):
            told.append(first.result())
            producer.send("t", b"b", partition=0).result(timeout=5)

        first = producer.send("t", b"a", partition=0, on_delivery=tell)
        producer.flush()
        assert told == [first.result(0)]
        assert "result() of a record that is still on its way cannot be called from a callback" in caplog.text
        producer.flush()
        assert rig.directory.log(T0).log_end_offset == 2

    def test_a_callback_may_wait_for_another_producer(self, rig):
        producer, told = producer_of(rig), []

        def tell(*_):
            sent = other.send("t", b"b", partition=0)
            other.flush()
            told.append(sent.result(0).offset)

        other = producer_of(rig)
        producer.send("t", b"a", partition=0, on_delivery=tell)
        producer.flush()
        assert told == [1]

    def test_a_delivery_that_takes_too_long_fails(self, rig):
        producer = producer_of(rig, delivery_timeout_ms=1000, retry_backoff_ms=100)
        rig.directory.log(T0).close()
        sent = producer.send("t", b"a", partition=0)
        for _ in range(20):
            rig.clock.advance(100)
            producer.run_due()
        with pytest.raises(RetriableError, match="t-0"):
            sent.result(0)

    def test_no_request_waits_for_longer_than_the_delivery_may_take(self, rig):
        """For replicas: the broker holds a request up to its own time-out."""
        asked = []

        class Late(FlakyBroker):
            def produce(self, request):
                asked.append(request.timeout_ms)
                return super().produce(request)

        broker = Late(rig.broker, 0, lost=1.0)
        settings = {"request_timeout_ms": 700, "retry_backoff_ms": 400, "linger_ms": 0}
        producer = producer_of(rig, broker, delivery_timeout_ms=1000, **settings)
        sent = producer.send("t", b"a", partition=0)
        while not sent.is_done:
            producer.run_due()
            rig.clock.advance(100)
        assert asked == [700, 600, 200]

    def test_an_answer_that_does_not_come_is_not_waited_for(self, rig):
        """The first batch may have been lost or not; the next one comes through, once."""
        for stored in (True, False):

            class Silent(FlakyBroker):
                def produce(self, request, stored=stored):
                    if self.is_calm:
                        return super().produce(request)
                    self.is_calm = True
                    if stored:
                        super().produce(request)
                    return Promise()

            first, second = b"1 %d" % stored, b"2 %d" % stored
            broker = Silent(rig.broker, 0)
            producer = producer_of(rig, broker, delivery_timeout_ms=1000, retry_backoff_ms=100, linger_ms=0)
            sent = producer.send("t", first, partition=0)
            producer.run_due()
            rig.clock.advance(999)
            later = producer.send("t", second, partition=0)
            producer.run_due()
            assert not sent.is_done
            rig.clock.advance(2)
            producer.run_due()
            with pytest.raises(
                RetriableError, match=r"within delivery_timeout_ms \(1000\), .* may be stored"
            ):
                sent.result(0)
            for _ in range(5):
                producer.run_due()
                rig.clock.advance(100)
            assert later.is_done
            assert values(rig)[-1] == second
            assert (values(rig).count(first), values(rig).count(second)) == (int(stored), 1)

    def test_a_full_disk_is_waited_for_and_nothing_comes_twice(self, rig, monkeypatch):
        producer = producer_of(rig, linger_ms=0)
        log = rig.directory.log(T0)
        append = log.append_batch
        full = [True]

        def append_batch(*arguments, **options):
            if full[0]:
                raise StorageError(28, "no space left on device")
            return append(*arguments, **options)

        monkeypatch.setattr(log, "append_batch", append_batch)
        sent = []
        for number in range(5):
            sent.append(producer.send("t", b"%d" % number, partition=0))
            producer.run_due()
            rig.clock.advance(50)
        assert not any(each.is_done for each in sent)
        full[0] = False
        rig.clock.advance(1000)
        for _ in range(10):
            producer.run_due()
        assert [each.result(0).offset for each in sent] == [0, 1, 2, 3, 4]
        assert values(rig) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("seed", range(20))
def test_over_a_network_that_loses_things_nothing_is_lost_nothing_comes_twice_and_order_is_kept(seed):
    rig = Rig()
    broker = FlakyBroker(rig.broker, seed)
    producer = producer_of(
        rig, broker, linger_ms=0, retry_backoff_ms=1, batch_size=random.Random(seed).choice([1, 500])
    )
    chance = random.Random(seed)
    sent = {T0: [], T1: []}
    for number in range(150):
        partition = chance.choice([T0, T1])
        value = b"%d" % number
        sent[partition].append((value, producer.send("t", value, partition=partition.partition)))
        if chance.random() < 0.5:
            producer.run_due()
            rig.clock.advance(chance.randint(0, 3))
            broker.answer_some()
    broker.is_calm = True
    for _ in range(100):
        broker.answer_some()
        rig.clock.advance(5)
        producer.run_due()
    producer.flush()
    for partition, records in sent.items():
        assert values(rig, partition) == [value for value, _ in records]
        assert [each.result(0).offset for _, each in records] == list(range(len(records)))


@pytest.mark.parametrize("seed", range(10))
def test_batches_that_are_refused_for_good_leave_the_others_in_order(seed):
    rig = Rig()
    chance = random.Random(seed)
    log = rig.directory.log(T0)
    append = log.append_batch

    def append_batch(data, **options):
        if b"bad" in bytes(data):
            raise InvalidRecordError("a bad record")
        return append(data, **options)

    log.append_batch = append_batch
    broker = FlakyBroker(rig.broker, seed, lost=0.1, unanswered=0.2, late=0.3)
    producer = producer_of(rig, broker, linger_ms=0, retry_backoff_ms=1)
    records = []
    for number in range(80):
        value = b"%d bad" % number if chance.random() < 0.1 else b"%d" % number
        records.append((value, producer.send("t", value, partition=0)))
        producer.run_due()
        if chance.random() < 0.5:
            rig.clock.advance(2)
            broker.answer_some()
    broker.is_calm = True
    for _ in range(200):
        broker.answer_some()
        rig.clock.advance(5)
        producer.run_due()
    good = [value for value, _ in records if b"bad" not in value]
    assert values(rig) == good
    for value, sent in records:
        if b"bad" in value:
            with pytest.raises(InvalidRecordError, match="a bad record"):
                sent.result(0)
        else:
            assert sent.result(0).offset == good.index(value)


def test_threads_that_send_lose_nothing_and_keep_their_order(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=2)
        broker = LocalBroker(store._directory)
        sent = {}

        def work(name):
            sent[name] = [producer.send("t", b"%d %d" % (name, n), partition=n % 2) for n in range(3000)]

        with Producer(broker, config=ProducerConfig(acks="all", batch_size=4000, linger_ms=1)) as producer:
            threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for name, handles in sent.items():
            for number, each in enumerate(handles):
                place = each.result(0)
                log = store["t"][place.partition]
                assert log.record_at(place.offset).value == b"%d %d" % (name, number)
            offsets = [each.result(0).offset for each in handles[::2]]
            assert offsets == sorted(offsets)
        assert all(log.durable_offset == log.log_end_offset for log in store["t"])
        assert sum(log.log_end_offset for log in store["t"]) == 12_000


def test_little_memory_is_enough(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=50)
        config = ProducerConfig(acks=1, buffer_memory=20_000, batch_size=4000, linger_ms=10_000)
        with Producer(LocalBroker(store._directory), config=config) as producer:
            for number in range(5000):
                producer.send("t", b"x" * 50, partition=number % 50)
        assert all(log.log_end_offset == 100 for log in store["t"])


def test_a_thread_that_ends_does_not_sign_off_the_one_that_was_started_meanwhile(tmp_path, monkeypatch):
    """The end of the program would not have ended that one, and a finalizer might have waited for it."""
    with logstore.open(tmp_path) as store, store.producer() as producer:
        plain, started = producer._accumulator, []

        class Accumulator:
            @property
            def undelivered_count(self):
                if not started:  # another thread sends, right after this one has looked
                    started.append(producer._tell_sender(0))
                    return 0
                return plain.undelivered_count

            def __getattr__(self, name):
                return getattr(plain, name)

        monkeypatch.setattr(producer, "_accumulator", Accumulator())
        assert not producer._stays()
        assert producer._thread is not None
        assert producer in schedule._with_threads


def test_a_child_process_is_refused(rig):
    producer = producer_of(rig)
    producer.send("t", b"a", partition=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads are what is tried
        child = os.fork()
    if not child:
        try:
            producer.send("t", b"b")
        except ForkedError:
            os._exit(3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(producer)


@pytest.mark.parametrize("closes", [True, False])
def test_of_a_producer_that_is_gone_a_store_keeps_only_what_it_has_counted(tmp_path, closes):
    """Programs make one for each of their requests, ten thousands in the life of a store. 1 s."""
    with logstore.open(tmp_path / "store") as store:
        store.require_topic("orders")
        producer = store.producer()
        producer.send("orders", b"paid").result()
        if closes:
            producer.close()
        gone = weakref.ref(producer)
        del producer
        deadline = time.monotonic() + 5
        while gone() is not None and time.monotonic() < deadline:  # an open one has a thread for a second
            gc.collect()
            time.sleep(0.01)
        assert gone() is None
        metrics = store.metrics()
        assert metrics.total("logstore_producer_delivered_records") == 1
        assert metrics.total("logstore_producer_buffered_bytes") == 0
