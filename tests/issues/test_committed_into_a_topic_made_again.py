"""A position in a topic that was deleted was committed into the new topic of the same name, and the group
went on behind records that it had never read. Costs 1 s."""

from __future__ import annotations

from dataclasses import replace

import pytest

import logstore
from logstore.errors import UnknownTopicError
from logstore.wire.remote.translate import groups

SOON_SECONDS = 20


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        make(store, "t", b"old", 10)
        yield store


@pytest.fixture(params=["here", "elsewhere", "of an older broker"])
def clients(request, store, monkeypatch):
    """The same calls, in the process of the store and through a listener, whose commits may not know ids."""
    if request.param == "here":
        yield store
        return
    if request.param == "of an older broker":
        monkeypatch.setattr(groups, "OFFSET_COMMIT_BY_ID", replace(groups.OFFSET_COMMIT_BY_ID, first=99))
    with store.listen() as listener, logstore.connect(listener.address) as elsewhere:
        yield elsewhere


def make(store, name, value, count):
    store.create_topic(name, partitions=2)[0].extend([b"%s%d" % (value, number) for number in range(count)])


def make_again(store, count):
    store.delete_topic("t")
    make(store, "t", b"new", count)


def begins_with(clients):
    with clients.consumer("t", group="g") as consumer:
        return next(consumer.drain()).value


def test_a_commit_is_refused(store, clients):
    make(store, "kept", b"kept", 10)
    with clients.consumer("t", "kept", group="g") as consumer:
        assert len(list(consumer.drain())) == 20
        consumer.commit()
        make_again(store, 20)
        with pytest.raises(UnknownTopicError, match=r"t-0.*deleted and made again.*of the old one"):
            consumer.commit()
        with pytest.raises(UnknownTopicError):
            consumer.commit({("t", 0): 7})
        assert ("kept", 0) in store.offsets("g")
        assert ("t", 0) not in store.offsets("g")
        assert len(list(consumer.drain())) == 20
        consumer.commit()
        assert store.offsets("g")["t", 0].offset == 20


def test_an_automatic_commit_leaves_it_out(store, clients, caplog):
    make(store, "kept", b"kept", 10)
    with clients.consumer("t", "kept", group="g", enable_auto_commit=True) as consumer:
        assert len(list(consumer.drain())) == 20
        make_again(store, 20)
    assert any("t-0" in each.message and "deleted" in each.message for each in caplog.records)
    assert store.offsets("g")["kept", 0].offset == 10
    assert begins_with(clients) == b"new0"


def test_the_same_offset_of_the_new_topic_is_committed(store, clients):
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 0}
    with clients.consumer("t", group="g", **settings) as consumer:
        list(consumer.drain())
        assert consumer.poll(timeout=0) == []
        make_again(store, 10)
        assert len(consumer.poll(timeout=SOON_SECONDS)) == 10
    assert store.offsets("g")["t", 0].offset == 10


def test_a_transaction_is_refused(store, clients):
    with (
        clients.consumer("t", group="g") as consumer,
        clients.producer(transactional_id="x") as producer,
    ):
        assert len(list(consumer.drain())) == 10
        make_again(store, 20)
        with pytest.raises(UnknownTopicError), producer.transaction() as transaction:
            transaction.commit_offsets(consumer)
    assert begins_with(clients) == b"new0"


def test_what_was_never_read_is_committed_by_its_name(store, clients):
    with clients.consumer(partitions=[("t", 0)], group="g") as consumer:
        make_again(store, 20)
        consumer.commit({("t", 0): 7})
    assert begins_with(clients) == b"new7"
