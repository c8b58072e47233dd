"""What any broker answers, on a clock set by hand. The broker comes from the fixture ``rig``."""

from __future__ import annotations

import threading

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.kept import KeptPartition
from logstore.broker.pending import wait_for
from logstore.broker.requests import (
    ACKS_ALL,
    ACKS_LEADER,
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    EpochPartition,
    FetchPartition,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    MorePartitions,
    NewTopic,
    OffsetsForLeaderEpochRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgeBatch,
    AcknowledgePartition,
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareOffsetsQuery,
    TopicIdPartition,
)
from logstore.model import Isolation, TopicPartition
from logstore.testing.memory import MemoryFile
from tests.broker.rig import T0, T1, Rig, Transactional, batch_of, values_of, wakes_of

NOWHERE = TopicPartition("nowhere", 0)


@pytest.fixture
def rig():
    return Rig()


class TestProduce:
    def test_offsets_follow_one_another(self, rig):
        assert rig.produce(b"a", b"b")[1:3] == (ErrorCode.NONE, 0)
        assert rig.produce(b"c")[1:3] == (ErrorCode.NONE, 2)
        assert rig.produce(b"d", to=T1)[1:3] == (ErrorCode.NONE, 0)

    def test_each_partition_has_its_own_outcome(self, rig):
        good = batch_of([b"a"], rig.clock.now_ms())
        broken = bytearray(good)
        broken[-1] ^= 1
        wanted = ((T0, good), (NOWHERE, good), (T1, bytes(broken)), (T1, b""))
        request = ProduceRequest(ACKS_LEADER, 1000, tuple(ProducePartition(*each) for each in wanted))
        outcomes = rig.now(rig.broker.produce(request)).partitions
        assert [each.partition for each in outcomes] == [T0, NOWHERE, T1, T1]
        assert [each.error for each in outcomes] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.INVALID_RECORD,
        ]
        assert all(each.message for each in outcomes[1:])
        assert rig.produce(b"b", to=T1).base_offset == 0

    def test_acks_that_kafka_does_not_have(self, rig):
        assert rig.produce(b"a", acks=2).error is ErrorCode.INVALID_REQUIRED_ACKS
        assert rig.produce(b"a").base_offset == 0

    def test_all_waits_until_the_batch_is_durable(self, rig):
        pending = rig.ask(batch_of([b"a"], rig.clock.now_ms()), acks=ACKS_ALL)
        wakes = wakes_of(pending)
        assert pending.poll() is None
        log = rig.directory.log(T0)
        assert (log.log_end_offset, log.durable_offset) == (1, 0)
        rig.pass_time(0)
        assert log.durable_offset == 1
        assert wakes == ["woken"]
        assert rig.now(pending).partitions[0][1:3] == (ErrorCode.NONE, 0)

    def test_one_flush_serves_all_who_wait(self, rig, monkeypatch):
        flushed = []
        flush = MemoryFile.flush
        monkeypatch.setattr(MemoryFile, "flush", lambda file: (flushed.append(file), flush(file)))
        pendings = [rig.ask(batch_of([b"a"], rig.clock.now_ms()), acks=ACKS_ALL) for _ in range(50)]
        assert flushed == []
        rig.pass_time(0)
        assert [rig.now(pending).partitions[0].base_offset for pending in pendings] == list(range(50))
        assert len(flushed) == 1

    def test_all_waits_no_longer_than_the_request_says(self, rig):
        pending = rig.ask(batch_of([b"a"], rig.clock.now_ms()), acks=ACKS_ALL, timeout_ms=0)
        rig.pass_time(0)  # the time is over before the background comes to the flush
        outcome = rig.now(pending).partitions[0]
        assert (outcome.error, outcome.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)

    def test_who_waits_for_the_disk_is_told_that_the_topic_was_deleted(self, rig):
        """Not that the disk fails, of which the log of the program would warn."""
        pending = rig.ask(batch_of([b"a"], rig.clock.now_ms()), acks=ACKS_ALL)
        rig.directory.delete_topic("t")
        outcome = rig.now(pending).partitions[0]
        assert outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert outcome.message == "t-0 was deleted before the batch was durable"

    def test_a_topic_may_choose_that_all_does_not_flush(self):
        rig = Rig(acks_all_durable=False)
        assert rig.produce(b"a", acks=ACKS_ALL).error is ErrorCode.NONE
        assert rig.directory.log(T0).durable_offset == 0

    def test_a_topic_may_choose_that_each_acks_flushes(self):
        rig = Rig(flush_messages=1)
        assert rig.produce(b"a").error is ErrorCode.NONE
        assert rig.directory.log(T0).durable_offset == 1

    def test_log_append_time_is_told(self):
        rig = Rig(message_timestamp_type="LogAppendTime")
        rig.clock.advance(5)
        assert rig.produce(b"a").log_append_time_ms == rig.clock.now_ms()
        assert Rig().produce(b"a").log_append_time_ms == -1

    def test_a_batch_that_is_sent_again_is_in_the_log_once(self, rig):
        stamp = {"producer_id": 7, "producer_epoch": 0}
        sent = batch_of([b"a", b"b"], rig.clock.now_ms(), base_sequence=0, **stamp)
        assert [rig.now(rig.ask(sent)).partitions[0].base_offset for _ in range(3)] == [0, 0, 0]
        assert rig.directory.log(T0).log_end_offset == 2
        gap = rig.produce(b"d", base_sequence=3, **stamp)
        assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert rig.produce(b"c", base_sequence=0, producer_id=7, producer_epoch=1).base_offset == 2
        assert rig.produce(b"c", base_sequence=2, **stamp).error is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_batch_that_is_too_large(self):
        rig = Rig(max_message_bytes=200)
        assert rig.produce(b"x" * 200).error is ErrorCode.MESSAGE_TOO_LARGE


