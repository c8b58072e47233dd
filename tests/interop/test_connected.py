"""Our clients over the protocol, against a stock broker: the seam's own tests, random requests beside a
broker in this process, and whole programs.

Costs 12 s to start the broker, and 20 s for all tests.
"""

from __future__ import annotations

import random
import time

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.quotas.requests import AlterClientQuotasRequest, QuotaAlteration
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    FetchPartition,
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgeBatch,
    AcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupConfig,
    ShareGroupHeartbeat,
)
from logstore.connected import connect
from logstore.errors import InvalidConfigError
from logstore.model import Isolation, OffsetAndMetadata, TopicPartition
from logstore.wire.remote.broker import RemoteBroker
from tests.broker import test_conformance as conformance
from tests.broker import test_conformance_groups as group_conformance
from tests.broker.elsewhere import ElsewhereRig, chosen
from tests.broker.rig import T0, T1, Rig, batch_of, values_of
from tests.interop.kafka import OLD, KafkaBroker, require_kafka

pytestmark = pytest.mark.interop

SECONDS = 20
U0 = TopicPartition("u", 0)
NOWHERE = TopicPartition("nowhere", 0)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    require_kafka()
    settings = {
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        "quota.window.num": 2,  # seconds; by default a client may take ten seconds' worth at once
    }
    with KafkaBroker(tmp_path_factory.mktemp("kafka"), config=settings) as started:
        yield started


@pytest.fixture(scope="module")
def broker(kafka):
    made = RemoteBroker(kafka.bootstrap)
    yield made
    made.close()


@pytest.fixture
def rig(broker):
    return ElsewhereRig(broker, topics=(("t", 2), ("u", 1)))


@pytest.fixture
def store(kafka, rig):
    with connect(kafka.bootstrap) as opened:
        yield opened


# What any broker answers: those tests that need no clock set by hand, and no look behind the broker.

TestProduce = chosen(
    conformance.TestProduce, "test_offsets_follow_one_another", "test_acks_that_kafka_does_not_have"
)
TestFetch = chosen(
    conformance.TestFetch,
    "test_what_is_there_comes_at_once",
    "test_a_topic_that_was_made_again_is_another",
    "test_no_wait_is_asked_for",
    "test_an_error_in_one_partition_ends_the_wait",
    "test_no_partitions_are_asked_for",
)
TestLookups = chosen(
    conformance.TestLookups,
    "test_the_latest_of_committed_readers_is_the_last_stable_offset",
    "test_producer_ids_are_all_different",
)
TestTopics = chosen(conformance.TestTopics, "test_records_are_deleted")
TestListAndDescribe = chosen(
    group_conformance.TestListAndDescribe, "test_groups_with_members_and_groups_with_offsets"
)
TestOffsetDelete = chosen(
    group_conformance.TestOffsetDelete,
    "test_of_a_group_without_members",
    "test_not_of_topics_that_members_subscribe_to",
    "test_before_members_have_an_assignment",
    "test_not_of_members_that_are_no_consumers",
    "test_of_a_group_that_is_not_there",
)


# The same requests as of a broker in this process -----------------------------------------------------------


