"""The thread of a producer ends when there is nothing to send, and no record is lost between its end and the
next one's start.

Costs some seconds: threads end after real time."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

import logstore
from logstore.broker import local
from logstore.errors import RetriableError


@pytest.fixture
def rests(monkeypatch):
    """How long a thread stays without a record; shorter than in life."""

    def rest(seconds):
        monkeypatch.setattr("logstore.clients.producer._REST_MS", int(seconds * 1000))

    return rest


def producer_threads():
    return [each for each in threading.enumerate() if each.name == "logstore-producer"]


def test_producers_that_rest_have_no_threads_and_send_again(tmp_path, rests):
    rests(0.05)
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        before = len(producer_threads())
        producers = [store.producer(acks=1, linger_ms=0) for _ in range(20)]
        for round_number in range(2):
            sent = [producer.send("t", b"%d" % round_number) for producer in producers]
            assert len({each.result(10).offset for each in sent}) == 20
            deadline = time.monotonic() + 10
            while len(producer_threads()) > before and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(producer_threads()) == before
        for producer in producers:
            producer.close()
        assert store["t"][0].log_end_offset == 40


@pytest.mark.parametrize("pause_seconds", [0.0, 0.0005])
def test_a_record_that_comes_while_the_thread_ends_is_sent(tmp_path, rests, pause_seconds):
    rests(0.0)
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        with store.producer(acks=1, linger_ms=0) as producer:
            for number in range(400):
                assert producer.send("t", b"x").result(10).offset == number
                time.sleep(pause_seconds)


def test_open_transactions_need_no_threads(tmp_path, rests):
    rests(0.05)
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        before = len(producer_threads())
        kept = []
        for number in range(10):
            producer = store.producer(transactional_id=f"id-{number}", linger_ms=0)
            transaction = producer.transaction()
            transaction.__enter__()
            producer.send("t", b"%d" % number).result(10)
            kept.append((producer, transaction))
        deadline = time.monotonic() + 10
        while len(producer_threads()) > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(producer_threads()) == before
        for producer, transaction in kept:
            producer.send("t", b"more")
            transaction.commit()
            producer.close()
        read = store["t"][0].read(isolation=logstore.Isolation.COMMITTED)
        assert sum(1 for _ in read) == 20


@pytest.mark.parametrize("how", ["flush", "leave", "transaction"])
@pytest.mark.parametrize("is_connected", [False, True])
def test_what_is_delivered_is_told_before_it_returns(tmp_path, is_connected, how):
    """To callbacks that take a while, too. 0.1 s."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(logstore.open(tmp_path / "store"))
        store.create_topic("t", partitions=3)
        place = store
        if is_connected:
            listener = stack.enter_context(store.listen("127.0.0.1:0"))
            place = stack.enter_context(logstore.connect(listener.address))
        settings = {"transactional_id": "x"} if how == "transaction" else {}
        for _ in range(3):
            told = []

            def tell(delivered, error, told=told):
                time.sleep(0.001)
                told.append(error or delivered.offset)

            def send_all(producer, tell=tell):
                for number in range(20):
                    producer.send("t", b"x", partition=number % 3, on_delivery=tell)

            with place.producer(**settings) as producer:
                if how == "transaction":
                    with producer.transaction():
                        send_all(producer)
                    assert len(told) == 20
                else:
                    send_all(producer)
                if how == "flush":
                    producer.flush()
                    assert len(told) == 20
            assert len(told) == 20


ERRORS = [MemoryError(), RetriableError("no thread can be started for the background work")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_does_not_end_the_thread_and_what_was_sent_is_delivered_once(tmp_path, monkeypatch, error):
    errors, produce = [error], local.produce

    def fail_once(*arguments):
        pending = produce(*arguments)
        if errors:
            raise errors.pop()
        return pending

    monkeypatch.setattr(local, "produce", fail_once)
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        with store.producer(linger_ms=1) as producer:
            assert producer.send("t", b"one").result(10).offset == 0
            assert not errors
            assert producer.send("t", b"two").result(10).offset == 1
        assert [record.value for record in store["t"].read()] == [b"one", b"two"]