class TestFetch:
    def test_what_is_there_comes_at_once(self, rig):
        rig.produce(b"a", b"b")
        rig.produce(b"c")
        rig.produce(b"d", to=T1)
        first, second = rig.now(rig.fetch(FetchPartition(T0, 1), FetchPartition(T1, 0))).partitions
        assert values_of(first.data) == [b"a", b"b", b"c"]  # whole batches: the first begins below the offset
        assert (first.next_offset, first.high_watermark, first.log_start_offset) == (3, 3, 0)
        assert values_of(second.data) == [b"d"]

    def test_the_end_of_the_log_is_waited_at(self, rig):
        rig.produce(b"a")
        pending = rig.fetch(FetchPartition(T0, 1), FetchPartition(T1, 0), max_wait_ms=500)
        wakes = wakes_of(pending)
        assert pending.poll() is None
        rig.produce(b"b", to=T1)
        assert wakes == ["woken"]
        first, second = rig.now(pending).partitions
        assert (values_of(first.data), values_of(second.data)) == ([], [b"b"])

    def test_a_topic_that_was_made_again_is_another(self, rig):
        """Each answer says which topic was read; whoever names that one is not given another's records."""
        rig.produce(b"old")
        rig.produce(b"kept", to=T1)
        (first,) = rig.now(rig.fetch(FetchPartition(T0, 0))).partitions
        again = FetchPartition(T0, 0, topic_id=first.topic_id)
        (same,) = rig.now(rig.fetch(again)).partitions
        assert (values_of(same.data), same.topic_id) == ([b"old"], first.topic_id)
        rig.now(rig.broker.delete_topics(DeleteTopicsRequest(("t",))))
        (gone,) = rig.now(rig.fetch(again)).partitions
        assert gone.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rig.now(rig.broker.create_topics(CreateTopicsRequest((NewTopic("t", 2),))))
        while rig.produce(b"new").error is not ErrorCode.NONE:  # a leader hears of its topic a little later
            rig.pass_time(10)
        (other,) = rig.now(rig.fetch(again)).partitions
        assert (other.error, other.data) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")
        assert "made again" in other.message
        (any_topic,) = rig.now(rig.fetch(FetchPartition(T0, 0))).partitions
        assert values_of(any_topic.data) == [b"new"]
        assert any_topic.topic_id not in (None, first.topic_id)

    def test_the_wait_ends_with_its_time(self, rig):
        pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=500)
        wakes = wakes_of(pending)
        rig.pass_time(499)
        assert (wakes, pending.poll()) == ([], None)
        rig.pass_time(1)
        assert wakes == ["woken"]
        (answer,) = rig.now(pending).partitions
        assert (answer.error, answer.data, answer.next_offset) == (ErrorCode.NONE, b"", 0)

    def test_no_wait_is_asked_for(self, rig):
        assert rig.now(rig.fetch(FetchPartition(T0, 0), max_wait_ms=0)).partitions[0].data == b""

    def test_a_wait_for_more_bytes_than_one_batch_has(self, rig):
        size = len(batch_of([b"x" * 100], 0))
        pending = rig.fetch(FetchPartition(T0, 0), min_bytes=3 * size, max_wait_ms=500)
        for count in range(3):
            wakes = wakes_of(pending)
            assert pending.poll() is None, count
            rig.produce(b"x" * 100)
            assert wakes == ["woken"]
        assert len(rig.now(pending).partitions[0].data) == 3 * size

    def test_what_came_between_the_look_and_the_wait_is_seen(self, rig, monkeypatch):
        watch, produced = KeptPartition.watch, []

        def watch_behind_an_append(*arguments):
            if not produced:
                produced.append(rig.produce(b"a"))
            return watch(*arguments)

        monkeypatch.setattr(KeptPartition, "watch", watch_behind_an_append)
        pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=500)
        assert wakes_of(pending) == ["woken"]
        assert values_of(rig.now(pending).partitions[0].data) == [b"a"]

    def test_gathered_appends_end_the_wait(self, rig):
        pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=500)
        wakes = wakes_of(pending)
        rig.directory.log(T0).append(b"a")
        rig.pass_time(rig.directory.config.linger_ms)
        assert wakes == ["woken"]
        assert values_of(rig.now(pending).partitions[0].data) == [b"a"]

    def test_an_error_in_one_partition_ends_the_wait(self, rig):
        rig.produce(b"a", to=T1)
        wanted = (FetchPartition(NOWHERE, 0), FetchPartition(T0, 1), FetchPartition(T1, 0))
        unknown, behind, found = rig.now(rig.fetch(*wanted)).partitions
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert behind.error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert values_of(found.data) == [b"a"]

    def test_a_topic_that_is_deleted_ends_the_wait(self, rig):
        pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=500)
        wakes = wakes_of(pending)
        rig.broker.delete_topics(DeleteTopicsRequest(("t",)))
        assert wakes == ["woken"]
        assert rig.now(pending).partitions[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_wait_that_is_cancelled_leaves_nothing(self, rig):
        pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=500)
        wakes = wakes_of(pending)
        pending.cancel()
        rig.produce(b"a")
        rig.pass_time(500)
        assert wakes == []
        assert not rig.directory.log(T0).writer.waits.is_watched

    def test_limits_hold_but_for_one_batch(self, rig):
        for _ in range(3):
            rig.produce(b"x" * 1000)
            rig.produce(b"y" * 1000, to=T1)
        size = len(batch_of([b"x" * 1000], 0))
        both = (FetchPartition(T0, 0), FetchPartition(T1, 0))
        for limit, counts in ((1, (1, 0)), (2 * size, (2, 0)), (4 * size + 5, (3, 1)), (10 * size, (3, 3))):
            found = rig.now(rig.fetch(*both, max_bytes=limit, max_wait_ms=0)).partitions
            assert tuple(len(each.data) // size for each in found) == counts, limit
        small = tuple(each._replace(max_bytes=1) for each in both)
        found = rig.now(rig.fetch(*small, min_bytes=100_000)).partitions  # no more can come: no wait
        assert [len(each.data) // size for each in found] == [1, 0]

    def test_a_rolled_segment_is_no_reason_to_wait(self, rig):
        rig.produce(b"a")
        rig.directory.log(T0).roll()
        rig.produce(b"b")
        (found,) = rig.now(rig.fetch(FetchPartition(T0, 0), min_bytes=100_000)).partitions
        assert values_of(found.data) == [b"a"]

    def test_committed_readers_stop_at_an_open_transaction_and_are_told_of_aborted_ones(self, rig):
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        assert producer.send(b"a") is ErrorCode.NONE
        committed = {"isolation": Isolation.COMMITTED, "max_wait_ms": 500}
        pending = rig.fetch(FetchPartition(T0, 0), **committed)
        wakes = wakes_of(pending)
        assert pending.poll() is None
        assert producer.end(committed=False) is ErrorCode.NONE
        assert set(wakes) == {"woken"}
        (found,) = rig.now(pending).partitions
        assert [tuple(each) for each in found.aborted] == [(producer.producer_id, 0)]
        assert found.last_stable_offset == 2
        assert values_of(rig.now(rig.fetch(FetchPartition(T0, 0))).partitions[0].data)[0] == b"a"

    def test_an_expected_leader_epoch(self, rig):
        rig.produce(b"a")
        rig.directory.log(T0).assign_leader_epoch(5)
        codes = {}
        for epoch in (-1, 4, 5, 6):
            wanted = FetchPartition(T0, 0, leader_epoch=epoch)
            codes[epoch] = rig.now(rig.fetch(wanted, max_wait_ms=0)).partitions[0].error
        assert codes == {
            -1: ErrorCode.NONE,
            4: ErrorCode.FENCED_LEADER_EPOCH,
            5: ErrorCode.NONE,
            6: ErrorCode.UNKNOWN_LEADER_EPOCH,
        }

    def test_a_thousand_long_polls_take_no_thread(self, rig):
        before = threading.active_count()
        pendings = [rig.fetch(FetchPartition(T0, 0), max_wait_ms=500) for _ in range(1000)]
        wakes = [wakes_of(pending) for pending in pendings]
        rig.produce(b"a")
        assert wakes == [["woken"]] * 1000
        assert all(values_of(rig.now(pending).partitions[0].data) == [b"a"] for pending in pendings)
        assert threading.active_count() == before

    def test_no_partitions_are_asked_for(self, rig):
        assert rig.now(rig.fetch()).partitions == ()


class TestLookups:
    def test_offsets(self, rig):
        start = rig.clock.now_ms()
        for _ in range(3):
            rig.produce(b"a")
            rig.clock.advance(10)
        log = rig.directory.log(T0)
        log.delete_before(1)

        def look(timestamp, partition=T0):
            request = ListOffsetsRequest((ListOffsetsPartition(partition, timestamp),))
            answer = rig.now(rig.broker.list_offsets(request)).partitions[0]
            return answer.error or (answer.offset, answer.timestamp_ms)

        assert look(EARLIEST) == (1, -1)
        assert look(LATEST) == (3, -1)
        assert look(start + 1) == (1, start + 10)
        assert look(start + 21) == (-1, -1)
        assert look(MAX_TIMESTAMP) == (2, start + 20)
        assert look(EARLIEST, NOWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert look(-7) is ErrorCode.INVALID_REQUEST

    def test_the_latest_of_committed_readers_is_the_last_stable_offset(self, rig):
        rig.produce(b"a")
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        assert producer.send(b"b") is ErrorCode.NONE
        for isolation, offset in ((Isolation.HIGH_WATERMARK, 2), (Isolation.COMMITTED, 1)):
            request = ListOffsetsRequest((ListOffsetsPartition(T0, LATEST),), isolation)
            assert rig.now(rig.broker.list_offsets(request)).partitions[0].offset == offset

    def test_ends_of_leader_epochs(self, rig):
        log = rig.directory.log(T0)
        rig.produce(b"a", b"b")
        log.assign_leader_epoch(3)
        rig.produce(b"c")

        def look(epoch, current=-1):
            request = OffsetsForLeaderEpochRequest((EpochPartition(T0, epoch, current),))
            answer = rig.now(rig.broker.offsets_for_leader_epoch(request)).partitions[0]
            return answer.error or (answer.epoch, answer.end_offset)

        assert look(0) == (0, 2)
        assert look(2) == (0, 2)
        assert look(3) == (3, 3)
        assert look(9) == (-1, -1)
        assert look(3, current=2) is ErrorCode.FENCED_LEADER_EPOCH

    def test_producer_ids_are_all_different(self, rig):
        found = {rig.now(rig.broker.init_producer_id(InitProducerIdRequest())) for _ in range(1000)}
        assert len({each.producer_id for each in found}) == 1000
        assert {(each.error, each.producer_epoch) for each in found} == {(ErrorCode.NONE, 0)}
        assert all(0 <= each.producer_id < 2**63 for each in found)


class TestTopics:
    def test_metadata(self, rig):
        rig.broker.create_topics(CreateTopicsRequest((NewTopic("__consumer_offsets"),)))
        every = rig.now(rig.broker.metadata(MetadataRequest()))
        assert [(each.name, len(each.partitions), each.is_internal) for each in every.topics] == [
            ("__consumer_offsets", 1, True),
            ("t", 2, False),
        ]
        assert every.cluster_id
        some = rig.now(rig.broker.metadata(MetadataRequest(("t", "x")))).topics
        assert [each.error for each in some] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert [(each.partition, each.leader_epoch, each.error) for each in some[0].partitions] == [
            (0, 0, ErrorCode.NONE),
            (1, 0, ErrorCode.NONE),
        ]

    def test_create_grow_and_delete(self, rig):
        broker = rig.broker
        wanted = (
            NewTopic("new", 3, {"retention.ms": "1000"}),
            NewTopic("t"),
            NewTopic("a b"),
            NewTopic("n", 0),
            NewTopic("m", 1, {"retension.ms": "1"}),
        )
        codes = [
            ErrorCode.NONE,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_CONFIG,
        ]
        planned = rig.now(broker.create_topics(CreateTopicsRequest(wanted, validate_only=True)))
        assert [each.error for each in planned.topics] == codes
        assert rig.directory.topic_names() == ["t"]
        made = rig.now(broker.create_topics(CreateTopicsRequest(wanted)))
        assert [each.error for each in made.topics] == codes
        assert rig.directory.config_of("new").retention_ms == 1000
        grown = CreatePartitionsRequest(
            (MorePartitions("new", 5), MorePartitions("t", 1), MorePartitions("x", 2))
        )
        assert [each.error for each in rig.now(broker.create_partitions(grown)).topics] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        gone = rig.now(broker.delete_topics(DeleteTopicsRequest(("new", "x")))).topics
        assert [each.error for each in gone] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert rig.directory.topic_names() == ["t"]

    def test_settings(self, rig):
        def change(**settings):
            wanted = {key.replace("_", "."): value for key, value in settings.items()}
            request = AlterConfigsRequest((ConfigChange("t", wanted),))
            return rig.now(rig.broker.alter_configs(request)).topics[0].error

        def described(name):
            (topic,) = rig.now(rig.broker.describe_configs(DescribeConfigsRequest(("t",)))).topics
            return next(each[1:3] for each in topic.settings if each.name == name)

        assert described("retention.ms") == ("-1", True)
        assert change(retention_ms="5000", cleanup_policy="compact") is ErrorCode.NONE
        assert described("retention.ms") == ("5000", False)
        assert described("preallocate") == ("false", True)
        assert change(retention_ms=None) is ErrorCode.NONE
        assert described("retention.ms") == ("-1", True)
        assert described("cleanup.policy") == ("compact", False)
        assert change(retention_ms="x") is ErrorCode.INVALID_CONFIG
        assert change(no_such="1") is ErrorCode.INVALID_CONFIG
        assert change(no_such=None) is ErrorCode.NONE  # it is not there: as with Kafka
        unknown = rig.now(rig.broker.describe_configs(DescribeConfigsRequest(("x",)))).topics[0]
        assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_records_are_deleted(self, rig):
        rig.produce(b"a", b"b", b"c")

        def delete(offset, partition=T0):
            request = DeleteRecordsRequest((DeleteRecordsPartition(partition, offset),))
            answer = rig.now(rig.broker.delete_records(request)).partitions[0]
            return answer.error or answer.log_start_offset

        assert delete(1) == 1
        assert delete(4) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert delete(-1) == 3
        assert delete(0, NOWHERE) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_thread_waits_for_a_result():
    rig = Rig()
    pending = rig.fetch(FetchPartition(T0, 0), max_wait_ms=60_000)
    assert wait_for(pending, 0) is None
    producing = threading.Timer(0.05, lambda: rig.produce(b"a"))
    producing.start()
    result = wait_for(pending)
    producing.join()
    assert values_of(result.partitions[0].data) == [b"a"]


def test_requests_are_values():
    assert FetchRequest((FetchPartition(T0, 0),)) == FetchRequest((FetchPartition(T0, 0),))


class TestShareGroups:
    """KIP-932."""

    def joined(self, rig, member, **config):
        beat = ShareGroupHeartbeat("g", member, JOINING, ("t",), config=ShareGroupConfig(**config))
        result = rig.now(rig.broker.share_group_heartbeat(beat))
        assert (result.error, result.assignment) == (ErrorCode.NONE, self.shared(rig, T0, T1))
        return result.member_epoch

    def shared(self, rig, *partitions):
        (topic,) = rig.now(rig.broker.metadata(MetadataRequest(("t",)))).topics
        return tuple(TopicIdPartition(each, topic.topic_id) for each in partitions)

    def take(self, rig, member, most=500, wait_ms=0):
        request = ShareFetchRequest("g", member, self.shared(rig, T0, T1), most, wait_ms)
        return rig.broker.share_fetch(request)

    def taken(self, rig, member, most=500):
        result = rig.now(self.take(rig, member, most))
        assert result.error is ErrorCode.NONE
        found = result.partitions
        return [(each.partition.partition, *acquired) for each in found for acquired in each.acquired]

    def say(self, rig, member, kind, first, last=None, to=T0, **fields):
        batch = AcknowledgeBatch(first, first if last is None else last, kind, **fields)
        said = AcknowledgePartition(*self.shared(rig, to), (batch,))
        request = ShareAcknowledgeRequest("g", member, (said,))
        (outcome,) = rig.now(rig.broker.share_acknowledge(request)).partitions
        assert outcome.refused == ((batch,) if outcome.error else ())
        return outcome.error

    def test_a_record_is_one_member_s_at_a_time(self, rig):
        rig.produce(b"a", b"b", b"c")
        rig.produce(b"d", to=T1)
        self.joined(rig, "one")
        self.joined(rig, "two")
        assert self.taken(rig, "one", 2) == [(T0, 0, 1, 1)]
        assert self.taken(rig, "two") == [(T0, 2, 2, 1), (T1, 0, 0, 1)]
        assert self.taken(rig, "one") == []
        assert self.say(rig, "two", Acknowledgement.ACCEPT, 0, 1) is ErrorCode.INVALID_RECORD_STATE
        assert self.say(rig, "one", Acknowledgement.ACCEPT, 0, 1) is ErrorCode.NONE
        assert self.say(rig, "one", Acknowledgement.ACCEPT, 0) is ErrorCode.INVALID_RECORD_STATE

    def test_the_bytes_hold_what_was_acquired(self, rig):
        rig.produce(b"a")
        rig.produce(b"b", b"c")
        self.joined(rig, "one")
        (found,) = rig.now(self.take(rig, "one", 1)).partitions
        assert values_of(found.data) == [b"a"]
        (found,) = rig.now(self.take(rig, "one", 1)).partitions
        assert (values_of(found.data), found.acquired) == ([b"b", b"c"], ((1, 1, 1),))

    def test_each_kind_of_acknowledgement(self, rig):
        rig.produce(*[b"%d" % number for number in range(5)])
        self.joined(rig, "one", record_lock_duration_ms=1000)
        self.taken(rig, "one")
        assert not self.say(rig, "one", Acknowledgement.RELEASE, 0)
        assert not self.say(rig, "one", Acknowledgement.RELEASE, 1, available_at_ms=rig.clock.now_ms() + 500)
        assert not self.say(rig, "one", Acknowledgement.REJECT, 2)
        assert not self.say(rig, "one", Acknowledgement.GAP, 3)
        rig.pass_time(400)
        assert not self.say(rig, "one", Acknowledgement.RENEW, 4)
        assert self.taken(rig, "one") == [(T0, 0, 0, 2)]
        rig.pass_time(999)
        assert self.taken(rig, "one") == [(T0, 1, 1, 2)]
        rig.pass_time(1)
        assert self.taken(rig, "one") == [(T0, 0, 0, 3), (T0, 4, 4, 2)]

    def test_a_fetch_waits_for_records_locks_delays_and_releases(self, rig):
        self.joined(rig, "one", record_lock_duration_ms=1000)
        pending = self.take(rig, "one", wait_ms=100_000)
        wakes = wakes_of(pending)
        assert pending.poll() is None
        rig.produce(b"a")
        assert wakes
        assert rig.now(pending).partitions[0].acquired == ((0, 0, 1),)

        waiting = self.take(rig, "one", wait_ms=100_000)
        rig.pass_time(999)
        assert waiting.poll() is None
        rig.pass_time(1)
        assert rig.now(waiting).partitions[0].acquired == ((0, 0, 2),)

        waiting = self.take(rig, "one", wait_ms=100_000)
        self.say(rig, "one", Acknowledgement.RELEASE, 0, available_at_ms=rig.clock.now_ms() + 50)
        assert waiting.poll() is None
        rig.pass_time(50)
        assert rig.now(waiting).partitions[0].acquired == ((0, 0, 3),)

        waiting = self.take(rig, "one", wait_ms=100_000)
        wakes = wakes_of(waiting)
        self.say(rig, "one", Acknowledgement.RELEASE, 0)
        assert wakes
        assert rig.now(waiting).partitions[0].acquired == ((0, 0, 4),)

        waiting = self.take(rig, "one", wait_ms=300)
        rig.pass_time(300)
        assert rig.now(waiting) == ShareFetchResult(ErrorCode.NONE, lock_duration_ms=1000)
        self.take(rig, "one", wait_ms=300).cancel()

    def test_members_that_are_not_known(self, rig):
        assert rig.now(self.take(rig, "one")).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert self.say(rig, "one", Acknowledgement.ACCEPT, 0) is ErrorCode.UNKNOWN_MEMBER_ID
        for epoch in (LEAVING, 1):
            beat = ShareGroupHeartbeat("g", "one", epoch, ("t",))
            assert rig.now(rig.broker.share_group_heartbeat(beat)).error is ErrorCode.UNKNOWN_MEMBER_ID
        beat = ShareGroupHeartbeat("g", "one", JOINING, ("nowhere",))
        found = rig.now(rig.broker.share_group_heartbeat(beat))
        assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found.message

    def test_groups_are_listed_described_and_deleted(self, rig):
        rig.produce(b"a", b"b")
        epoch = self.joined(rig, "one")
        self.taken(rig, "one", 1)
        assert rig.now(rig.broker.list_share_groups()).groups == ("g",)
        described, unknown = rig.now(rig.broker.describe_share_groups(("g", "h")))
        assert (described.state, [each.member_id for each in described.members]) == ("Stable", ["one"])
        assert described.partitions[0][1:] == (0, 1, 1, 0, 2)
        assert unknown.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert rig.now(rig.broker.delete_share_groups(("g", "h"))) == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "h": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert epoch > 0
        rig.now(rig.broker.share_group_heartbeat(ShareGroupHeartbeat("g", "one", LEAVING)))
        assert rig.now(rig.broker.delete_share_groups(("g",))) == {"g": ErrorCode.NONE}
        assert rig.now(rig.broker.list_share_groups()).groups == ()

    def how_far(self, rig, *partitions):
        """Start offset and lag of each partition, or its error."""
        found = rig.now(rig.broker.share_group_offsets(ShareOffsetsQuery("g", partitions or None)))
        assert found.error is ErrorCode.NONE
        return {each.partition: each.error or (each.start_offset, each.lag) for each in found.partitions}

    def alter(self, rig, **fields):
        """As ``t0=3``."""
        offsets = tuple((TopicPartition(name[:-1], int(name[-1])), offset) for name, offset in fields.items())
        return rig.now(rig.broker.alter_share_group_offsets(AlterShareOffsets("g", offsets)))

    def test_how_far_a_group_is(self, rig):
        rig.produce(b"a", b"b", b"c", b"d")
        unknown = ShareOffsetsQuery("g")
        assert rig.now(rig.broker.share_group_offsets(unknown)).error is ErrorCode.GROUP_ID_NOT_FOUND
        self.joined(rig, "one")
        assert self.how_far(rig) == {T0: (0, 4), T1: (0, 0)}
        self.taken(rig, "one", 3)
        assert self.how_far(rig, T0) == {T0: (0, 4)}
        self.say(rig, "one", Acknowledgement.ACCEPT, 1)
        assert self.how_far(rig, T0) == {T0: (0, 3)}
        self.say(rig, "one", Acknowledgement.ACCEPT, 0)
        assert self.how_far(rig, T0, NOWHERE, TopicPartition("t", 7)) == {
            T0: (2, 2),
            NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            TopicPartition("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    def test_a_group_begins_where_it_is_told(self, rig):
        rig.produce(b"a", b"b", b"c")
        assert self.alter(rig, t0=2).errors == {T0: ErrorCode.NONE}
        assert self.how_far(rig, T0) == {T0: (2, 1)}
        self.joined(rig, "one")
        assert self.taken(rig, "one") == [(T0, 2, 2, 1)]

    def test_an_empty_group_goes_on_where_it_is_told(self, rig):
        rig.produce(b"a", b"b", b"c")
        self.joined(rig, "one")
        self.taken(rig, "one")
        self.say(rig, "one", Acknowledgement.ACCEPT, 0, 2)
        assert self.alter(rig, t0=1).error is ErrorCode.NON_EMPTY_GROUP
        rig.now(rig.broker.share_group_heartbeat(ShareGroupHeartbeat("g", "one", LEAVING)))
        assert self.how_far(rig) == {T0: (3, 0), T1: (0, 0)}
        result = self.alter(rig, t0=1, t1=1, t7=0, nowhere0=0)
        assert (result.error, result.errors) == (
            ErrorCode.NONE,
            {
                T0: ErrorCode.NONE,
                T1: ErrorCode.INVALID_REQUEST,  # there is nothing
                TopicPartition("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
        )
        assert self.how_far(rig) == {T0: (1, 2), T1: (0, 0)}
        self.joined(rig, "two")
        assert self.taken(rig, "two") == [(T0, 1, 2, 1)]
        self.say(rig, "two", Acknowledgement.ACCEPT, 1, 2)
        assert self.how_far(rig, T0) == {T0: (3, 0)}

    def test_what_an_empty_group_has_done_of_a_topic_is_forgotten(self, rig):
        def delete(*topics):
            return rig.now(rig.broker.delete_share_group_offsets(DeleteShareOffsets("g", topics)))

        rig.produce(b"a", b"b")
        assert delete("t").error is ErrorCode.GROUP_ID_NOT_FOUND
        self.joined(rig, "one")
        self.taken(rig, "one")
        self.say(rig, "one", Acknowledgement.ACCEPT, 0)
        assert delete("t").error is ErrorCode.NON_EMPTY_GROUP
        rig.now(rig.broker.share_group_heartbeat(ShareGroupHeartbeat("g", "one", LEAVING)))
        result = delete("t", "nowhere")
        assert (result.error, result.errors) == (
            ErrorCode.NONE,
            {"t": ErrorCode.NONE, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
        )
        self.joined(rig, "two")
        assert self.taken(rig, "two") == [(T0, 0, 1, 1)]
