"""Consume, transform, produce: each result once."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore import Isolation, NewRecord
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered
from logstore.broker.requests import OffsetCommitResult
from logstore.broker.storing.transactions import LocalLogs
from logstore.broker.transactions.requests import EndTransactionResult
from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    ProducerFencedError,
    RecordTooLargeError,
    RetriableError,
    UnknownTopicError,
    UsageError,
)

RECORDS = 300


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("in", partitions=3)
        store.create_topic("out", partitions=2)
        store.create_topic("dead")
        with store.producer(acks=1) as producer:
            for number in range(RECORDS):
                producer.send("in", b"%d" % number, key=b"k%d" % (number % 7))
        yield store


def committed(store, topic="out"):
    return [record for log in store[topic] for record in log.read(isolation=Isolation.COMMITTED)]


def numbers(store, topic="out"):
    return sorted(int(record.value) for record in committed(store, topic))


def same(record):
    return record.value


@pytest.mark.parametrize("workers", [1, 3])
def test_each_result_is_there_once(store, workers):
    transform = store.transform("in", "out", same, group="g", workers=workers, max_poll_records=20)
    report = transform.run(until_end=True)
    assert report[:3] == (RECORDS, RECORDS, 0)
    assert report.transaction_count >= RECORDS / 20
    assert numbers(store) == list(range(RECORDS))
    assert transform.run(until_end=True) == report
    by_key: dict[bytes, list[int]] = {}
    for record in committed(store):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert all(values == sorted(values) for values in by_key.values())


def test_many_partitions_share_a_transaction_which_commits_what_has_moved(tmp_path):
    """A transaction for each partition took 75 s for 2,000 of them. 0.9 s."""
    with logstore.open(tmp_path / "store") as store:
        source = store.create_topic("in", partitions=60)
        store.create_topic("out")
        for log in source:
            log.extend([b"0", b"1"])
        transform = store.transform("in", "out", same, group="g", max_poll_records=50)
        assert transform.run(until_end=True) == (120, 120, 0, 3)
        (offsets,) = store["__consumer_offsets"]
        before = offsets.log_end_offset
        source[7].append(b"2")
        assert transform.run(until_end=True).transaction_count == 4
        source[7].append(b"3")
        source[8].append(b"2")
        both = store.transform("in", "out", same, group="g")
        assert both.run(until_end=True) == (2, 2, 0, 1)
        assert offsets.log_end_offset - before < 2 * 80  # its first transaction commits where it began
        assert store.groups()["g"].lag == dict.fromkeys(store.groups()["g"].lag, 0)
        assert len(store.groups()["g"].offsets) == 60
        assert numbers(store) == sorted([0, 1] * 60 + [2, 2, 3])


def test_each_transaction_commits_the_offsets_that_have_moved(tmp_path):
    """Each committed the offsets of all partitions: looking at the group took seconds later. 0.4 s."""
    with logstore.open(tmp_path / "store") as store:
        source = store.create_topic("in", partitions=60)
        store.create_topic("out")
        source[3].extend([b"%d" % number for number in range(10)])
        transform = store.transform("in", "out", same, group="g", max_poll_records=1)
        assert transform.run(until_end=True).transaction_count == 10
        (offsets,) = store["__consumer_offsets"]
        assert offsets.log_end_offset < 60 + 10 * 2 + 20  # a marker each; and the group's members
        assert store.groups()["g"].offsets["in", 3].offset == 10


@pytest.mark.damaged
def test_damage_does_not_hold_up_what_was_read_with_it(tmp_path):
    """What other partitions gave is transformed before it is raised."""
    with logstore.open(tmp_path / "store") as store:
        source = store.create_topic("in", partitions=3)
        store.create_topic("out")
        for number, log in enumerate(source):
            log.extend([b"%d" % number])
            log.extend([b"%d" % (number + 10)], flush=True)
        path = tmp_path / "store" / "in-1" / "00000000000000000000.log"
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        for _ in range(2):
            with pytest.raises(CorruptionError, match="in-1"):
                store.transform("in", "out", same, group="g").run(until_end=True)
        assert numbers(store) == [0, 1, 2, 10, 12]


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_workers_that_have_begun_end_when_another_cannot(store, monkeypatch, error):
    """They went on for ever, and the program did not end."""
    begun, plain = [], threading.Thread.start

    def start(thread):
        if thread.name.startswith("logstore-transform"):
            begun.append(thread)
            if thread.name.endswith("2"):
                raise error
        plain(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    transform = store.transform("in", "out", same, group="g", workers=3)
    kind = RetriableError if isinstance(error, RuntimeError) else KeyboardInterrupt
    with pytest.raises(kind):
        transform.run()
    left = [thread for thread in begun if thread.is_alive()]
    transform.stop()
    assert not left
    assert len(begun) == 3


def test_what_a_function_may_return(store):
    def function(record):
        number = int(record.value)
        return {
            0: None,
            1: record.value,
            2: NewRecord(record.value, b"new", (("h", b"1"),)),
            3: [record.value, None, NewRecord(record.value)],
            4: (each for each in ()),
        }[number % 5]

    store.transform("in", "out", function, group="g").run(until_end=True)
    found = {}
    for record in committed(store):
        found.setdefault(int(record.value), []).append(record)
    assert set(found) == {number for number in range(RECORDS) if number % 5 in (1, 2, 3)}
    assert [len(found[number]) for number in (1, 2, 3)] == [1, 1, 2]
    assert found[1][0].key == b"k1"
    assert (found[2][0].key, found[2][0].headers) == (b"new", (("h", b"1"),))
    assert {record.key for record in found[3]} == {b"k3", None}


@pytest.mark.parametrize("result", ["text", 7, [b"x", 7], object()])
def test_what_it_may_not_return(store, result):
    transform = store.transform("in", "out", lambda record: result, group="g", retries=0)
    with pytest.raises(InvalidRecordError, match="a transform has returned"):
        transform.run(until_end=True)
    assert committed(store) == []


def test_an_exception_ends_the_run_and_nothing_of_the_batch_counts(store):
    def unlucky(record):
        if record.value == b"13":
            raise ValueError("unlucky")
        return record.value

    transform = store.transform("in", "out", unlucky, group="g", retries=0)
    with pytest.raises(ValueError, match="unlucky") as caught:
        transform.run(until_end=True)
    assert "while transforming in-" in caught.value.__notes__[0]
    store.transform("in", "out", same, group="g").run(until_end=True)
    assert numbers(store) == list(range(RECORDS))


def test_a_record_that_fails_goes_to_the_dead_letter_topic_with_its_reason(store):
    calls = []

    def unlucky(record):
        if record.value == b"13":
            calls.append(record.offset)
            raise ValueError("unlucky")
        return record.value

    transform = store.transform(
        "in", "out", unlucky, group="g", dead_letter_topic="dead", retries=2, retry_backoff_ms=1
    )
    assert transform.run(until_end=True).dead_count == 1
    assert len(calls) == 3
    assert numbers(store) == [number for number in range(RECORDS) if number != 13]
    (dead,) = committed(store, "dead")
    assert (dead.value, dead.key) == (b"13", b"k6")
    headers = dict(dead.headers)
    assert headers["logstore.error"] == b"ValueError: unlucky"
    assert (headers["logstore.topic"], headers["logstore.offset"]) == (b"in", b"%d" % calls[0])


def test_a_result_that_the_target_refuses_goes_there_too(store):
    """It ended the run. Of a record of which one result is refused, none counts."""

    def function(record):
        number = int(record.value)
        if number % 60 == 7:
            return [record.value, bytes(2_000_000)]
        return NewRecord(record.value, headers={1: b""}) if number == 100 else record.value

    transform = store.transform("in", "out", function, group="g", dead_letter_topic="dead")
    report = transform.run(until_end=True)
    dead = committed(store, "dead")
    assert sorted(int(record.value) for record in dead) == [7, 67, 100, 127, 187, 247]
    assert report[:3] == (RECORDS, RECORDS, 6)
    assert {dict(record.headers)["logstore.error"].partition(b":")[0] for record in dead} == {
        b"RecordTooLargeError",
        b"InvalidRecordError",
    }
    assert numbers(store) == sorted(set(range(RECORDS)) - {7, 67, 100, 127, 187, 247})
    assert transform.run(until_end=True) == report


def test_without_one_the_error_names_the_record_and_the_topic(store):
    transform = store.transform("in", "out", lambda record: bytes(2_000_000), group="g")
    with pytest.raises(RecordTooLargeError) as caught:
        transform.run(until_end=True)
    (note,) = caught.value.__notes__
    assert note.startswith("topic 'out' refuses what became of in-")
    assert note.endswith("dead_letter_topic= would take such records")


def test_a_dead_letter_topic_that_refuses_the_record_is_named(store):
    store["dead"].configure(max_message_bytes=100)
    store["in"].append(bytes(200))
    transform = store.transform(
        "in", "out", lambda record: int(record.value), group="g", dead_letter_topic="dead"
    )
    with pytest.raises(RecordTooLargeError) as caught:
        transform.run(until_end=True)
    assert "topic 'dead' does not take in-" in caught.value.__notes__[0]


def test_an_async_function_is_refused_at_once(store):
    """All records went to the dead-letter topic."""

    async def function(record):
        return record.value

    with pytest.raises(UsageError, match="must be a plain one"):
        store.transform("in", "out", function, group="g", dead_letter_topic="dead")


def test_an_error_that_passes_is_no_reason_to_call_again_later(store):
    failed = set()

    def shaky(record):
        if record.value not in failed:
            failed.add(record.value)
            raise OSError("try again")
        return record.value

    store.transform("in", "out", shaky, group="g", retry_backoff_ms=0).run(until_end=True)
    assert numbers(store) == list(range(RECORDS))


def test_it_waits_for_more_until_it_is_stopped(store):
    transform = store.transform("in", "out", same, group="g")
    thread = threading.Thread(target=transform.run)
    thread.start()
    with store.consumer("out", isolation=Isolation.COMMITTED) as consumer:
        seen = 0
        while seen < RECORDS:
            seen += len(consumer.poll(timeout=10))
        store["in"][0].append(b"1000")
        (record,) = consumer.poll(timeout=10)
    assert record.value == b"1000"
    transform.stop()
    thread.join(10)
    assert not thread.is_alive()


def test_a_second_one_takes_over_and_the_first_is_told(store):
    entered, go_on = threading.Event(), threading.Event()

    def slow(record):
        entered.set()
        go_on.wait(10)
        return record.value

    errors = []

    def run():
        try:
            store.transform("in", "out", slow, group="g").run(until_end=True)
        except ProducerFencedError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(10)
    with store.producer(transactional_id="g-0"):
        go_on.set()
        thread.join(20)
    assert len(errors) == 1
    assert committed(store) == []
    store.transform("in", "out", same, group="g").run(until_end=True)
    assert numbers(store) == list(range(RECORDS))


def test_a_group_that_rebalances_and_an_end_without_an_answer(store, monkeypatch):
    """Every third commit of offsets is refused, and every fourth end has no answer, done or not."""
    commit, end = LocalBroker.offset_commit, LocalBroker.end_transaction
    counts = {"commits": 0, "ends": 0}

    def refuse(self, request):
        counts["commits"] += request.transaction is not None
        if request.transaction is not None and counts["commits"] % 3 == 0:
            codes = dict.fromkeys(request.offsets, ErrorCode.REBALANCE_IN_PROGRESS)
            return Answered(OffsetCommitResult(codes))
        return commit(self, request)

    def forget(self, request):
        counts["ends"] += 1
        if counts["ends"] % 8 == 4:
            return Answered(EndTransactionResult(ErrorCode.REQUEST_TIMED_OUT))
        answer = end(self, request)
        if counts["ends"] % 8 == 0:
            return Answered(EndTransactionResult(ErrorCode.REQUEST_TIMED_OUT))
        return answer

    monkeypatch.setattr(LocalBroker, "offset_commit", refuse)
    monkeypatch.setattr(LocalBroker, "end_transaction", forget)
    transform = store.transform("in", "out", same, group="g", retry_backoff_ms=1, max_poll_records=10)
    transform.run(until_end=True)
    assert min(counts.values()) > 20
    assert numbers(store) == list(range(RECORDS))


def test_offsets_that_stay_about_to_be_committed_end_the_run(store, monkeypatch):
    """A log refuses the marker of a transaction that has committed the group's offsets."""
    monkeypatch.setattr(LocalLogs, "_append_marker", lambda *arguments: False)
    monkeypatch.setattr("logstore.clients.transform._PATIENCE_SECONDS", 0.3)
    other = store.producer(transactional_id="other")
    with other.transaction() as transaction:
        transaction.commit_offsets("g", {("in", number): 1 for number in range(3)})
    with pytest.raises(RetriableError, match="transaction"):
        store.transform("in", "out", same, group="g").run(until_end=True)


def test_wrong_arguments(store):
    with pytest.raises(UnknownTopicError):
        store.transform("nowhere", "out", same, group="g")
    with pytest.raises(UnknownTopicError):
        store.transform("in", "nowhere", same, group="g")
    with pytest.raises(UnknownTopicError):
        store.transform("in", "out", same, group="g", dead_letter_topic="nowhere")
    with pytest.raises(UsageError, match="round and round; name another topic"):
        store.transform("in", "out", same, group="g", dead_letter_topic="in")
    for name, value in (("retries", -1), ("workers", 0), ("retry_backoff_ms", 1.5)):
        with pytest.raises(UsageError, match=name):
            store.transform("in", "out", same, group="g", **{name: value})
    with pytest.raises(UsageError, match="function"):
        store.transform("in", "out", None, group="g")
