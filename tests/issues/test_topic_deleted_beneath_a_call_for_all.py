"""A topic is deleted while another thread flushes the store, or lists its transactions.

Both raised ``ClosedError`` and named a partition that nobody had asked for; so did the first transaction of a
store, which looks at all partitions. Found by a program that made and deleted topics beside such calls.
"""

import pytest

import logstore
from logstore.logdir import upkeep
from logstore.partition.log import Log


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path) as store:
        for name in ("goes", "stays"):
            store.create_topic(name)[0].extend([b"x"])
        yield store


def delete_before(monkeypatch, store, name, answer_of):
    """Delete the topic when its log is asked for something."""

    def asked(log):
        if log.partition.topic == "goes" and "goes" in store:
            store.delete_topic("goes")
        return answer_of(log)

    monkeypatch.setattr(Log, name, asked if name == "open_transactions" else property(asked))


def test_flush(store, monkeypatch):
    monkeypatch.setattr(upkeep, "_is_long", lambda logs: True)
    delete_before(monkeypatch, store, "durable_offset", Log.durable_offset.fget)
    store.flush()
    assert "goes" not in store
    assert store["stays"][0].durable_offset == 1


def test_transactions(store, monkeypatch):
    with store.producer(transactional_id="t") as producer, producer.transaction():
        producer.send("stays", b"y")
    delete_before(monkeypatch, store, "open_transactions", Log.open_transactions)
    assert [each.transactional_id for each in store.transactions()] == ["t"]
    assert "goes" not in store


def test_the_first_transaction(store, monkeypatch):
    delete_before(monkeypatch, store, "open_transactions", Log.open_transactions)
    with store.producer(transactional_id="t") as producer, producer.transaction():
        producer.send("stays", b"y")
    assert "goes" not in store
    assert [record.value for record in store["stays"].read()] == [b"x", b"y"]


def test_a_log_that_is_opened_again(store, monkeypatch):
    with store.producer(transactional_id="t") as producer, producer.transaction():
        producer.send("stays", b"y")
        producer.flush()
        before = Log.open_transactions

        def asked(log):
            if log.partition.topic == "stays" and not log.is_closed and not reopened:
                reopened.append(log)
                store["stays"].reopen(0)
            return before(log)

        reopened = []
        monkeypatch.setattr(Log, "open_transactions", asked)
        assert [each.state for each in store.transactions()] == ["Ongoing"]
        assert reopened