class Both:
    """Two brokers that are asked the same, and must answer the same."""

    def __init__(self, rig, seed):
        self.rigs = (rig, Rig())
        self.rigs[1].directory.create_topic("u", 1, None)
        self.chance = random.Random(seed)
        self.stamp_ms = 1_700_000_000_000
        self.sequences = {}

    def ask(self, name, request, view):
        there, here = (view(wait_for(getattr(rig.broker, name)(request), SECONDS)) for rig in self.rigs)
        assert there == here, (name, request)

    def partition(self):
        return self.chance.choice([T0, T1, T1, NOWHERE])

    def produce(self):
        """Also batches that leave a gap in the sequence."""
        partition = self.partition()
        self.stamp_ms += self.chance.randint(0, 3)
        count = self.chance.randint(1, 4)
        expected = self.sequences.get(partition, 0)
        sequence = expected + (self.chance.choice([0, 0, 0, 0, 2]) if expected else 0)
        values = [self.chance.randbytes(self.chance.randint(0, 40)) for _ in range(count)]
        stamp = {"producer_id": 77, "producer_epoch": 0, "base_sequence": sequence}
        data = batch_of(values, self.stamp_ms, **stamp)
        if sequence == expected:
            self.sequences[partition] = sequence + count
        request = ProduceRequest(1, 1000, (ProducePartition(partition, data),))
        self.ask("produce", request, lambda result: [each[:3] for each in result.partitions])

    def look_up(self):
        whens = [EARLIEST, LATEST, MAX_TIMESTAMP, self.stamp_ms - self.chance.randint(0, 20)]
        wanted = tuple(ListOffsetsPartition(self.partition(), self.chance.choice(whens)) for _ in range(3))
        isolation = self.chance.choice([Isolation.HIGH_WATERMARK, Isolation.COMMITTED])
        request = ListOffsetsRequest(wanted, isolation)
        self.ask("list_offsets", request, lambda result: [each[:4] for each in result.partitions])

    def fetch(self):
        wanted = tuple(
            FetchPartition(partition, self.chance.randint(0, 60), self.chance.choice([1, 200, 2**20]))
            for partition in {self.partition(), self.partition()}
        )
        there, here = (rig.now(rig.fetch(*wanted, max_wait_ms=0)).partitions for rig in self.rigs)
        for each, other in zip(there, here, strict=True):
            assert (each.partition, each.error) == (other.partition, other.error)
            if each.error is ErrorCode.NONE:
                assert each.high_watermark == other.high_watermark
                # How much comes is each broker's affair; what comes is the same.
                some, more = sorted([values_of(each.data), values_of(other.data)], key=len)
                assert more[: len(some)] == some
        # Of which partition first: a broker goes round those of a session.
        assert any(each.data for each in there) == any(each.data for each in here)

    def delete(self):
        """Not to the end: Kafka's largest timestamp may be of a record that was deleted."""
        wanted = DeleteRecordsPartition(self.partition(), self.chance.choice([0, 1, 5, 10_000]))
        request = DeleteRecordsRequest((wanted,))
        self.ask("delete_records", request, lambda result: [each[:3] for each in result.partitions])

    def commit(self):
        offsets = {
            self.chance.choice([T0, T1]): OffsetAndMetadata(
                self.chance.randint(0, 3), self.chance.choice(["", "é"])
            )
            for _ in range(2)
        }
        request = OffsetCommitRequest(self.chance.choice(["g", "h"]), offsets)
        self.ask("offset_commit", request, lambda result: dict(result.errors))

    def committed(self):
        partitions = self.chance.choice([None, (T0,), (T0, T1, NOWHERE)])
        request = OffsetFetchRequest(self.chance.choice(["g", "h", "never"]), partitions)
        self.ask("offset_fetch", request, lambda result: (result.error, dict(result.offsets)))

    def forget(self):
        request = OffsetDeleteRequest("g", (self.chance.choice([T0, T1]),))
        self.ask("offset_delete", request, lambda result: (result.error, dict(result.errors)))


@pytest.mark.parametrize("seed", range(3))
def test_the_same_answers_as_of_a_broker_in_this_process(rig, seed):
    """150 random requests, one after the other. 1.5 s each."""
    both = Both(rig, seed)
    for group in ("g", "h"):  # each keeps an offset: a group that has none left goes here, and stays there
        request = OffsetCommitRequest(group, {U0: OffsetAndMetadata(0)})
        both.ask("offset_commit", request, lambda result: dict(result.errors))
    for _ in range(10):
        both.produce()
    doings = [both.produce] * 4 + [
        both.look_up,
        both.fetch,
        both.fetch,
        both.commit,
        both.committed,
        both.forget,
        both.delete,
    ]
    for _ in range(150):
        both.chance.choice(doings)()


# Programs ---------------------------------------------------------------------------------------------------


def drained(consumer, count):
    found = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, len(found)
        found += consumer.poll(0.2)
    return found


