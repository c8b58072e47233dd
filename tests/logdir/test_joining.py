"""The records of a topic's partitions as one sequence."""

from __future__ import annotations

import heapq
import random
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import logstore
from logstore.errors import ClosedError, OffsetOutOfRangeError, UnknownTopicError, UsageError
from logstore.logdir import joining
from logstore.model import Isolation, ProducerIdentity
from logstore.testing import ManualClock

T0_MS = 1_767_225_600_000
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def fill(topic, chance, count=60):
    now = 0
    for number in range(count):
        now += chance.randint(0, 3)
        late = chance.choice([0, 0, 0, 5])
        partition = chance.randrange(len(topic))
        topic.append(b"%d" % number, partition=partition, timestamp_ms=T0_MS + max(now - late, 0))
        if chance.random() < 0.1:
            topic[partition].flush()


def merge(rows):
    """Of lists of (partition, record)."""
    merged = heapq.merge(*rows, key=lambda row: row[1].timestamp_ms)
    return [(number, record.offset) for number, record in merged]


def places(records):
    return [(record.partition, record.offset) for record in records]


@pytest.mark.parametrize("seed", range(10))
def test_partitions_are_merged_by_time_and_each_stays_in_order(tmp_path, seed):
    chance = random.Random(seed)
    with logstore.open(tmp_path, clock=ManualClock(T0_MS)) as store:
        topic = store.create_topic("t", partitions=chance.choice([1, 3, 7]))
        fill(topic, chance)
        rows = [[(log.partition.partition, record) for record in log.read()] for log in topic]
        merged = merge(rows)
        one_by_one = [(number, record.offset) for row in rows for number, record in row]
        with logstore.open(tmp_path, read_only=True) as elsewhere:
            for each in (topic, elsewhere["t"]):
                assert places(each.read()) == merged
                assert places(each.read(order="partition")) == one_by_one
                assert places(each.follow("earliest", timeout=0)) == merged
                assert places(each.follow("earliest", timeout=0, order="partition")) == one_by_one
                low, high = sorted(chance.sample(range(120), 2))
                between = T0 + timedelta(milliseconds=low), T0 + timedelta(milliseconds=high)
                assert sorted(places(each.read(*between))) == sorted(
                    (log.partition.partition, record.offset) for log in each for record in log.read(*between)
                )
                starts = {number: chance.randint(0, log.log_end_offset) for number, log in enumerate(each)}
                some = dict(chance.sample(sorted(starts.items()), len(starts) // 2))
                wanted = merge([row[some.get(number, 0) :] for number, row in enumerate(rows)])
                assert places(each.read(some)) == wanted
                assert places(each.follow(some, timeout=0)) == wanted
                wanted = merge([row[: some.get(number)] for number, row in enumerate(rows)])
                assert places(each.read("earliest", some)) == wanted


def test_a_reader_goes_on_behind_the_last_record(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=3)
        for number in range(30):
            topic.append(b"%d" % number, key=b"%d" % number)
        done, seen = {}, []
        for record in topic.read():
            seen.append(record.value)
            done[record.partition] = record.offset + 1
            if len(seen) == 11:
                break
        seen += [record.value for record in topic.read(done)]
        assert sorted(seen) == sorted(b"%d" % number for number in range(30))
        assert len(seen) == 30


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_follower_gets_what_comes_also_in_new_partitions(tmp_path, is_elsewhere):
    """2 s."""
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        topic.append(b"before", partition=0, flush=True)
        followed = logstore.open(tmp_path, read_only=True)["t"] if is_elsewhere else topic
        found, ready = [], threading.Event()

        def follow():
            following = followed.follow(timeout=20)
            ready.set()
            for record in following:
                found.append((record.partition, record.value))
                if record.value == b"end":
                    return

        thread = threading.Thread(target=follow)
        thread.start()
        ready.wait()
        for number in range(10):
            topic.append(b"%d" % number, partition=number % 2)
            time.sleep(0.01)
        topic.add_partitions(4)
        topic.append(b"new", partition=3)
        while (3, b"new") not in found:
            time.sleep(0.01)
            assert thread.is_alive()
        topic.append(b"end", partition=2)
        thread.join()
        wanted = [(number % 2, b"%d" % number) for number in range(10)]
        assert sorted(found[:10]) == sorted(wanted)
        assert found[10:] == [(3, b"new"), (2, b"end")]


def test_a_follower_elsewhere_reads_what_has_grown_before_it_looks_at_the_rest(tmp_path, monkeypatch):
    looks = []
    advance = joining._Followed.advance

    def look(followed, numbers):
        found = advance(followed, numbers)
        looks.append(list(numbers))
        if len(looks) == 1:
            topic[7].extend([b"late"])  # behind the first look
        return found

    monkeypatch.setattr(joining._Followed, "advance", look)
    with logstore.open(tmp_path) as store, logstore.open(tmp_path, read_only=True) as reader:
        topic = store.create_topic("t", partitions=20)
        following = reader["t"].follow("latest", timeout=0.5)
        assert next(following).value == b"late"
        assert looks == [[*range(20)], [7]]
        assert list(following) == []
        assert looks[2:] == [[*range(20)]] * len(looks[2:])


def test_a_follower_ends_with_its_topic(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        following = topic.follow()
        threading.Timer(0.1, lambda: store.delete_topic("t")).start()
        with pytest.raises((ClosedError, UnknownTopicError)):
            next(following)


def test_committed_reads_wait_for_the_transaction(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        topic[0].extend([b"open"], producer=ProducerIdentity(1, 0, 0, transactional=True))
        topic[1].extend([b"plain"])
        committed = Isolation.COMMITTED
        assert [record.value for record in topic.read(isolation=committed)] == [b"plain"]
        following = topic.follow("earliest", isolation=committed, timeout=5)
        assert next(following).value == b"plain"
        topic[0].append_end_marker(1, 0, committed=True)
        assert next(following).value == b"open"


def test_what_is_appended_meanwhile_is_not_read(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        topic.append(b"1", partition=0)
        reading = topic.read()
        topic.append(b"2", partition=1)
        assert [record.value for record in reading] == [b"1"]


def test_wrong_places_are_refused_at_once(tmp_path):
    with logstore.open(tmp_path) as store:
        topic = store.create_topic("t", partitions=2)
        topic.append(b"1", partition=0)
        for call, words in (
            (lambda: topic.read(5), r"start is 5; .*topic\[0\].read\(5\)"),
            (lambda: topic.read({7: 0}), "start names partition 7; the topic has 2, from 0 on"),
            (lambda: topic.read({"a": 0}), "start names partition 'a'"),
            (lambda: topic.read("end"), "start is 'end'; it must be 'earliest', 'latest'"),
            (lambda: topic.read(stop="latest"), "stop is 'latest'; it must be a datetime"),
            (lambda: topic.read(order="offset"), "order is 'offset'; it must be 'timestamp' or 'partition'"),
            (lambda: topic.follow(timeout=-1), "timeout is -1"),
            (lambda: topic.follow(isolation=3), "isolation is 3"),
        ):
            with pytest.raises(UsageError, match=words):
                call()
        for call in (lambda: topic.read({0: 5}), lambda: topic.follow({0: 5})):
            with pytest.raises(
                OffsetOutOfRangeError, match="offset 5 is outside the log, which holds 0 to 1"
            ):
                call()
