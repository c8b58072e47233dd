"""Topics of a store are pushed into a cluster, which a listener in this process plays. 4 s."""

from __future__ import annotations

import contextlib
import random
import re
import threading

import pytest

import logstore
from logstore import bridge
from logstore.bridge.cluster import ClusterQuestions
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Promise
from logstore.broker.requests import ProducedPartition, ProduceResult
from logstore.broker.transactions.requests import EndTransactionResult
from logstore.clock import BootClock
from logstore.config import StoreConfig, TopicConfig
from logstore.connected import Sasl
from logstore.errors import (
    DiskFullError,
    InvalidRecordError,
    OutOfOrderError,
    ProducerFencedError,
    RecordTooLargeError,
    RetriableError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, OffsetAndMetadata, Role
from logstore.security import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.remote.broker import RemoteBroker
from tests.bridge.histories import History
from tests.bridge.test_pull import CALM, Ends, growing, wait_until
from tests.rotation import seed_of_turn


class PushEnds(Ends):
    def push(self, *topics, name="edge", **settings):
        return bridge.push(self.store, self.remote, *topics, name=name, **settings).run(until_end=True)


@pytest.fixture
def ends():
    made = PushEnds()
    yield made
    made.close()


@contextlib.contextmanager
def ended_by(error, push, record_count):
    """A push in a thread. What happens in the block, when so many records are there, is to end it; the list
    has what it raised then."""
    raised = []

    def run():
        try:
            push.run()
        except error as caught:
            raised.append(str(caught))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: push.progress.record_count == record_count)
    yield raised
    thread.join(20)
    push.stop()
    thread.join()


def committed(topic):
    """Records that count, without their offsets."""
    return [
        [record._replace(offset=0, topic=None, partition=None) for record in log.read(isolation=COMMITTED)]
        for log in topic
    ]


COMMITTED = Isolation.COMMITTED


def test_histories(ends):
    """Each committed record is there once, in its partition, with all that it has; those of aborted
    transactions are not. Now and then another bridge goes on."""
    for number in range(6):
        chance = random.Random(f"{seed_of_turn()} push {number}")
        name = f"t{number}"
        config = TopicConfig(segment_bytes=4096)
        source = ends.store.create_topic(name, partitions=chance.randrange(1, 4), config=config)
        history = History(source, chance, compacts=False)
        history.shorten = history.plain  # what is deleted before it was pushed is missing there
        push = bridge.push(ends.store, ends.remote, name, name="edge")
        for _ in range(3):
            history.go_on(chance.randrange(30))
            push.run(until_end=True)
            if chance.random() < 0.5:
                push = bridge.push(ends.store, ends.remote, name, name="edge", compression="lz4")
        history.end_all()
        progress = push.run(until_end=True)
        assert progress.lag == 0
        assert committed(ends.cluster[name]) == committed(source)
        offsets = ends.remote.offsets("logstore-bridge-edge")
        ends_here = {log.partition: log.log_end_offset for log in source if log.log_end_offset}
        assert {each: offsets[each].offset for each in ends_here} == ends_here


def test_the_errors_in_between_change_nothing(ends):
    """The listener hangs up again and again, before and after it has done what it was asked for."""
    chance = random.Random(seed_of_turn())
    source = ends.store.create_topic("t", partitions=2)
    address = ends.listener.address
    remote = logstore.connect(address, request_timeout_ms=2_000, retry_backoff_ms=5, reconnect_backoff_ms=5)
    push = bridge.push(ends.store, remote, "t", name="edge", linger_ms=0)
    thread = threading.Thread(target=push.run)
    thread.start()
    try:
        for number in range(300):
            source.append(b"%d" % number, key=b"k%d" % chance.randrange(9), flush=True)
            if number % 50 == 20:
                ends.listener.close()
                ends.listener = ends.cluster.listen(address)
        wait_until(lambda: push.progress.partitions and push.progress.lag == 0)
    finally:
        push.stop()
        thread.join()
        remote.close()
    ends.push("t")
    assert committed(ends.cluster["t"]) == committed(source)


def test_the_first_batch_is_refused_while_others_are_under_way(ends, monkeypatch, caplog):
    """As by a leader that is new: the broker then misses its sequence in the others, and all are sent again
    in the same transaction."""
    source = ends.store.create_topic("t")
    source[0].extend([b"the cluster knows the producer"])
    ends.push("t")
    source[0].extend([b"%d" % number * 100 for number in range(200)])
    plain, refused = RemoteBroker.produce, []

    def produce(broker, request):
        if refused:
            return plain(broker, request)
        late = Promise()
        parts = [
            ProducedPartition(each.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER) for each in request.partitions
        ]
        refused.append(threading.Timer(0.1, late.complete, [ProduceResult(tuple(parts))]))
        refused[0].start()
        return late

    monkeypatch.setattr(RemoteBroker, "produce", produce)
    progress = ends.push("t", batch_size=2_000)
    refused[0].join()
    assert progress.transaction_count == 1
    assert "tries again" not in caplog.text
    assert committed(ends.cluster["t"]) == committed(source)