def test_topics(store):
    assert store.topics() == {"t": 2, "u": 1}
    assert store.require_topic("t") == 2
    with pytest.raises(logstore.errors.TopicExistsError):
        store.create_topic("t")
    with pytest.raises(logstore.errors.InvalidTopicError):
        store.create_topic("a b")
    assert store.require_topic("new", config=logstore.TopicConfig(retention_ms=1_000)) == 1
    assert store.require_topic("new", config=logstore.TopicConfig(retention_ms=1_000)) == 1
    with pytest.raises(logstore.UsageError, match=r"retention.ms is '1000' and not '2000'"):
        store.require_topic("new", config=logstore.TopicConfig(retention_ms=2_000))
    with pytest.raises(logstore.UsageError, match="has 1 partitions, not 3"):
        store.require_topic("new", partitions=3)
    store.add_partitions("new", 3)
    assert store.topics()["new"] == 3
    store.delete_topic("new")
    assert "new" not in store.topics()
    with pytest.raises(logstore.errors.UnknownTopicError):
        store.delete_topic("new")


def test_records_come_back_as_they_were_sent(store):
    """Keys to the partitions that Kafka's clients choose; all codecs, headers, tombstones."""
    wanted = []
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        with store.producer(compression=codec) as producer:
            for number in range(40):
                key, value = b"%d" % (number % 7), None if number % 10 == 9 else b"v" * number
                headers = [("codec", codec.encode()), ("none", None)]
                sent = producer.send("t", value, key=key, headers=headers).result(SECONDS)
                wanted.append((sent.partition, sent.offset, key, value, tuple(headers)))
    with store.consumer("t") as consumer:
        found = drained(consumer, len(wanted))
    got = [(each.partition, each.offset, each.key, each.value, tuple(each.headers)) for each in found]
    assert sorted(got, key=str) == sorted(wanted, key=str)


def test_a_consumer_above_its_quota_waits(store):
    """The broker then answers without any partition. 4 s."""
    quota = QuotaAlteration({"client-id": "slow"}, (("consumer_byte_rate", 100_000.0),))
    answer = wait_for(store.broker.alter_client_quotas(AlterClientQuotasRequest((quota,))), SECONDS)
    assert answer.entries[0].error is ErrorCode.NONE
    with store.producer(batch_size=16_000) as producer:  # a batch above the quota would never come
        for _ in range(250):
            producer.send("u", bytes(1_000))
    began = time.monotonic()
    settings = {"client_id": "slow", "max_partition_fetch_bytes": 60_000}
    with store.consumer(partitions=[("u", 0)], **settings) as consumer:
        assert len(drained(consumer, 250)) == 250
    assert time.monotonic() - began > 1


def test_two_members_share_and_hand_over(store, kafka):
    """One of them is in another connection, and leaves."""
    with store.producer() as producer:
        for number in range(100):
            producer.send("t", b"%d" % number, partition=number % 2)
    first = store.consumer("t", group="g", heartbeat_interval_ms=50)
    assert len(drained(first, 100)) == 100
    first.commit()
    with connect(kafka.bootstrap) as other:
        second = other.consumer("t", group="g", heartbeat_interval_ms=50)
        deadline = time.monotonic() + SECONDS
        while not (len(first.assignment) == len(second.assignment) == 1):
            assert time.monotonic() < deadline
            assert first.poll(0.05) == []
            assert second.poll(0.05) == []
        status = store.groups()["g"]
        assert sorted(each.partitions[0] for each in status.members) == [T0, T1]
        assert sum(status.lag.values()) == 0
    while len(first.assignment) < 2:
        assert time.monotonic() < deadline
        first.poll(0.05)
    first.close()
    assert store.groups()["g"].state == "Empty"
    assert store.offsets("g")[T0].offset == 50


def test_groups_are_looked_after(store):
    with store.producer() as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=0)
    offsets = store.offsets("g")
    offsets.commit({("t", 0): 4, ("t", 1): OffsetAndMetadata(0, "note")})
    assert (len(offsets), list(offsets), offsets[T0].offset) == (2, [T0, T1], 4)
    groups = store.groups()
    assert ("g" in groups, "h" in groups, list(groups)) == (True, False, ["g"])
    assert dict(groups["g"].lag) == {T0: 6, T1: 0}
    assert groups.reset("g", "latest", partitions=[T0]) == {T0: (4, 10)}
    assert offsets.delete([T1]) == (T1,)
    with pytest.raises(logstore.errors.OffsetOutOfRangeError, match="offsets 0 to 10"):
        groups.reset("g", {T0: 11})
    groups.delete("g")
    with pytest.raises(logstore.errors.UnknownGroupError):
        groups.delete("g")


