"""Consumers, on a clock set by hand unless a test says otherwise."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.requests import DeleteTopicsRequest
from logstore.clients.consumer import Consumer
from logstore.clients.settings import ConsumerConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    InvalidConfigError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import Isolation, OffsetAndMetadata
from tests.broker.rig import T0, T1, Rig, Transactional, wakes_of


@pytest.fixture
def rig():
    return Rig()


def started(rig):
    """A transactional producer."""
    producer = Transactional(rig)
    assert producer.start() is ErrorCode.NONE
    return producer


def consumer_of(rig, *topics, partitions=(), group=None, isolation=Isolation.HIGH_WATERMARK, **settings):
    return Consumer(
        rig.broker,
        topics,
        partitions=partitions,
        group=group,
        isolation=isolation,
        config=ConsumerConfig(**settings),
        clock=rig.clock,
    )


def values(records):
    return [record.value for record in records]


def fill(rig, count, partition=T0, start=0):
    log = rig.directory.log(partition)
    log.extend([(b"k", b"%d" % number) for number in range(start, start + count)])
    return log


class TestReading:
    def test_every_record_of_every_partition_comes_once_and_in_order(self, rig):
        fill(rig, 700)
        fill(rig, 30, T1)
        consumer = consumer_of(rig, "t", max_poll_records=100)
        found = []
        while some := consumer.poll(timeout=0):
            assert len(some) <= 100
            assert len({record.partition for record in some}) == 1
            found += some
        for number, count in ((0, 700), (1, 30)):
            assert [r.offset for r in found if r.partition == number] == list(range(count))
        assert consumer.assignment == (T0, T1)
        assert consumer.lag() == {T0: 0, T1: 0}

    def test_a_poll_ends_in_time_though_each_fetch_takes_longer_than_that(self, rig):
        """With thousands of partitions, or on a slow disk."""
        counted = []

        class Slow:
            def __getattr__(self, name):
                return getattr(rig.broker, name)

            def fetch(self, request):
                pending = rig.broker.fetch(request)
                counted.append(request.max_wait_ms)
                assert len(counted) < 5
                rig.pass_time(1_000)
                return pending

        consumer = Consumer(Slow(), ("t",), clock=rig.clock)
        assert consumer.poll(timeout=0.2) == []
        assert counted == [200, 0]

    def test_partitions_take_turns(self, rig):
        for partition in (T0, T1):
            fill(rig, 50, partition)
        consumer = consumer_of(rig, "t", max_poll_records=1000, max_partition_fetch_bytes=1)
        turns = [consumer.poll(timeout=0)[0].partition for _ in range(2)]
        assert sorted(turns) == [0, 1]

    def test_a_timeout_gives_an_empty_list(self, rig):
        consumer = consumer_of(rig, "t")
        assert consumer.poll(timeout=0) == []
        assert consumer.poll(timeout=1) == []
        fill(rig, 1)
        assert values(consumer.poll(timeout=0)) == [b"0"]

    def test_fewer_records_are_asked_for(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0])
        assert [len(consumer.poll(timeout=0, max_records=3)) for _ in range(5)] == [3, 3, 3, 1, 0]
        with pytest.raises(UsageError, match="max_records is 0"):
            consumer.poll(max_records=0)

    def test_drain_ends_where_the_end_was(self, rig):
        fill(rig, 5)
        fill(rig, 5, T1)
        consumer = consumer_of(rig, "t")
        found = []
        for record in consumer.drain():
            found.append(record)
            fill(rig, 1, start=100)
        assert Counter(record.partition for record in found) == {0: 5, 1: 5}
        assert consumer.lag() == {T0: 10, T1: 0}
        assert len(list(consumer.drain())) == 10

    def test_drain_looks_for_new_partitions(self, rig):
        """It was poll() that looked, which a drain does not call where nothing is new in the old ones."""
        fill(rig, 3)
        consumer = consumer_of(rig, "t")
        assert len(list(consumer.drain())) == 3
        rig.directory.add_partitions("t", 3)
        fill(rig, 2, T0._replace(partition=2))
        rig.clock.advance(1_000)
        assert len(list(consumer.drain())) == 2

    def test_drain_passes_markers_and_gaps_at_the_end(self, rig):
        fill(rig, 3)
        producer = started(rig)
        producer.send(b"a")
        producer.end(committed=False)
        consumer = consumer_of(rig, "t", isolation=Isolation.COMMITTED)
        assert values(consumer.drain()) == [b"0", b"1", b"2"]
        assert consumer.position(T0) == 5
        assert values(consumer_of(rig, "t").drain()) == [b"0", b"1", b"2", b"a"]

    def test_what_an_iteration_has_not_used_comes_again(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0])
        for record in consumer:
            if record.offset == 3:
                break
        assert consumer.position(T0) == 4
        assert values(consumer.poll(timeout=0)) == [b"%d" % number for number in range(4, 10)]

    def test_a_poll_inside_an_iteration_does_not_pass_what_is_not_used_yet(self, rig):
        """An empty fetch moved the position behind the whole poll, and a commit took it from there."""
        fill(rig, 5)
        consumer = consumer_of(rig, partitions=[T0], group="g")
        found = []
        for record in consumer.drain():
            found.append(record.offset)
            found += [each.offset for each in consumer.poll(timeout=0, max_records=1)]
            assert consumer.position(T0) == len(found)
            assert consumer.lag() == {T0: 5 - len(found)}
            consumer.commit()
            assert consumer.committed()[T0].offset == len(found)
        assert found == [0, 1, 2, 3, 4]

    def test_polls_and_drains_take_what_an_iterator_has_not_given(self, rig):
        """They found nothing, and a drain went on without end."""
        fill(rig, 10)
        fill(rig, 4, T1)
        consumer = consumer_of(rig, partitions=[T0, T1], max_poll_records=6)
        iterator = iter(consumer)
        found = [next(iterator), next(iterator)]
        found += consumer.poll(timeout=0, max_records=1)
        found += [next(iterator) for _ in range(2)]
        found.append(next(consumer.drain()))
        found += [next(iterator), *consumer.drain()]
        assert sorted(record.offset for record in found if record.partition == 1) == [0, 1, 2, 3]
        assert [record.offset for record in found if record.partition == 0] == list(range(10))
        assert consumer.lag() == {T0: 0, T1: 0}
        fill(rig, 1, start=10)
        assert next(iterator).offset == 10

    @pytest.mark.parametrize("seed", range(20))
    def test_every_way_to_read_goes_on_where_another_was(self, rig, seed):
        chance = random.Random(seed)
        fill(rig, 60)
        consumer = consumer_of(rig, partitions=[T0], max_poll_records=chance.randint(2, 20))
        iterators = [iter(consumer), iter(consumer), consumer.drain()]
        found = []
        while (at := consumer.position(T0)) < 60:
            assert [record.offset for record in found] == list(range(at))
            assert consumer.lag() == {T0: 60 - at}
            way = chance.randrange(5)
            if way < len(iterators):
                found += [next(iterators[way])]
            elif way == 3:
                found += consumer.poll(timeout=0, max_records=chance.randint(1, 3))
            else:
                consumer.seek(T0, at)
        assert [record.offset for record in found] == list(range(60))

    def test_a_seek_inside_an_iteration_counts(self, rig):
        fill(rig, 5)
        consumer = consumer_of(rig, partitions=[T0])
        found = []
        for record in consumer:
            found.append(record.offset)
            if found == [0, 1, 2]:
                consumer.seek(T0, 1)
            if len(found) == 6:
                break
        assert found == [0, 1, 2, 1, 2, 3]

    def test_isolation(self, rig):
        rig.produce(b"a")
        producer = started(rig)
        producer.send(b"b")
        rig.produce(b"c")
        committed = consumer_of(rig, partitions=[T0], isolation=Isolation.COMMITTED)
        everything = consumer_of(rig, partitions=[T0])
        assert values(committed.poll(timeout=0)) == [b"a"]
        assert values(everything.poll(timeout=0)) == [b"a", b"b", b"c"]
        producer.end(committed=False)
        assert values(committed.drain()) == [b"c"]

    def test_new_partitions_are_found(self, rig):
        consumer = consumer_of(rig, "t")
        rig.directory.add_partitions("t", 3)
        fill(rig, 1, T0._replace(partition=2))
        assert consumer.poll(timeout=0) == []
        rig.clock.advance(1000)
        assert values(consumer.poll(timeout=0)) == [b"0"]

    def test_records_say_where_they_are_from(self, rig):
        fill(rig, 1, T1)
        (record,) = consumer_of(rig, "t").poll(timeout=0)
        assert (record.topic, record.partition, record.leader_epoch) == ("t", 1, 0)


class TestPositions:
    def test_seek_rereads(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[("t", 0)])
        first = values(consumer.poll(timeout=0))
        consumer.seek(("t", 0), 0)
        assert consumer.position(T0) == 0
        assert values(consumer.poll(timeout=0)) == first
        consumer.seek_to_beginning()
        assert values(consumer.poll(timeout=0, max_records=2)) == [b"0", b"1"]
        consumer.seek_to_end(T0)
        assert (consumer.position(T0), consumer.poll(timeout=0)) == (10, [])

    def test_seek_into_a_batch(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0])
        consumer.seek(T0, 7)
        assert values(consumer.poll(timeout=0)) == [b"7", b"8", b"9"]

    def test_seek_to_a_time(self, rig):
        log = rig.directory.log(T0)
        start = rig.clock.now_ms()
        log.extend([(None, b"%d" % number, start + number * 1000) for number in range(5)])
        consumer = consumer_of(rig, "t")
        consumer.seek_to_time(start + 1500)
        assert (consumer.position(T0), consumer.position(T1)) == (2, 0)
        consumer.seek_to_time(datetime.fromtimestamp((start + 4000) / 1000, UTC), T0)
        assert consumer.position(T0) == 4
        consumer.seek_to_time(start + 10**9)
        assert consumer.position(T0) == 5
        with pytest.raises(UsageError, match="timestamp_ms is -5"):
            consumer.seek_to_time(-5)

    def test_paused_partitions_give_nothing(self, rig):
        fill(rig, 3)
        fill(rig, 3, T1)
        consumer = consumer_of(rig, "t", max_poll_records=1)
        consumer.pause(T0)
        assert consumer.paused == (T0,)
        assert {record.partition for record in _all(consumer)} == {1}
        consumer.resume()
        assert [record.partition for record in _all(consumer)] == [0, 0, 0]

    @pytest.mark.parametrize(
        ("reset", "offset"),
        [
            ("earliest", 2),
            ("latest", 5),
            (timedelta(seconds=2, milliseconds=500), 3),
            (timedelta(days=100_000), 2),  # before 1970
            (timedelta(days=-100_000), 5),
        ],
    )
    def test_where_it_begins(self, rig, reset, offset):
        log = rig.directory.log(T0)
        for _ in range(5):
            rig.produce(b"a")
            rig.clock.advance(1000)
        log.delete_before(2)
        assert consumer_of(rig, partitions=[T0], auto_offset_reset=reset).position(T0) == offset

    def test_nowhere_to_begin(self, rig):
        consumer = consumer_of(rig, partitions=[T0], auto_offset_reset="none")
        with pytest.raises(OffsetOutOfRangeError, match="no committed offset for t-0"):
            consumer.poll(timeout=0)
        consumer.seek(T0, 0)
        assert consumer.poll(timeout=0) == []

    def test_records_that_were_deleted_in_front_of_it(self, rig):
        log = fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0])
        strict = consumer_of(rig, partitions=[T0], auto_offset_reset="none")
        for each in (consumer, strict):
            each.seek(T0, 2)
        log.delete_before(5)
        assert consumer.poll(timeout=0)[0].offset == 5
        with pytest.raises(
            OffsetOutOfRangeError, match="t-0: offset 2 is outside of the log, which holds 5 to 10"
        ):
            strict.poll(timeout=0)

    def test_partitions_that_it_does_not_read(self, rig):
        consumer = consumer_of(rig, partitions=[T0])
        for call in (consumer.position, consumer.pause, consumer.seek_to_end, lambda p: consumer.seek(p, 0)):
            with pytest.raises(UsageError, match="does not read t-1; it reads t-0"):
                call(T1)
        consumer.assign([T1])
        assert consumer.assignment == (T1,)

    def test_topics_and_partitions_exclude_each_other(self, rig):
        with pytest.raises(UsageError, match="topics or partitions"):
            consumer_of(rig, "t", partitions=[T0])
        with pytest.raises(UsageError, match="finds their partitions itself"):
            consumer_of(rig, "t").assign([T0])


class TestCommits:
    def test_a_group_goes_on_where_it_was(self, rig):
        fill(rig, 10)
        with consumer_of(rig, "t", group="g") as consumer:
            consumer.poll(timeout=0, max_records=4)
            consumer.commit()
            assert consumer.committed()[T0].offset == 4
        assert consumer_of(rig, "t", group="g").poll(timeout=0)[0].offset == 4
        assert consumer_of(rig, "t", group="h").poll(timeout=0)[0].offset == 0

    def test_nothing_is_committed_that_nobody_asked_for(self, rig):
        fill(rig, 10)
        with consumer_of(rig, "t", group="g") as consumer:
            consumer.poll(timeout=0)
        assert consumer_of(rig, "t", group="g").committed([T0, T1]) == {}

    def test_a_commit_in_a_loop_covers_the_present_record(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0], group="g")
        for record in consumer:
            if record.offset == 3:
                consumer.commit()
                break
        assert consumer.committed()[T0].offset == 4

    def test_a_commit_of_a_record_and_of_offsets(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0], group="g")
        found = consumer.poll(timeout=0)
        consumer.commit(found[2])
        assert consumer.committed()[T0].offset == 3
        consumer.commit({("t", 0): OffsetAndMetadata(5, "a note")})
        assert consumer.committed([T0])[T0] == OffsetAndMetadata(5, "a note")
        with pytest.raises(UsageError, match="does not read t-1"):
            consumer.commit({T1: 0})

    def test_automatic_commits_cover_what_was_polled_before(self, rig):
        fill(rig, 10)
        settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000}
        consumer = consumer_of(rig, partitions=[T0], group="g", **settings)
        consumer.poll(timeout=0, max_records=2)
        rig.clock.advance(1000)
        assert consumer.committed() == {}
        consumer.poll(timeout=0, max_records=2)
        assert consumer.committed()[T0].offset == 2
        consumer.close()
        assert consumer_of(rig, partitions=[T0], group="g").committed()[T0].offset == 4

    def test_an_error_in_the_block_commits_nothing(self, rig):
        fill(rig, 10)
        consumer = consumer_of(rig, partitions=[T0], group="g", enable_auto_commit=True)

        def work():
            with consumer:
                consumer.poll(timeout=0)
                return 1 / 0

        with pytest.raises(ZeroDivisionError):
            work()
        assert consumer_of(rig, partitions=[T0], group="g").committed() == {}

    def test_without_a_group(self, rig):
        consumer = consumer_of(rig, "t")
        for call in (consumer.commit, consumer.committed):
            with pytest.raises(UsageError, match="has no group"):
                call()


class TestErrors:
    @pytest.mark.damaged
    def test_a_damaged_batch_stays_in_the_way_of_its_partition_only(self, rig):
        log = rig.directory.log(T0)
        rig.produce(b"a")
        rig.produce(b"bbbb")
        rig.produce(b"c")
        fill(rig, 1, T1)
        path = f"{log.directory}/00000000000000000000.log"
        data = rig.files.open(path)
        content = data.read_at(0, data.size_bytes())
        at = content.index(b"bbbb")
        rig.files.open(path, write=True).write_at(at, [b"x"])
        consumer = consumer_of(rig, "t", max_partition_fetch_bytes=1)
        found, errors = [], []
        for _ in range(8):
            try:
                found += consumer.poll(timeout=0)
            except CorruptionError as error:
                errors.append(error)
        assert sorted(values(found)) == [b"0", b"a"]
        assert (errors[0].partition, errors[0].base_offset, errors[0].last_offset) == (T0, 1, 1)
        assert "t-0 at offset 1" in str(errors[0])
        assert "seek() to offset 2 passes it" in str(errors[0])
        assert consumer.position(T0) == 1
        consumer.seek(errors[0].partition, errors[0].last_offset + 1)
        assert values(consumer.poll(timeout=0)) == [b"c"]

    def test_topics_that_are_not_there(self, rig):
        with pytest.raises(UnknownTopicError, match="no topic 'x'"):
            consumer_of(rig, "x")
        with pytest.raises(UsageError, match="5 is no name"):
            consumer_of(rig, 5)
        consumer = consumer_of(rig, "t")
        rig.broker.delete_topics(DeleteTopicsRequest(("t",)))
        with pytest.raises(UnknownTopicError, match="t"):
            consumer.poll(timeout=0)

    def test_a_closed_consumer(self, rig):
        consumer = consumer_of(rig, "t")
        consumer.close()
        consumer.close()
        with pytest.raises(ClosedError, match="the consumer is closed"):
            consumer.poll()

    def test_settings(self):
        for wrong in ({"auto_offset_reset": "first"}, {"max_poll_records": 0}, {"enable_auto_commit": 1}):
            with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
                ConsumerConfig(**wrong)


class TestPollingWithoutAThread:
    """A poll that a loop drives: by its wakes, and by the clock."""

    def test_records_wake_it(self, rig):
        polling = consumer_of(rig, "t").begin_poll()
        assert polling.poll() is None
        wakes = wakes_of(polling)
        assert not wakes
        fill(rig, 2)
        assert wakes == ["woken"]
        assert values(polling.poll()) == [b"0", b"1"]
        assert values(polling.poll()) == [b"0", b"1"]
        assert wakes_of(polling) == ["woken"]

    def test_time_ends_it(self, rig):
        polling = consumer_of(rig, "t", metadata_max_age_ms=60_000).begin_poll(timeout=2)
        assert polling.poll() is None
        assert polling.wait_ms() == 2000
        rig.pass_time(1999)
        assert (polling.poll(), polling.wait_ms()) == (None, 1)
        rig.pass_time(1)
        assert (polling.poll(), polling.wait_ms()) == ([], 0)

    def test_it_looks_for_new_partitions_meanwhile(self, rig):
        polling = consumer_of(rig, "t", metadata_max_age_ms=500).begin_poll(timeout=2)
        assert polling.poll() is None
        assert polling.wait_ms() == 500

    def test_wakeup_ends_it_before_and_after_it_waits(self, rig):
        consumer = consumer_of(rig, "t")
        polling = consumer.begin_poll()
        assert polling.poll() is None
        wakes = wakes_of(polling)
        consumer.wakeup()
        assert wakes == ["woken"]
        with pytest.raises(RetriableError, match="wakeup"):
            polling.poll()
        consumer.wakeup()
        assert wakes_of(consumer.begin_poll()) == ["woken"]

    def test_what_a_cancelled_poll_has_fetched_comes_with_the_next(self, rig):
        consumer = consumer_of(rig, "t")
        polling = consumer.begin_poll()
        assert polling.poll() is None
        wakes = wakes_of(polling)
        polling.cancel()
        fill(rig, 1)
        assert values(consumer.begin_poll().poll()) == [b"0"]
        consumer.wakeup()
        assert wakes == []

    def test_nothing_is_asked_for_while_all_partitions_are_paused(self, rig):
        fill(rig, 1)
        asked = []
        rig.broker.fetch = asked.append
        consumer = consumer_of(rig, "t")
        consumer.pause()
        polling = consumer.begin_poll(timeout=10)
        for _ in range(3):
            assert polling.poll() is None
        assert asked == []


def test_a_waiting_poll_is_woken(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        consumer = Consumer(LocalBroker(store._directory), ["t"])
        threading.Timer(0.05, consumer.wakeup).start()
        with pytest.raises(RetriableError, match="wakeup"):
            consumer.poll()
        threading.Timer(0.05, lambda: store["t"].append(b"a")).start()
        assert values(consumer.poll()) == [b"a"]


@pytest.mark.parametrize("seed", range(30))
def test_any_use_gives_what_a_list_says(seed):
    """Polls, seeks, appends, rolls, commits and new consumers of the group, against lists."""
    chance = random.Random(seed)
    rig = Rig()
    logs = {each: rig.directory.log(each) for each in (T0, T1)}
    kept = {T0: [], T1: []}
    settings = {
        "partitions": [T0, T1],
        "group": "g",
        "max_partition_fetch_bytes": chance.choice([1, 300, 10**6]),
    }
    consumer = consumer_of(rig, **settings)
    at, committed = {T0: 0, T1: 0}, {}
    for _ in range(120):
        partition = chance.choice([T0, T1])
        action = chance.random()
        if action < 0.3:
            new = [b"%d" % (len(kept[partition]) + n) for n in range(chance.randint(1, 8))]
            logs[partition].extend(new)
            kept[partition] += new
        elif action < 0.35:
            logs[partition].roll()
        elif action < 0.7:
            for record in consumer.poll(timeout=0, max_records=chance.randint(1, 5)):
                place = T0._replace(partition=record.partition)
                assert (record.offset, record.value) == (at[place], kept[place][at[place]])
                at[place] += 1
        elif action < 0.8:
            at[partition] = chance.randint(0, len(kept[partition]))
            consumer.seek(partition, at[partition])
        elif action < 0.9:
            consumer.commit()
            committed = {each: consumer.position(each) for each in (T0, T1)}
            assert committed == at
        else:
            consumer.close()
            consumer = consumer_of(rig, **settings)
            at = {each: committed.get(each, 0) for each in (T0, T1)}
        assert {each: consumer.position(each) for each in (T0, T1)} == at
    for record in consumer.drain():
        place = T0._replace(partition=record.partition)
        assert record.value == kept[place][at[place]]
        at[place] += 1
    assert at == {each: len(kept[each]) for each in kept}


def _all(consumer):
    found = []
    while some := consumer.poll(timeout=0):
        found += some
    return found
