# ruff: noqa: PT012 - the blocks are what is tested
"""What wrong use of a transaction is told, word for word. The outcome of a commit without an answer is told,
and never guessed. Some 5 s, for waiting."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore import Isolation
from logstore.broker.pending import Promise
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import InvalidTransactionStateError, ProducerFencedError, RetriableError, UsageError
from logstore.testing import ManualClock

STATE = InvalidTransactionStateError
OUTSIDE = (
    STATE,
    "a producer with transactional id 'x' sends in transactions only: with producer.transaction(): ...",
)
NOT_BEGUN = (
    STATE,
    "the transaction of 'x' has not begun: with producer.transaction() as transaction: ...",
)
COMMITTED = (
    STATE,
    "the transaction of 'x' is over: it was committed; begin another: with producer.transaction(): ...",
)
ABORTED = (
    STATE,
    "the transaction of 'x' is over: it was aborted; begin another: with producer.transaction(): ...",
)
USED = (
    STATE,
    "the transaction of 'x' was used, and each is used once; begin another: with producer.transaction(): ...",
)
OTHER_THREAD = (
    UsageError,
    "the open transaction of 'x' was begun by another thread, and only that may use it; give each thread a "
    "producer with a transactional id of its own",
)
IS_OPEN = (STATE, "transactional id 'x' has an open transaction; commit or abort it first")
FENCED = (
    ProducerFencedError,
    "transactional id 'x': {}: another producer has taken the id, or the transaction was open for longer "
    "than transaction_timeout_ms (60000); it was aborted. Make a new producer",
)
IN_DOUBT = (
    STATE,
    "the transaction of 'x' is ending: it is not known whether it is committed; call commit() again, which "
    "tells",
)
NO_ANSWER = (
    RetriableError,
    "transactional id 'x': the coordinator did not answer the commit within max_block_ms (500): it is not "
    "known whether it is committed; call commit() again, which tells",
)


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("a", partitions=2)
        yield store


@pytest.fixture
def producer(store):
    with store.producer(transactional_id="x") as producer:
        yield producer


def told(call):
    """The kind of the error, and its whole message."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller compares it
        call()
    return type(caught.value), str(caught.value)


def calls(producer, transaction):
    """Everything that one may do with a transaction."""
    return (
        transaction.commit,
        transaction.abort,
        lambda: transaction.commit_offsets("g", {("a", 0): 0}),
        lambda: producer.send("a", b"1"),
    )


def committed(store):
    return sorted(record.value for record in store["a"].read(isolation=Isolation.COMMITTED))


def test_before_and_behind_the_block(producer):
    transaction = producer.transaction()
    assert [told(call) for call in calls(producer, transaction)] == [*[NOT_BEGUN] * 3, OUTSIDE]
    with transaction:
        producer.send("a", b"1")
    assert [told(call) for call in calls(producer, transaction)] == [*[COMMITTED] * 3, OUTSIDE]
    with pytest.raises(KeyError), producer.transaction() as transaction:
        raise KeyError
    assert [told(call) for call in calls(producer, transaction)] == [*[ABORTED] * 3, OUTSIDE]


def test_twice_and_two_at_once(producer):
    transaction = producer.transaction()
    with transaction:
        assert told(transaction.__enter__) == USED
        assert told(producer.transaction().__enter__) == IS_OPEN
    assert told(transaction.__enter__) == USED


def test_in_another_thread(producer):
    found = []
    with producer.transaction() as transaction:
        others = (*calls(producer, transaction), producer.transaction().__enter__)
        for call in others:
            thread = threading.Thread(target=lambda call=call: found.append(told(call)))
            thread.start()
            thread.join()
    assert found == [OTHER_THREAD] * 5


def test_after_another_producer_has_taken_the_id(store, producer):
    transaction = producer.transaction().__enter__()
    producer.send("a", b"lost").result()
    with store.producer(transactional_id="x"):
        fenced = (FENCED[0], FENCED[1].format("committing"))
        assert told(transaction.commit) == fenced
        assert told(producer.transaction().__enter__) == fenced
        assert told(transaction.commit) == ABORTED
        assert producer.is_fenced
    assert committed(store) == []


def test_after_its_time(tmp_path):
    clock = ManualClock()
    with logstore.open(tmp_path / "late", clock=clock) as store:
        store.create_topic("a")
        with store.producer(transactional_id="x") as producer:
            transaction = producer.transaction().__enter__()
            producer.send("a", b"lost")
            producer.flush()
            clock.advance(70_001)
            store.run_background()
            assert told(transaction.abort) == (FENCED[0], FENCED[1].format("aborting"))
            assert told(transaction.commit) == ABORTED
        assert committed(store) == []