def test_transactions_are_all_or_nothing(store):
    producer = store.producer(transactional_id="shop")
    for number in range(4):
        with producer.transaction() as transaction:
            producer.send("t", b"%d" % number, partition=number % 2)
            transaction.commit_offsets("g", {("u", 0): number})
            if number % 2:
                transaction.abort()
    newer = store.producer(transactional_id="shop")
    with pytest.raises(logstore.FencedError), producer.transaction():
        producer.send("t", b"late", partition=0)
    with newer.transaction():
        newer.send("t", b"4", partition=0)
    with store.consumer("t", isolation=Isolation.COMMITTED) as consumer:
        assert sorted(each.value for each in drained(consumer, 3)) == [b"0", b"2", b"4"]
        assert consumer.poll(0.2) == []
    assert store.offsets("g")["u", 0].offset == 2
    newer.close()


def test_a_transform_that_is_cut_off_gives_each_result_once(store):
    """The function fails in the middle: the second run goes on from the last transaction."""
    with store.producer() as producer:
        for number in range(60):
            producer.send("t", b"%d" % number, partition=number % 2)
    seen = []

    def double(record):
        seen.append(record.value)
        if len(seen) == 25:
            raise RuntimeError("cut off")
        return b"%d" % (2 * int(record.value))

    settings = {"group": "doubling", "max_poll_records": 10}
    with pytest.raises(RuntimeError, match="cut off"):
        store.transform("t", "u", double, retries=0, **settings).run(until_end=True)
    store.transform("t", "u", double, **settings).run(until_end=True)
    with store.consumer("u", isolation=Isolation.COMMITTED) as consumer:
        found = [int(each.value) for each in drained(consumer, 60)]
        assert consumer.poll(0.2) == []
    assert sorted(found) == [2 * number for number in range(60)]


def test_failed_jobs_go_to_the_dead_letter_topic(store, kafka):
    """KIP-1191: Kafka's own broker writes it, since 4.4. 3 s."""
    config = logstore.TopicConfig(errors_deadletterqueue_group_enable=True)
    store.create_topic("dlq.letters", config=config)
    store.require_topic("posts")
    with store.producer() as producer:
        for number in range(4):
            producer.send("posts", b"%d" % number, key=b"k")
    with pytest.raises(InvalidConfigError, match="'posts' does not take dead letters"):
        store.queue("u", group="posters", dead_letter_topic="posts")
    with pytest.raises(InvalidConfigError, match=r"there is no topic 'dlq\.none'"):
        store.queue("posts", group="posters", dead_letter_topic="dlq.none")
    with store.queue("posts", group="posters", dead_letter_topic="dlq.letters") as queue:
        for job in queue.poll(timeout=20):
            job.reject() if int(job.value) % 2 else job.accept()
    with store.consumer("dlq.letters") as consumer:
        letters = []
        while len(letters) < 2:
            letters += consumer.poll(timeout=20)
    assert sorted((each.key, each.value, dict(each.headers)["__dlq.errors.offset"]) for each in letters) == [
        (b"k", b"1", b"1"),
        (b"k", b"3", b"3"),
    ]


def test_workers_of_a_queue_share_jobs(store, rig):
    """Each job is done once; one that is released comes again. 4 s: Kafka takes its time to assign."""
    rig.create_topic("jobs", 2)
    with store.producer() as producer:
        for number in range(40):
            producer.send("jobs", b"%d" % number)
    workers = [store.queue("jobs", group="crew") for _ in range(2)]
    done, tries = [], {}
    deadline = time.monotonic() + SECONDS
    while len(done) < 40:
        assert time.monotonic() < deadline, len(done)
        for worker in workers:
            for job in worker.poll(0.1, max_jobs=5):
                tries[job.value] = job.delivery_count
                if job.value.endswith(b"7") and job.delivery_count == 1:
                    job.release()
                else:
                    job.accept()
                    done.append(int(job.value))
    for worker in workers:
        worker.close()
    assert sorted(done) == list(range(40))
    assert {value for value, count in tries.items() if count == 2} == {b"7", b"17", b"27", b"37"}
    assert [each.group for each in store.queues()] == ["crew"]
    store.delete_queue("crew")