def test_it_runs_until_it_is_stopped(ends, monkeypatch):
    monkeypatch.setattr("logstore.bridge.push_topics.REFRESH_MS", 50)
    source = ends.store.create_topic("t")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    thread = threading.Thread(target=push.run)
    thread.start()
    try:
        source[0].append(b"1")
        wait_until(lambda: push.progress.record_count == 1)
        ends.cluster["t"].add_partitions(2)
        source.add_partitions(2)
        source[1].append(b"2")
        wait_until(lambda: push.progress.record_count == 2)
    finally:
        push.stop()
        thread.join()
    assert committed(ends.cluster["t"]) == committed(source)


def test_a_stop_that_comes_right_before_it_waits_for_records(ends, monkeypatch):
    """It waited for a second all the same."""
    monkeypatch.setattr("logstore.bridge.push_topics._WAIT_SECONDS", 600)
    ends.store.create_topic("t")[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    plain = push._changed.clear

    def clear():
        if push.progress.record_count and not push._stopping.is_set():
            push.stop()
        plain()

    monkeypatch.setattr(push._changed, "clear", clear)
    running = threading.Thread(target=push.run, daemon=True)
    running.start()
    running.join(20)
    assert not running.is_alive()


@pytest.mark.parametrize("is_late", [False, True])
def test_partitions_that_are_added_while_the_cluster_is_asked(ends, monkeypatch, is_late):
    """There first, then here, as the docs say; and a broker that learns of them a moment later."""
    source = ends.store.create_topic("t")
    source[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    push.run(until_end=True)
    plain, answers = ClusterQuestions.topics, []

    def topics(self, names):
        answers.append(plain(self, names))
        if len(answers) == 2:
            ends.cluster["t"].add_partitions(2)
            source.add_partitions(2)
            source[1].append(b"2")
        return answers[0] if is_late and len(answers) == 4 else answers[-1]

    monkeypatch.setattr(ClusterQuestions, "topics", topics)
    monkeypatch.setattr("logstore.bridge.cluster.LATE_SECONDS", 0.05)
    push.run(until_end=True)
    push.run(until_end=True)
    assert committed(ends.cluster["t"]) == committed(source)


@pytest.mark.parametrize("creates", [True, False])
def test_a_broker_that_does_not_know_the_topic_yet(ends, monkeypatch, creates):
    ends.store.create_topic("t")[0].append(b"1")
    ends.cluster.create_topic("t")
    push = bridge.push(ends.store, ends.remote, "t", name="edge", create_topics=creates)
    if creates:
        push.run(until_end=True)
    plain, asked = ClusterQuestions.topics, []

    def topics(self, names):
        found = plain(self, names)
        asked.append(found)
        return found._replace(topics={}) if len(asked) == 2 else found

    monkeypatch.setattr(ClusterQuestions, "topics", topics)
    monkeypatch.setattr("logstore.bridge.cluster.LATE_SECONDS", 0.01)
    push.run(until_end=True)
    assert len(asked) == 3
    assert committed(ends.cluster["t"]) == committed(ends.store["t"])


def test_until_the_end_of_a_topic_that_grows(ends):
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    with growing(source[0]) as is_growing:
        ends.push("t")
        assert is_growing()
    assert len(committed(ends.cluster["t"])[0]) >= 2


def test_open_transactions_wait(ends):
    source = ends.store.create_topic("t")
    with ends.store.producer(transactional_id="p") as producer, producer.transaction():
        producer.send("t", b"1")
        producer.flush()
        ends.push("t")
        assert committed(ends.cluster["t"]) == [[]]
    ends.push("t")
    assert committed(ends.cluster["t"]) == committed(source) != [[]]


def test_what_was_pushed_is_deleted_if_that_is_asked_for(ends):
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.push("t")
    assert source[0].log_start_offset == 0
    source[0].extend([b"3"])
    ends.push("t", delete_pushed=True)
    assert source[0].log_start_offset == 3
    assert len(committed(ends.cluster["t"])[0]) == 3
    ends.store.create_topic("c", config=TopicConfig(cleanup_policy="compact"))
    with pytest.raises(UsageError, match="'c' is compacted only"):
        ends.push("c", delete_pushed=True)


def test_what_was_deleted_before_it_was_pushed(ends, caplog):
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.push("t")
    source[0].extend([b"3", b"4"])
    source[0].delete_before(3)
    assert ends.push("t").skipped_count == 1
    assert "t-0: the 1 offsets from 2 on were deleted here" in caplog.text
    assert [record.value for record in ends.cluster["t"][0].read(isolation=COMMITTED)] == [b"1", b"2", b"4"]


def test_what_is_skipped_is_told_once_though_nothing_comes_behind_it(ends, caplog):
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    source[0].delete_before(1)
    ends.push("t")
    source[0].append(b"3")
    source[0].delete_before(3)
    assert ends.push("t").skipped_count == 1
    assert "t-0: the 1 offsets from 2 on were deleted here" in caplog.text
    caplog.clear()
    source[0].append(b"4")
    assert ends.push("t").skipped_count == 0
    assert not caplog.text


def test_what_is_skipped_is_counted_once_though_its_transaction_failed(ends, monkeypatch, caplog):
    source = ends.store.create_topic("t")[0]
    source.append(b"0")
    ends.push("t")
    source.extend([b"%d" % number for number in range(1, 6)])
    source.delete_before(4)
    commit = RemoteBroker.add_offsets_to_transaction
    asked = []

    def refuse_first(self, *given):
        asked.append(given)
        if len(asked) == 1:
            raise RetriableError("not now")
        return commit(self, *given)

    monkeypatch.setattr(RemoteBroker, "add_offsets_to_transaction", refuse_first)
    progress = ends.push("t")
    assert len(asked) > 1
    assert (progress.skipped_count, progress.record_count) == (3, 2)
    assert caplog.text.count("the 3 offsets from 1 on were deleted here before they were pushed") == 1


def test_what_was_pushed_before_a_kill_is_deleted_by_the_next_run(ends):
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.push("t")  # as if the kill came in front of the deletion
    ends.push("t", delete_pushed=True)
    assert source[0].log_start_offset == 2


@pytest.mark.parametrize("how", ["aborted", "deleted"])
def test_a_store_that_was_killed_gets_nothing_twice(ends, how):
    """It sets committed offsets back that are above the ends of its own logs, and the offsets here are higher
    than there: records were deleted here before any was pushed, or transactions aborted."""
    source = ends.store.create_topic("t")
    if how == "deleted":
        source[0].extend([b"old"] * 20)
        source[0].delete_before(20)
        source[0].extend([b"new"] * 5)
    else:
        with ends.store.producer(transactional_id="x") as producer:
            for _ in range(5):
                with producer.transaction() as transaction:
                    for _ in range(10):
                        producer.send("t", b"not this")
                    transaction.abort()
                with producer.transaction():
                    producer.send("t", b"new")
    assert ends.push("t").record_count == 5
    for each in (ends.remote, ends.listener):
        each.close()
    ends.cluster.directory.abandon()
    ends.cluster = logstore.open("/cluster", config=CALM, files=ends.files)
    (offset,) = ends.cluster.offsets("logstore-bridge-edge").values()
    assert offset.offset == ends.cluster["t"][0].log_end_offset < source[0].log_end_offset
    ends.listener = ends.cluster.listen("127.0.0.1:0")
    ends.remote = logstore.connect(ends.listener.address)
    assert ends.push("t").record_count == 0
    source[0].append(b"one more")
    assert ends.push("t").record_count == 1
    assert [record.value for record in ends.cluster["t"].read(isolation=COMMITTED)] == [
        *[b"new"] * 5,
        b"one more",
    ]


def test_a_stop_before_the_run_ends_that(ends):
    ends.store.create_topic("t")[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    push.stop()
    assert push.run().record_count == 0
    assert push.run(until_end=True).record_count == 1


def test_a_topic_is_made_as_it_is_here(ends):
    ends.store.create_topic("t", partitions=3, config=TopicConfig(cleanup_policy="compact", retention_ms=5))
    with pytest.raises(UnknownTopicError, match="does not have topic 't'"):
        ends.push("t", create_topics=False)
    ends.push("t")
    assert len(ends.cluster["t"]) == 3
    assert ends.cluster["t"].config == TopicConfig(cleanup_policy="compact")


def test_many_topics_are_made_with_few_requests(ends, monkeypatch):
    """0.6 s."""
    topics = ends.store.create_topics(dict.fromkeys([f"t{number}" for number in range(120)], 2))
    topics["t7"][1].append(b"1")
    plain, asked = RemoteBroker.create_topics, []
    monkeypatch.setattr(
        RemoteBroker,
        "create_topics",
        lambda self, request: asked.append(len(request.topics)) or plain(self, request),
    )
    push = bridge.push(ends.store, ends.remote, *topics, name="edge")
    push.run(until_end=True)
    assert asked == [100, 20]
    assert {name: len(topic) for name, topic in ends.cluster.items() if name in topics} == dict.fromkeys(
        topics, 2
    )
    assert committed(ends.cluster["t7"]) == committed(topics["t7"])
    topics["t9"][0].append(b"2")
    push.run(until_end=True)
    assert asked == [100, 20]


# What is wrong ----------------------------------------------------------------------------------------------


def test_fewer_partitions_there(ends, monkeypatch):
    monkeypatch.setattr("logstore.bridge.cluster.LATE_SECONDS", 0.01)
    ends.store.create_topic("t", partitions=3)
    ends.cluster.create_topic("t", partitions=2)
    with pytest.raises(UnknownPartitionError, match="2 partitions at the cluster and 3 here"):
        ends.push("t")


def test_a_topic_into_itself(tmp_path):
    """Each round doubled it."""
    with logstore.open(tmp_path / "s") as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("t").append(b"1")
        with (
            logstore.connect(listener.address) as remote,
            pytest.raises(UsageError, match="its records would come again"),
        ):
            bridge.push(store, remote, "t", name="self").run(until_end=True)
        assert store["t"][0].log_end_offset == 1


def test_a_topic_that_vanishes(ends):
    ends.store.create_topic("t")[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    push.run(until_end=True)
    ends.cluster.delete_topic("t")
    with pytest.raises(UnknownTopicError, match="no longer has topic 't'"):
        push.run(until_end=True)


def test_a_topic_that_vanishes_while_it_is_pushed(ends):
    """The error says which side does not have it."""
    source = ends.store.create_topic("t")[0]
    source.append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    with ended_by(UnknownTopicError, push, 1) as raised:
        ends.cluster.delete_topic("t")
        source.append(b"2")
    assert len(raised) == 1
    assert raised[0].startswith(f"the cluster {ends.cluster.cluster_id} no longer has a topic that is pushed")


def test_a_topic_that_is_made_again_at_the_cluster(ends, monkeypatch):
    """What was pushed is gone there: the run says so, and the next one pushes all of it."""
    monkeypatch.setattr("logstore.bridge.push_topics.REFRESH_MS", 0)
    source = ends.store.create_topic("t")[0]
    source.extend([b"1", b"2"])
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    push.run(until_end=True)
    push.run(until_end=True)
    ends.cluster.delete_topic("t")
    ends.cluster.create_topic("t")
    source.append(b"3")
    with pytest.raises(UnknownTopicError, match="deleted topic 't', and made it again"):
        push.run(until_end=True)
    assert push.run(until_end=True).record_count == 2 + 3
    assert committed(ends.cluster["t"]) == committed(ends.store["t"])


def test_a_topic_that_is_made_again_and_pushed_into_before_that_is_seen(ends):
    """Offsets then count records that the new topic has not got: the next run must not go on there."""
    source = ends.store.create_topic("t")[0]
    source.extend([b"1", b"2"])
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    thread = threading.Thread(target=push.run)
    thread.start()
    try:
        wait_until(lambda: push.progress.record_count == 2)
        ends.cluster.delete_topic("t")
        ends.cluster.create_topic("t")
        source.append(b"3")
        wait_until(lambda: push.progress.record_count == 3)
    finally:
        push.stop()
        thread.join()
    with pytest.raises(OutOfOrderError, match=r"offset 3 into the topic .* deleted there and made again"):
        ends.push("t")
    assert ends.push("t", name="other").record_count == 3


def test_a_topic_that_is_made_again_while_it_is_asked_how_far_it_is(ends, monkeypatch):
    monkeypatch.setattr("logstore.bridge.push_topics.LATE_SECONDS", 0)
    source = ends.store.create_topic("t")[0]
    source.extend([b"1", b"2"])
    ends.push("t")
    source.append(b"3")
    ask = ClusterQuestions.committed

    def committed_before(self, group, partitions):
        found = ask(self, group, partitions)
        if not made_again:
            ends.cluster.delete_topic("t")
            made_again.append(ends.cluster.create_topic("t"))
        return found

    made_again = []
    monkeypatch.setattr(ClusterQuestions, "committed", committed_before)
    assert ends.push("t").record_count == 3
    assert committed(ends.cluster["t"]) == committed(ends.store["t"])


def test_another_store_under_the_same_name(ends, tmp_path):
    ends.store.create_topic("t")[0].append(b"1")
    ends.push("t")
    with logstore.open(tmp_path / "other") as other:
        other.create_topic("t")[0].append(b"2")
        with pytest.raises(OutOfOrderError, match="is of the topic with id"):
            bridge.push(other, ends.remote, "t", name="edge").run(until_end=True)
        bridge.push(other, ends.remote, "t", name="edge-2").run(until_end=True)
    assert len(committed(ends.cluster["t"])[0]) == 2


def test_a_log_that_has_lost_its_end(ends):
    source = ends.store.create_topic("t")
    source[0].extend([b"1"])
    source[0].extend([b"2"])
    ends.push("t")
    source[0].truncate_to(1)
    with pytest.raises(OutOfOrderError, match="pushed up to offset 2, and ends here at 1"):
        ends.push("t")


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_log_that_has_lost_its_end_and_went_on(ends, is_kept):
    """As after a backup was restored: what took the place of pushed records is not there."""
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2", b"3"])
    ends.push("t")
    source[0].truncate_to(1)
    source[0].extend([b"other 2", b"other 3", b"4"])
    if is_kept:
        with pytest.raises(OutOfOrderError, match="pushed up to offset 3, and has other records here below"):
            ends.push("t")
    else:  # then nobody can tell
        source[0].delete_before(3)
        assert ends.push("t").record_count == 1


def test_a_backup_from_before_a_transaction_that_was_aborted(ends):
    """The last record that was pushed is the same; those of the transaction behind it were not pushed."""
    source = ends.store.create_topic("t")[0]
    source.extend([b"1", b"2"], flush=True)
    ends.push("t")
    end = source.log_end_offset
    with ends.store.producer(transactional_id="p") as producer:
        for value in (b"a", b"b"):
            with contextlib.suppress(RuntimeError), producer.transaction():
                producer.send("t", value, partition=0).result()
                raise RuntimeError
    assert ends.push("t").transaction_count == 0
    assert ends.push("t").record_count == 0
    source.truncate_to(end)
    source.extend([b"3", b"4", b"5", b"6", b"7"])
    with pytest.raises(OutOfOrderError, match="has other records here"):
        ends.push("t")


def test_a_log_that_is_cut_and_goes_on_while_it_is_pushed(ends):
    """As a copy does that is pulled, when its cluster loses records."""
    source = ends.store.create_topic("t")[0]
    source.extend([b"1", b"2"], flush=True)
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    with ended_by(OutOfOrderError, push, 2) as raised:
        source.truncate_to(1)
        source.extend([b"x", b"y"])
    assert [each.partition(":")[0] for each in raised] == ["t-0 has diverged"]
    assert [record.value for record in ends.cluster["t"].read()] == [b"1", b"2"]


def test_offsets_are_committed_again_before_the_cluster_forgets_them(ends, monkeypatch):
    """Kafka forgets those of a group without members after 7 days, those of a partition each: also while
    others of the group are committed, and if it is pushed once a day and has nothing new."""
    monkeypatch.setattr("logstore.bridge.push_topics._COMMIT_AGAIN_SECONDS", 0)
    for name in ("busy", "quiet"):
        ends.store.create_topic(name)[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "busy", "quiet", name="edge")
    thread = threading.Thread(target=push.run)
    thread.start()
    try:
        wait_until(lambda: push.progress.partitions and push.progress.lag == 0)
        offsets = ends.remote.offsets(push.group)
        offsets.delete([("quiet", 0)])
        ends.store["busy"][0].append(b"2")
        wait_until(lambda: push.progress.record_count == 3 and ("quiet", 0) in offsets)
    finally:
        push.stop()
        thread.join()
    monkeypatch.undo()
    committed_before = ends.cluster["__consumer_offsets"][0].log_end_offset
    progress = ends.push("busy", "quiet")
    assert (progress.record_count, progress.transaction_count) == (0, 0)
    assert ends.cluster["__consumer_offsets"][0].log_end_offset > committed_before


@pytest.mark.parametrize("is_made_here", [True, False])
def test_offsets_that_the_cluster_has_forgotten(ends, is_made_here):
    """As Kafka does when a store was away for a week: nothing is pushed twice, and the error says how to go
    on. A topic that was deleted and made again at the cluster is another one, and gets all."""
    source = ends.store.create_topic("t")
    if not is_made_here:
        ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.push("t")
    offsets = ends.remote.offsets("logstore-bridge-edge")
    offsets.delete()
    with pytest.raises(OutOfOrderError, match="t-0 was pushed up to offset 2, as is noted here") as raised:
        ends.push("t")
    source[0].append(b"3")
    (asked,) = re.findall(r"commit\((\{.*?\})\)", str(raised.value))
    offsets.commit(eval(asked, {"OffsetAndMetadata": OffsetAndMetadata}))
    assert ends.push("t").record_count == 1
    assert committed(ends.cluster["t"]) == committed(source)
    ends.cluster.delete_topic("t")
    ends.cluster.create_topic("t")
    assert ends.push("t").record_count == 3


def test_offsets_that_somebody_has_set(ends):
    """The errors lead to where pushing goes on."""
    source = ends.store.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.push("t")
    source[0].append(b"3")
    offsets = ends.remote.offsets("logstore-bridge-edge")
    offsets.commit({("t", 0): 1})
    with pytest.raises(OutOfOrderError, match="Delete the group at the cluster"):
        ends.push("t")
    offsets.delete()
    with pytest.raises(OutOfOrderError, match="t-0 was pushed up to offset 2") as raised:
        ends.push("t")
    (asked,) = re.findall(r"commit\((\{.*?\})\)", str(raised.value))
    offsets.commit(eval(asked, {"OffsetAndMetadata": OffsetAndMetadata}))
    assert ends.push("t").record_count == 1
    assert committed(ends.cluster["t"]) == committed(source)


def test_a_transactional_id_that_the_cluster_has_forgotten(ends, monkeypatch):
    """As one that was not used for ``transactional.id.expiration.ms``: another producer goes on."""
    source = ends.store.create_topic("t")
    source[0].append(b"1")
    plain, refused = RemoteBroker.end_transaction, []

    def end_transaction(self, request):
        if refused:
            return plain(self, request)
        refused.append(request)
        return Answered(EndTransactionResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING))

    monkeypatch.setattr(RemoteBroker, "end_transaction", end_transaction)
    assert ends.push("t").record_count == 1
    assert refused
    assert committed(ends.cluster["t"]) == committed(source)


def test_a_machine_that_sleeps_in_a_transaction(ends, monkeypatch):
    """The cluster aborts it, and that is not another bridge that has taken over."""
    source = ends.store.create_topic("t")
    source[0].append(b"1")
    plain, slept_ms = RemoteBroker.end_transaction, []

    def end_transaction(self, request):
        if slept_ms:
            return plain(self, request)
        slept_ms.append(3_600_000)
        return Answered(EndTransactionResult(ErrorCode.INVALID_PRODUCER_EPOCH))

    monkeypatch.setattr(RemoteBroker, "end_transaction", end_transaction)
    awake_ms = BootClock.monotonic_ms
    monkeypatch.setattr(BootClock, "monotonic_ms", lambda self: awake_ms(self) + sum(slept_ms))
    assert ends.push("t").record_count == 1
    assert committed(ends.cluster["t"]) == committed(source)


def test_a_topic_that_is_deleted_here_while_it_is_pushed(ends):
    ends.store.create_topic("t")[0].append(b"1")
    push = bridge.push(ends.store, ends.remote, "t", name="edge")
    with ended_by(UnknownTopicError, push, 1) as raised:
        ends.store.delete_topic("t")
        ends.store.create_topic("t")
    assert raised == ["topic 't' of /store was deleted while it was pushed, up to offset 1 of t-0"]


def test_a_copy_is_not_pushed_into_what_it_is_a_copy_of(ends, tmp_path):
    """It would pull its own records again, and push them, for ever."""
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    bridge.pull(ends.remote, ends.store, "t").run(until_end=True)
    with pytest.raises(UsageError, match="topic 't' of /store is a copy of topic 't' of the cluster"):
        ends.push("t")
    assert source[0].log_end_offset == 2
    with logstore.open(tmp_path / "other") as other, other.listen("127.0.0.1:0") as listener:
        with logstore.connect(listener.address) as target:
            bridge.push(ends.store, target, "t", name="edge").run(until_end=True)
        assert committed(other["t"]) == committed(source)
    ends.store["t"][0].set_role(Role.ALONE)
    with pytest.raises(UsageError, match="began as a copy of the other: its records would come again"):
        ends.push("t")
    assert source[0].log_end_offset == 2


def test_a_bridge_runs_once_at_a_time(ends):
    ends.store.create_topic("up")
    ends.cluster.create_topic("down")
    pull = bridge.pull(ends.remote, ends.store, "down")
    for each in (pull, bridge.push(ends.store, ends.remote, "up", name="edge")):
        thread = threading.Thread(target=each.run)
        thread.start()
        try:
            wait_until(lambda each=each: each.progress.partitions)
            with pytest.raises(UsageError, match="runs already"):
                each.run()
        finally:
            each.stop()
            thread.join()
        each.run(until_end=True)


def test_what_is_pushed_is_durable_here_first(ends):
    source = ends.store.create_topic("t")
    source[0].append(b"1")
    ends.push("t")
    assert source[0].durable_offset == 1


def test_two_with_one_name(ends):
    source = ends.store.create_topic("t")
    source[0].append(b"1")
    first = bridge.push(ends.store, ends.remote, "t", name="edge")
    with ended_by(ProducerFencedError, first, 1) as raised:
        ends.push("t")
        source[0].append(b"2")
    assert re.search("pushes under the name 'edge', and has taken over.* another name", raised[0])
    ends.push("t")
    assert committed(ends.cluster["t"]) == committed(source)


def test_a_password_that_was_changed_meanwhile(ends):
    ends.cluster.users.set_password("edge", "old")
    ends.store.create_topic("t")[0].extend([b"1"])
    listener = ends.cluster.listen(sasl_enabled_mechanisms="SCRAM-SHA-256")
    with logstore.connect(listener.address, sasl=Sasl(username="edge", password="old")) as remote:
        push = bridge.push(ends.store, remote, "t", name="edge")
        with contextlib.ExitStack() as stack, ended_by(UsageError, push, 1) as raised:
            ends.cluster.users.set_password("edge", "new")
            listener.close()
            stack.enter_context(
                ends.cluster.listen(listener.address, sasl_enabled_mechanisms="SCRAM-SHA-256")
            )
            ends.store["t"][0].extend([b"2"])
    assert len(raised) == 1
    assert "refuses" in raised[0], raised


def test_a_full_disk_gets_room_by_pushing(ends):
    """An append that waits in memory for room is not pushed before it is on the disk; the others are."""
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/device", config=CALM, files=files) as device:
        log = device.create_topic("t")[0]
        log.extend([b"1", b"2"])
        log.flush()
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
        log.append(b"waits")
        push = bridge.push(device, ends.remote, "t", name="edge", delete_pushed=True)
        assert push.run(until_end=True).record_count == 2
        assert log.log_start_offset == 2
        files.heal()
        log.flush()
        assert push.run(until_end=True).record_count == 3


def test_an_append_that_gets_room_between_reading_and_flushing_is_pushed(ends):
    """The disk refuses it when it is read, and takes it when what was read is flushed."""
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/device", config=StoreConfig(linger_ms=60_000), files=files) as device:
        log = device.create_topic("t")[0]
        log.extend([b"1", b"2"])
        log.flush()
        log.append(b"waits")
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log")
        assert bridge.push(device, ends.remote, "t", name="edge").run(until_end=True).record_count == 3
    assert [record.value for record in ends.cluster["t"].read(isolation=COMMITTED)] == [b"1", b"2", b"waits"]


def test_what_a_full_disk_keeps_from_being_durable_is_not_pushed(ends, monkeypatch):
    ends.store.create_topic("t")[0].extend([b"1", b"2"])

    def flush(directory, logs):
        raise DiskFullError("no space left")

    monkeypatch.setattr(LogDirectory, "flush", flush)
    with pytest.raises(DiskFullError):
        ends.push("t")
    assert not list(ends.cluster["t"].read(isolation=COMMITTED))
    monkeypatch.undo()
    assert ends.push("t").record_count == 2


def test_a_record_that_the_cluster_does_not_take(ends):
    ends.store.create_topic("t")[0].extend([b"1"])
    ends.cluster.create_topic("t", config=TopicConfig(cleanup_policy="compact"))
    with pytest.raises(
        InvalidRecordError, match=r"t-0 offset 0 cannot be pushed.*those of the topic in the cluster"
    ):
        ends.push("t")


def test_a_record_that_the_cluster_does_not_take_is_erased_and_other_topics_go_on(ends):
    source = ends.store.create_topic("t")
    source[0].extend([(b"k", b"1"), b"2", (b"k", b"3")])
    ends.store.create_topic("other")[0].extend([b"1"])
    ends.cluster.create_topic("t", config=TopicConfig(cleanup_policy="compact"))
    with pytest.raises(InvalidRecordError, match=r"store\['t'\]\[0\]\.erase\(offsets=1\)") as caught:
        ends.push("t", "other")
    assert ends.push("other").record_count == 1
    topic, number = caught.value.partition
    ends.store[topic][number].erase(offsets=caught.value.offset)
    assert ends.push("t", "other").record_count == 2
    assert committed(ends.cluster["t"]) == committed(source)


@pytest.mark.parametrize("count", [1, 3])
def test_a_record_that_only_the_cluster_has_checked(ends, monkeypatch, count):
    source = ends.store.create_topic("t")
    source[0].extend([b"1"])
    ends.push("t")
    source[0].extend([b"v"] * count)

    def produce(broker, request):
        refused = Promise()
        codes = [ProducedPartition(each.partition, ErrorCode.INVALID_RECORD) for each in request.partitions]
        refused.complete(ProduceResult(tuple(codes)))
        return refused

    monkeypatch.setattr(RemoteBroker, "produce", produce)
    where = "offset 1" if count == 1 else "a record of offsets 1 to 3"
    with pytest.raises(
        InvalidRecordError, match=f"t-0 {where} cannot be pushed: t-0: INVALID_RECORD.*erase"
    ) as caught:
        ends.push("t")
    assert caught.value.partition == ("t", 0)


def test_a_record_that_is_too_large_for_the_cluster_is_pushed_when_that_was_changed(ends):
    """The error does not send anyone to the settings here."""
    ends.store.create_topic("t")[0].extend([b"1", b"x" * 500])
    there = ends.cluster.create_topic("t", config=TopicConfig(max_message_bytes=200))
    with pytest.raises(
        RecordTooLargeError, match=r"t-0 offset 1 .*\(200\).*those of the topic in the cluster"
    ):
        ends.push("t")
    there.configure(max_message_bytes=2_000)
    ends.push("t")
    assert committed(there) == committed(ends.store["t"])


def test_names(ends):
    ends.store.create_topic("t")
    with pytest.raises(UsageError, match="name is ''"):
        ends.push("t", name="")
    with pytest.raises(UsageError, match="must be text"):
        ends.push("t", name="\ud800")
    with pytest.raises(UnknownTopicError):
        ends.push("nowhere")
    with pytest.raises(logstore.errors.InvalidConfigError, match="acsk"):
        ends.push("t", acsk=1)
    with pytest.raises(logstore.errors.InvalidConfigError, match="transactional_id is the bridge's own"):
        ends.push("t", transactional_id="mine")
    with pytest.raises(UsageError, match="is no cluster; give what"):
        bridge.push(ends.remote, ends.store, "t", name="edge")
    with pytest.raises(UsageError, match="is no cluster; give what"):
        bridge.pull(ends.store, ends.remote, "t")


def test_rights_that_are_missing(tmp_path):
    """The error names what is refused."""
    topic = ResourceType.TOPIC, "t", PatternType.LITERAL
    may_look = Acl(*topic, "User:ANONYMOUS", "*", Operation.DESCRIBE, Permission.ALLOW)
    with (
        logstore.open(tmp_path / "cluster", config=CALM) as cluster,
        logstore.open(tmp_path / "store", config=CALM) as store,
    ):
        cluster.create_topic("t")
        store.create_topic("t")[0].append(b"1")
        cluster.acls.add([may_look])
        with (
            cluster.listen("127.0.0.1:0", authorize=True) as listener,
            logstore.connect(listener.address) as remote,
        ):
            with pytest.raises(UsageError, match=r": starting: TRANSACTIONAL_ID_AUTHORIZATION_FAILED$"):
                bridge.push(store, remote, "t", name="edge").run(until_end=True)
            store.delete_topic("t")
            with pytest.raises(UsageError, match="does not allow it"):
                bridge.pull(remote, store, "t").run(until_end=True)


def test_the_rights_that_a_push_needs(tmp_path):
    """Those that the documentation names are enough, and none is too many."""
    needed = {
        (ResourceType.TOPIC, "t"): {
            Operation.WRITE: "adding partitions of 't': TOPIC_AUTHORIZATION_FAILED",
            Operation.READ: "committing the offset of t-0 for group 'logstore-bridge-edge'",
        },
        (ResourceType.GROUP, "logstore-bridge-edge"): {Operation.READ: "GROUP_AUTHORIZATION_FAILED"},
        (ResourceType.TRANSACTIONAL_ID, "logstore-bridge-edge"): {Operation.WRITE: "TRANSACTIONAL_ID"},
    }
    with (
        logstore.open(tmp_path / "cluster", config=CALM) as cluster,
        logstore.open(tmp_path / "store", config=CALM) as store,
        cluster.listen("127.0.0.1:0", authorize=True) as listener,
        logstore.connect(listener.address) as remote,
    ):
        cluster.create_topic("t")
        log = store.create_topic("t")[0]
        rights = {
            Acl(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, Permission.ALLOW): error
            for (kind, name), operations in needed.items()
            for operation, error in operations.items()
        }
        cluster.acls.add(rights)
        log.append(b"all rights")
        bridge.push(store, remote, "t", name="edge").run(until_end=True)
        for right, error in rights.items():
            log.append(b"without one")
            cluster.acls.remove([AclFilter(*right)])
            with pytest.raises(UsageError, match=error):
                bridge.push(store, remote, "t", name="edge").run(until_end=True)
            cluster.acls.add([right])
        bridge.push(store, remote, "t", name="edge").run(until_end=True)
        assert committed(cluster["t"]) == committed(store["t"])