def test_an_exception_in_the_block_is_raised_as_it_is(store, producer):
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught, producer.transaction():
        sent = producer.send("a", b"lost")
        raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert told(sent.result) == (STATE, "the transaction of 'x' was aborted")
    assert committed(store) == []


def test_a_producer_without_an_id(store):
    with store.producer() as plain:
        message = "the producer has no transactional id: store.producer(transactional_id='billing-1')"
        assert told(plain.transaction) == (UsageError, message)


def test_a_time_out_that_is_too_long(store):
    assert told(lambda: store.producer(transactional_id="x", transaction_timeout_ms=900_001)) == (
        UsageError,
        "transactional id 'x': starting: transaction_timeout_ms (900001) is longer than the store's "
        "transaction_max_timeout_ms",
    )


# A commit without an answer ---------------------------------------------------------------------------------


class Silent:
    """Loses ends: the request (``"lost"``), or the answer (``"done"``)."""

    def __init__(self, broker):
        self._broker = broker
        self.loses = ""

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def end_transaction(self, request):
        if self.loses == "lost":
            return Promise()
        pending = self._broker.end_transaction(request)
        return Promise() if self.loses else pending


@pytest.fixture
def silent(store):
    return Silent(store._open_broker(store._directory))


@pytest.fixture
def doubtful(store, silent):
    store.producer(transactional_id="x").close()  # so that the next one starts at once
    return Producer(silent, config=ProducerConfig(transactional_id="x", max_block_ms=500))


def leave_without_an_answer(silent, producer, loses):
    transaction = producer.transaction().__enter__()
    producer.send("a", b"1")
    silent.loses = loses
    assert told(transaction.commit) == NO_ANSWER
    assert transaction.is_in_doubt
    assert not transaction.was_committed
    return transaction


@pytest.mark.parametrize("loses", ["lost", "done"])
def test_the_outcome_is_not_guessed(store, silent, doubtful, loses):
    transaction = leave_without_an_answer(silent, doubtful, loses)
    assert told(transaction.commit) == NO_ANSWER
    _, _, *others = calls(doubtful, transaction)
    assert [told(call) for call in (*others, doubtful.transaction().__enter__)] == [IN_DOUBT] * 3
    assert committed(store) == ([b"1"] if loses == "done" else [])
    silent.loses = ""
    transaction.commit()
    assert transaction.was_committed
    with doubtful.transaction():
        doubtful.send("a", b"2")
    assert committed(store) == [b"1", b"2"]
    doubtful.close()


def test_an_abort_tells_if_it_comes_too_late(store, silent, doubtful):
    transaction = leave_without_an_answer(silent, doubtful, "done")
    silent.loses = ""
    message = (
        "the transaction of 'x' is committed, and cannot be aborted: the commit without an answer has come "
        "through"
    )
    assert told(transaction.abort) == (STATE, message)
    assert told(transaction.commit) == COMMITTED
    with doubtful.transaction():
        doubtful.send("a", b"2")
    assert committed(store) == [b"1", b"2"]
    doubtful.close()


def test_an_abort_after_a_commit_that_was_lost(store, silent, doubtful):
    transaction = leave_without_an_answer(silent, doubtful, "lost")
    silent.loses = ""
    transaction.abort()
    assert told(transaction.commit) == ABORTED
    assert committed(store) == []
    doubtful.close()


@pytest.mark.parametrize("loses", ["lost", "done"])
@pytest.mark.parametrize("asks", ["commit", "abort"])
def test_the_outcome_is_not_guessed_after_another_producer_has_taken_the_id(
    store, silent, doubtful, loses, asks
):
    """It cannot be known any more: the coordinator answers the same, whether the commit has come through."""
    transaction = leave_without_an_answer(silent, doubtful, loses)
    silent.loses = ""
    store.producer(transactional_id="x").close()
    assert committed(store) == ([b"1"] if loses == "done" else [])
    kind, message = FENCED
    message = message.format("committing" if asks == "commit" else "aborting")
    unknown = "it is not known whether it was committed"
    assert told(getattr(transaction, asks)) == (kind, message.replace("it was aborted", unknown))
    assert told(transaction.commit) == (STATE, ABORTED[1].replace("it was aborted", unknown))
    doubtful.close()


@pytest.mark.parametrize(("loses", "outcome"), [("lost", "it was aborted"), ("done", "it was committed")])
def test_a_producer_that_is_left_with_it_tells_the_outcome(store, silent, doubtful, loses, outcome):
    def leave():
        with doubtful:
            transaction = doubtful.transaction().__enter__()
            doubtful.send("a", b"1")
            silent.loses = loses
            try:
                transaction.commit()
            finally:
                silent.loses = ""

    with pytest.raises(RetriableError) as caught:
        leave()
    assert caught.value.__notes__ == [f"and the producer was closed with its transaction: {outcome}"]
    assert bool(committed(store)) == (outcome == "it was committed")