@pytest.mark.parametrize("is_carried", [False, True], ids=["apart", "with_a_fetch"])
def test_of_several_acknowledgements_those_count_that_can(broker, rig, is_carried):
    """Kafka refuses all of a partition for one record that the member does not have. 2 s each."""
    rig.create_topic("jobs", 1)
    jobs = TopicPartition("jobs", 0)
    rig.produce(b"a", b"b", b"c", b"d", to=jobs)
    joins = ShareGroupHeartbeat("few", "one", JOINING, ("jobs",), config=ShareGroupConfig())
    assignment = rig.now(broker.share_group_heartbeat(joins)).assignment
    assert [each.partition for each in assignment] == [jobs]
    fetch = ShareFetchRequest("few", "one", assignment, 2, 5_000)
    (taken,) = rig.now(broker.share_fetch(fetch)).partitions
    assert taken.acquired == ((0, 1, 1),)
    said = [AcknowledgeBatch(offset, offset, Acknowledgement.ACCEPT) for offset in range(4)]
    about = (AcknowledgePartition(*assignment, tuple(said[:3])),)
    if is_carried:
        result = rig.now(broker.share_fetch(fetch._replace(max_wait_ms=0, acknowledgements=about)))
        (outcome,) = result.acknowledged
        assert [each.acquired for each in result.partitions] in ([], [((2, 3, 1),)])  # what is there at once
    else:
        request = ShareAcknowledgeRequest("few", "one", about)
        (outcome,) = rig.now(broker.share_acknowledge(request)).partitions
        result = None
    assert (outcome.error, outcome.refused) == (ErrorCode.INVALID_RECORD_STATE, (said[2],))
    if not (result and result.partitions):
        (taken,) = rig.now(broker.share_fetch(fetch)).partitions
        assert taken.acquired == ((2, 3, 1),)
    about = (AcknowledgePartition(*assignment, tuple(said[2:])),)
    waits = fetch._replace(acknowledgements=about, max_records=0 if is_carried else 5, max_wait_ms=300)
    result = rig.now(broker.share_fetch(waits))
    assert ([each.error for each in result.acknowledged], result.partitions) == ([ErrorCode.NONE], ())
    rig.now(broker.share_group_heartbeat(joins._replace(member_epoch=LEAVING)))


def test_a_broker_that_starts_again_is_found(kafka, store):
    """What was sent meanwhile is delivered, once. 8 s."""
    with store.producer() as producer:
        producer.send("t", b"before", partition=0).result(SECONDS)
        kafka.stop()
        late = producer.send("t", b"after", partition=0)
        kafka.start(same_ports=True)
        assert late.result(60).offset == 1
    with store.consumer(partitions=[T0]) as consumer:
        assert [each.value for each in drained(consumer, 2)] == [b"before", b"after"]


def test_a_broker_of_the_line_before(tmp_path):
    """Kafka 3.9: older versions of the requests, and transactions whose epoch stays. 8 s."""
    require_kafka(OLD)
    with KafkaBroker(tmp_path, version=OLD) as kafka, connect(kafka.bootstrap) as store:
        store.create_topic("t", partitions=2)
        with store.producer(transactional_id="shop") as producer:
            for number in range(4):
                with producer.transaction() as transaction:
                    producer.send("t", b"%d" % number, partition=number % 2)
                    if number == 3:
                        transaction.abort()
        with store.consumer("t", group="g", isolation=Isolation.COMMITTED) as consumer:
            assert sorted(each.value for each in drained(consumer, 3)) == [b"0", b"1", b"2"]
            consumer.commit()
        assert store.groups()["g"].state == "Empty"
        assert store.topics() == {"t": 2}
