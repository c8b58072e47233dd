"""Topics of a cluster, which a listener in this process plays, are copied into a store. 6 s."""

from __future__ import annotations

import contextlib
import random
import re
import threading
import time
from dataclasses import replace

import pytest

import logstore
from logstore import bridge
from logstore.bridge import cluster, pull_topics
from logstore.bridge.cluster import ClusterQuestions
from logstore.bridge.followed_topics import FollowedTopics
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Promise, wait_for
from logstore.broker.requests import FetchedPartition, FetchResult
from logstore.config import StoreConfig, TopicConfig
from logstore.connected import prepare_connection
from logstore.errors import CorruptionError, OutOfOrderError, RetriableError, UnknownTopicError, UsageError
from logstore.format.header import decode_header
from logstore.logdir.catalogue import CatalogueWriter
from logstore.logdir.directory import LogDirectory
from logstore.logdir.followed import read_followed
from logstore.model import Isolation, Role
from logstore.partition.log import Log
from logstore.partition.state.home import LogHome
from logstore.testing import MemoryFiles
from logstore.wire.remote.broker import RemoteBroker
from logstore.wire.remote.connections.questions import RemotePending
from tests.bridge.histories import History, batches, check_copy
from tests.rotation import seed_of_turn

CALM = StoreConfig(log_cleaner_enable=False, log_retention_check_interval_ms=2**62)
COMMITTED = Isolation.COMMITTED
HISTORIES = 12


class Ends:
    """A cluster, and the store beside it."""

    def __init__(self):
        self.files = MemoryFiles()
        self.cluster = logstore.open("/cluster", config=CALM, files=self.files)
        self.store = logstore.open("/store", config=CALM, files=self.files)
        self.listener = self.cluster.listen("127.0.0.1:0")
        self.remote = logstore.connect(self.listener.address, retry_backoff_ms=5, reconnect_backoff_ms=5)

    def pull(self, *topics):
        return bridge.pull(self.remote, self.store, *topics).run(until_end=True)

    def close(self):
        for each in (self.remote, self.listener, self.store, self.cluster):
            each.close()


@pytest.fixture
def ends(monkeypatch):
    monkeypatch.setattr(cluster, "LATE_SECONDS", 0.01)
    made = Ends()
    yield made
    made.close()


# The same batches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
def test_histories(ends, policy):
    """Of transactions, aborted ones, several leaders, deleted beginnings; with compaction before it is
    copied. What is copied at any time is a beginning of what is there. 3 s."""
    for number in range(HISTORIES // 3):
        chance = random.Random(f"{seed_of_turn()} {policy} {number}")
        name = f"t{number}"
        config = TopicConfig(cleanup_policy=policy, segment_bytes=4096, retention_ms=-1)
        source = ends.cluster.create_topic(name, partitions=chance.randrange(1, 4), config=config)
        history = History(source, chance, compacts=source.config.compacts)
        pull = bridge.pull(ends.remote, ends.store, name)
        history.go_on(chance.randrange(60))
        if history.compacts:  # what was copied is not compacted again at the cluster
            history.compacts = False
        for _ in range(chance.randrange(1, 4)):
            pull.run(until_end=True)
            check_copy(source, ends.store[name])
            history.go_on(chance.randrange(1, 30))
            if chance.random() < 0.3:
                source.add_partitions(len(source) + 1)
            if chance.random() < 0.4:
                pull = bridge.pull(ends.remote, ends.store, name)
        history.end_all()
        progress = pull.run(until_end=True) if chance.random() < 0.5 else ends.pull(name)
        check_copy(source, ends.store[name])
        assert progress.truncated_count == 0


def test_compaction_goes_on_on_both_sides(ends):
    """What was copied before it was compacted away may stay here; nothing that is there is missing."""
    for number in range(HISTORIES // 2):
        chance = random.Random(f"{seed_of_turn()} compacting {number}")
        config = TopicConfig(cleanup_policy="compact", segment_bytes=4096, retention_ms=-1)
        source = ends.cluster.create_topic(f"t{number}", config=config)
        history = History(source, chance, compacts=True)
        pull = bridge.pull(ends.remote, ends.store, source.name)
        for _ in range(6):
            history.go_on(chance.randrange(1, 20))
            if chance.random() < 0.4:
                pull = bridge.pull(ends.remote, ends.store, source.name)
            pull.run(until_end=True)
            copy = ends.store[source.name]
            if chance.random() < 0.3:
                copy[0].roll()
                copy[0].compact(now=True)
            assert current(copy[0]) == current(source[0])
            if chance.random() < 0.3:  # as after a power cut
                firsts = [decode_header(batch).base_offset for batch in batches(copy[0])] or [0]
                copy[0].truncate_to(chance.choice(firsts))
                pull = bridge.pull(ends.remote, ends.store, source.name)
            assert copy.verify()
        history.end_all()
        pull.run(until_end=True)
        assert current(copy[0]) == current(source[0])


def current(log):
    found = log.latest(isolation=COMMITTED)
    return {(record.offset, record.key, record.value, record.timestamp_ms) for record in found}


def test_what_the_cluster_has_lost_is_cut_off(ends):
    """An unclean election there, seen by a pull that runs on and by one that begins."""
    truncated = 0
    for number in range(HISTORIES):
        chance = random.Random(f"{seed_of_turn()} lost {number}")
        source = ends.cluster.create_topic(f"t{number}", config=TopicConfig(segment_bytes=4096))
        log = source[0]
        pull = bridge.pull(ends.remote, ends.store, source.name)
        for _ in range(4):
            for _ in range(chance.randrange(1, 10)):
                log.extend([b"%d" % chance.randrange(10**6) for _ in range(chance.randrange(1, 9))])
                if chance.random() < 0.2:
                    log.assign_leader_epoch(log.leader_epoch + 1)
            if chance.random() < 0.5:
                pull = bridge.pull(ends.remote, ends.store, source.name)
            truncated += pull.run(until_end=True).truncated_count
            check_copy(source, ends.store[source.name])
            History(source, chance, compacts=False).lose(log)
            log.extend([b"of the new leader"] * chance.randrange(1, 20))
        ends.pull(source.name)
        check_copy(source, ends.store[source.name])
    assert truncated > 0


@pytest.mark.parametrize("deleted", [6, 10])
@pytest.mark.parametrize("again", [1, 20])
def test_what_the_cluster_has_lost_of_what_the_copy_has_deleted(ends, deleted, again):
    """What is there now is copied, whether the cluster's log has grown beyond the copy's meanwhile or not."""
    source = ends.cluster.create_topic("t")[0]
    source.extend([b"%d" % number for number in range(5)])
    source.extend([b"%d" % number for number in range(5, 10)])
    ends.pull("t")
    copy = ends.store["t"][0]
    copy.delete_before(deleted)
    source.truncate_to(5)
    source.assign_leader_epoch(source.leader_epoch + 1)
    source.extend([b"of the new leader"] * again)
    progress = ends.pull("t")
    assert (copy.log_start_offset, copy.log_end_offset) == (5, source.log_end_offset)
    assert progress.truncated_count == 10 - deleted
    assert [record.value for record in copy.read()] == [b"of the new leader"] * again


def test_batches_that_compaction_has_joined_are_copied_again(ends):
    config = TopicConfig(cleanup_policy="compact", segment_bytes=1 << 20)
    source = ends.cluster.create_topic("t", config=config)
    for number in range(20):
        source[0].extend([(b"k%d" % number, b"v"), (b"same", b"%d" % number)])
    ends.pull("t")
    source[0].roll()
    source[0].compact(now=True)
    source[0].extend([(b"k", b"last")])
    before = len(batches(ends.store["t"][0]))
    ends.store["t"][0].truncate_to(21)
    ends.pull("t")
    assert list(source[0])[-3:] == list(ends.store["t"][0])[-3:]
    assert len(batches(ends.store["t"][0])) < before
    assert ends.store["t"].verify()


def test_a_gap_at_the_end_is_an_end(ends):
    config = TopicConfig(cleanup_policy="compact")
    source = ends.cluster.create_topic("t", config=config)
    source[0].extend([(b"a", b"1"), (b"b", b"1")])
    source[0].extend([(b"a", None)])
    source[0].roll()
    source[0].compact(now=True)
    source[0].truncate_to(source[0].log_end_offset)
    ends.pull("t")
    check_copy(source, ends.store["t"])


@pytest.mark.parametrize("knows_it", [True, False])
@pytest.mark.parametrize("runs_on", [True, False])
def test_a_broker_that_does_not_know_yet_what_another_told(ends, monkeypatch, knows_it, runs_on):
    """Of a topic, or of its new partitions."""
    source = ends.cluster.create_topic("t")
    source[0].append(b"1")
    pull = bridge.pull(ends.remote, ends.store, "t")
    early = pull._cluster.topics(["t"])
    source.add_partitions(2)
    source[1].append(b"2")
    pull.run(until_end=True)
    if not runs_on:
        pull = bridge.pull(ends.remote, ends.store, "t")
    plain, answers = cluster.ClusterQuestions.topics, [early if knows_it else early._replace(topics={})]
    monkeypatch.setattr(
        cluster.ClusterQuestions,
        "topics",
        lambda self, names: answers.pop() if answers else plain(self, names),
    )
    monkeypatch.setattr(cluster, "LATE_SECONDS", 0.01)
    pull.run(until_end=True)
    check_copy(source, ends.store["t"])


def test_what_is_above_the_high_watermark_is_not_copied(ends):
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    source[0].set_role(Role.LEADER)
    source[0].extend([b"3", b"4"])
    ends.pull("t")
    assert [record.value for record in ends.store["t"][0].read()] == [b"1", b"2"]
    source[0].update_high_watermark(4)
    ends.pull("t")
    check_copy(source, ends.store["t"])


def test_the_beginning_is_deleted_here_too(ends):
    source = ends.cluster.create_topic("t")
    source[0].extend([b"%d" % number for number in range(10)])
    source[0].extend([b"10", b"11"])
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    source[0].delete_before(4)
    source[0].extend([b"12"])
    pull.run(until_end=True)
    assert ends.store["t"][0].log_start_offset == 4
    assert [record.value for record in ends.store["t"][0]] == [b"%d" % n for n in range(4, 13)]


def test_what_was_deleted_before_it_was_copied(ends, caplog):
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.pull("t")
    source[0].extend([b"3", b"4"])
    source[0].roll()
    source[0].extend([b"5"])
    source[0].delete_before(4)
    progress = ends.pull("t")
    assert progress.skipped_count == 2
    assert "2 offsets from 2 on" in caplog.text
    check_copy(source, ends.store["t"])


def test_topics_are_made_as_they_are_there(ends):
    config = TopicConfig(cleanup_policy="compact", segment_bytes=1 << 20, max_message_bytes=12345)
    source = ends.cluster.create_topic("t", partitions=2, config=config)
    ends.pull("t")
    copy = ends.store["t"]
    assert (copy.topic_id, copy.config, len(copy)) == (source.topic_id, config, 2)
    assert {log.role for log in copy} == {Role.FOLLOWER}


# While it goes on -------------------------------------------------------------------------------------------


def test_it_follows_until_it_is_stopped(ends, monkeypatch):
    monkeypatch.setattr("logstore.bridge.pull_topics.REFRESH_MS", 50)
    source = ends.cluster.create_topic("t")
    pull = bridge.pull(ends.remote, ends.store, "t")
    thread = threading.Thread(target=pull.run)
    thread.start()
    try:
        source[0].append(b"1", flush=True)
        wait_until(lambda: "t" in ends.store and ends.store["t"][0].high_watermark == 1)
        source.add_partitions(2)
        source[1].append(b"2", flush=True)
        wait_until(lambda: len(ends.store["t"]) == 2 and ends.store["t"][1].high_watermark == 1)
        assert pull.progress.lag == 0
    finally:
        pull.stop()
        thread.join()
    check_copy(source, ends.store["t"])


@pytest.mark.parametrize("knows", ["a partition less", "nothing of the topic"])
def test_a_broker_that_has_not_heard_yet_of_what_another_has_told(ends, monkeypatch, knows):
    """Each look asks any broker: the topic was taken for one that is no copy, or for deleted."""
    source = ends.cluster.create_topic("t", partitions=2)
    source[1].append(b"1")
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    plain, late = ClusterQuestions.topics, [knows]

    def topics(self, names):
        found = plain(self, names)
        if not late:
            return found
        late.pop()
        if knows == "nothing of the topic":
            return found._replace(topics={})
        return found._replace(topics={"t": found.topics["t"]._replace(leader_epochs=(0,), is_led=(True,))})

    monkeypatch.setattr(ClusterQuestions, "topics", topics)
    source[1].append(b"2")
    pull.run(until_end=True)
    check_copy(source, ends.store["t"])


def test_a_broker_that_has_not_heard_yet_of_a_partition_that_is_here(ends, monkeypatch):
    """Another process has pulled before."""
    source = ends.cluster.create_topic("t", partitions=2)
    ends.pull("t")
    plain, answers = ClusterQuestions.topics, []

    def topics(self, names):
        answers.append(plain(self, names))
        there = answers[-1].topics["t"]
        late = there._replace(leader_epochs=(0,), is_led=(True,))
        return answers[-1]._replace(topics={"t": late}) if len(answers) == 1 else answers[-1]

    monkeypatch.setattr(ClusterQuestions, "topics", topics)
    ends.pull("t")
    assert len(answers) == 2
    check_copy(source, ends.store["t"])


def test_a_topic_that_is_deleted_here_meanwhile_is_copied_again(ends):
    source = ends.cluster.create_topic("t")
    source[0].append(b"1", flush=True)
    pull = bridge.pull(ends.remote, ends.store, "t")
    thread = threading.Thread(target=pull.run)
    thread.start()
    try:
        wait_until(lambda: pull.progress.batch_count == 1)
        ends.store.delete_topic("t")
        wait_until(lambda: pull.progress.batch_count == 2)
    finally:
        pull.stop()
        thread.join()
    check_copy(source, ends.store["t"])


def test_it_waits_for_a_cluster_that_is_gone_and_says_so(ends, caplog):
    source = ends.cluster.create_topic("t")
    source[0].append(b"1", flush=True)
    address = ends.listener.address
    remote = logstore.connect(address, request_timeout_ms=500)
    pull = bridge.pull(remote, ends.store, "t")
    thread = threading.Thread(target=pull.run)
    thread.start()
    try:
        wait_until(lambda: pull.progress.batch_count == 1)
        ends.listener.close()
        wait_until(lambda: pull.progress.trouble is not None)
        assert "waits, and tries again" in caplog.text  # all of it, or a part that has found it out first
        ends.listener = ends.cluster.listen(address)
        source[0].append(b"2", flush=True)
        wait_until(lambda: pull.progress.batch_count == 2)
        wait_until(lambda: pull.progress.trouble is None)
    finally:
        pull.stop()
        thread.join()
        remote.close()
    check_copy(source, ends.store["t"])


def test_until_the_end_it_waits_only_so_long(ends):
    ends.cluster.create_topic("t")
    with logstore.connect(ends.listener.address) as remote:
        pull = bridge.pull(remote, ends.store, "t")
        pull.run(until_end=True)
        pull._cluster.config = replace(remote.config, request_timeout_ms=500)
        ends.listener.close()
        with pytest.raises(RetriableError):
            pull.run(until_end=True)


def ends_with(pull, error):
    """At some time: a busy machine may take longer than a request may, and that is told then."""

    def is_told():
        with pytest.raises(RetriableError) as caught:
            pull.run(until_end=True)
        return re.search(error, str(caught.value))

    wait_until(is_told)


def test_a_batch_that_is_larger_than_any_answer_may_be(ends, monkeypatch):
    """It is asked for again and again, in between all seems well: that is one trouble, which names the
    setting, and ends a run until the end."""
    monkeypatch.setattr(pull_topics, "_REST_SECONDS", 0.05)
    source = ends.cluster.create_topic("t", partitions=2)
    source[0].append(b"x" * 5_000)
    source[1].append(b"1")
    with prepare_connection(
        ends.listener.address, request_timeout_ms=300, max_response_bytes=4_096, reconnect_backoff_ms=5
    ) as remote:
        pull = bridge.pull(remote, ends.store, "t")
        ends_with(pull, r"a frame of 5.* are allowed \(max_response_bytes\)")
        assert "max_response_bytes" in pull.progress.trouble


def test_a_partition_that_can_never_be_fetched_ends_a_run_until_the_end(ends, monkeypatch):
    """Although it is compared well each time, before it is fetched again."""
    monkeypatch.setattr(pull_topics, "_REST_SECONDS", 0.02)
    ends.cluster.create_topic("t")[0].append(b"1")

    def fetch(broker, request):
        refused = ErrorCode.NETWORK_EXCEPTION
        parts = [FetchedPartition(each.partition, refused, message="no way") for each in request.partitions]
        return Answered(FetchResult(tuple(parts)))

    monkeypatch.setattr(RemoteBroker, "fetch", fetch)
    with prepare_connection(ends.listener.address, request_timeout_ms=300) as remote:
        pull = bridge.pull(remote, ends.store, "t")
        ends_with(pull, "t-0: fetching t-0 from offset 0: no way")
        assert "no way" in pull.progress.trouble


def test_a_broker_that_does_not_tell_where_a_partition_ends_is_named_with_how_long_that_was_waited_for(
    ends, monkeypatch
):
    """Others wait meanwhile, so it is not asked for as long as ``request_timeout_ms``."""
    monkeypatch.setattr(pull_topics, "_REST_SECONDS", 0.2)
    monkeypatch.setattr(pull_topics, "_WAIT_MS", 20)
    monkeypatch.setattr(cluster, "_PARTITION_MS", 50)
    monkeypatch.setattr(RemoteBroker, "list_offsets", lambda broker, request: Promise())
    ends.cluster.create_topic("t")
    address = ends.listener.address
    with prepare_connection(address, request_timeout_ms=100) as remote:
        ends_with(bridge.pull(remote, ends.store, "t"), f"did not tell of offsets within 50 ms: .*{address}")


def test_no_more_is_asked_for_than_an_answer_may_have(ends):
    source = ends.cluster.create_topic("t", partitions=3)
    for number in range(60):
        source[number % 3].append(b"%d" % number * 200, flush=True)
    with logstore.connect(ends.listener.address, max_response_bytes=8_192) as remote:
        bridge.pull(remote, ends.store, "t").run(until_end=True)
    check_copy(source, ends.store["t"])


def test_until_the_end_of_a_topic_that_grows(ends):
    """What is there when it begins, and not all that comes meanwhile."""
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    with growing(source[0]) as is_growing:
        ends.pull("t")
        assert is_growing()
    assert ends.store["t"][0].log_end_offset >= 2


@contextlib.contextmanager
def growing(log):
    """A log to which a thread appends, for 20 seconds at most."""
    ended = threading.Event()

    def grow():
        deadline = time.monotonic() + 20
        while not ended.is_set() and time.monotonic() < deadline:
            log.extend([b"more"])
            time.sleep(0.0005)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield thread.is_alive
    finally:
        ended.set()
        thread.join()


def wait_until(holds):
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# What is wrong ----------------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there(ends):
    with pytest.raises(UnknownTopicError, match=r"has no topic 't'$"):
        ends.pull("t")
    assert "t" not in ends.store


def test_a_topic_that_vanishes(ends, monkeypatch):
    monkeypatch.setattr(cluster, "LATE_SECONDS", 0.01)
    ends.cluster.create_topic("t")
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    ends.cluster.delete_topic("t")
    with pytest.raises(UnknownTopicError, match="the cluster"):
        bridge.pull(ends.remote, ends.store, "t").run(until_end=True)
    with pytest.raises(UnknownTopicError, match="it was deleted there"):
        pull.run(until_end=True)
    assert "t" in ends.store


def test_a_topic_that_was_made_again(ends):
    ends.cluster.create_topic("t")
    ends.pull("t")
    ends.cluster.delete_topic("t")
    ends.cluster.create_topic("t")
    with pytest.raises(UsageError, match="deleted at the cluster, and made again"):
        ends.pull("t")
    ends.store.delete_topic("t")
    ends.pull("t")


def _go_on(pull):
    while True:
        pull._step(False)
        pull._count_misses()


@pytest.mark.parametrize("together", [True, False])
def test_a_topic_that_was_made_again_while_it_is_followed(ends, monkeypatch, together):
    """What was copied stays, whatever batches the new topic has, and however late its id is looked at."""
    monkeypatch.setattr(pull_topics, "REFRESH_MS", 3_600_000)
    ends.cluster.create_topic("t")[0].extend([b"precious 1", b"precious 2"])
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    pull._refresh()
    ends.cluster.delete_topic("t")
    again = ends.cluster.create_topic("t")[0]
    values = [b"1", b"2", b"3", b"4"]
    if together:
        again.extend(values)
    else:
        for value in values:
            again.append(value, flush=True)
    with pytest.raises(UsageError, match="deleted at the cluster, and made again"):
        _go_on(pull)
    assert [record.value for record in ends.store["t"].read()] == [b"precious 1", b"precious 2"]


def test_records_that_became_the_stores_own_are_not_cut_off(ends):
    source = ends.cluster.create_topic("t")[0]
    source.extend([b"1", b"2"])
    ends.pull("t")
    copy = ends.store["t"][0]
    copy.set_role(Role.ALONE)
    ends.pull("t")  # it is still the same
    assert copy.role is Role.FOLLOWER
    copy.set_role(Role.ALONE)
    copy.append(b"mine", flush=True)
    with pytest.raises(UsageError, match="does not have its records from offset 2 on"):
        ends.pull("t")
    source.extend([b"3", b"4", b"5"])
    with pytest.raises((UsageError, OutOfOrderError)):
        ends.pull("t")
    assert [record.value for record in copy.read()] == [b"1", b"2", b"mine"]
    assert copy.role is Role.ALONE
    source.delete_before(5)
    with pytest.raises(UsageError, match="does not have its records from offset 0 on"):
        ends.pull("t")
    assert len([*copy.read()]) == 3


def test_nothing_is_appended_to_a_copy_through_its_topic(ends):
    ends.cluster.create_topic("t")[0].extend([b"1"])
    ends.pull("t")
    topic = ends.store["t"]
    for append in (topic.append, lambda value: topic.extend([value])):
        with pytest.raises(UsageError, match="t-0: it is a copy of a leader's log"):
            append(b"mine")
    assert topic[0].log_end_offset == 1
    topic[0].set_role(Role.ALONE)
    assert topic.append(b"mine") == (0, 1)


def test_a_copy_grows_as_the_cluster_s_topic_does(ends):
    source = ends.cluster.create_topic("t")
    ends.pull("t")
    copy = ends.store["t"]
    with pytest.raises(UsageError, match="topic 't' is a copy, and grows as its leader's does"):
        copy.add_partitions(2)
    with (
        ends.store.listen("127.0.0.1:0") as listener,
        logstore.connect(listener.address) as client,
        pytest.raises(UsageError, match="is a copy"),
    ):
        client.add_partitions("t", 2)
    source.add_partitions(3)
    ends.pull("t")
    assert len(copy) == 3
    for log in copy:
        log.set_role(Role.ALONE)
    copy.add_partitions(4)


def test_a_stop_before_the_run_ends_that(ends):
    ends.cluster.create_topic("t")[0].append(b"1")
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.stop()
    assert pull.run().batch_count == 0
    assert pull.run(until_end=True).batch_count == 1


def test_another_cluster(ends, tmp_path):
    ends.cluster.create_topic("t")
    ends.pull("t")
    with logstore.open(tmp_path / "other") as other, other.listen("127.0.0.1:0") as listener:
        other.create_topic("t")
        with logstore.connect(listener.address) as remote:
            pull = bridge.pull(remote, ends.store, "t")
            with pytest.raises(UsageError, match=r"is a copy of cluster .*; this is cluster"):
                pull.run(until_end=True)


def test_a_topic_of_its_own(ends):
    ends.cluster.create_topic("t")
    ends.store.create_topic("t")[0].append(b"mine")
    with pytest.raises(UsageError, match="has records of its own"):
        ends.pull("t")


def test_records_that_are_appended_here(ends):
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    ends.store["t"][0].extend([b"not of the cluster"])
    source[0].extend([b"3", b"4"])
    with pytest.raises(OutOfOrderError, match="t-0 has diverged: it was copied up to offset 2 and ends at 3"):
        pull.run(until_end=True)
    with pytest.raises(OutOfOrderError, match="t-0 has diverged: the batch with offset 2 is another"):
        ends.pull("t")


@pytest.mark.parametrize("what", ["_new_topic", "_grow"])
def test_another_pull_that_is_faster_with_the_topic(ends, monkeypatch, what):
    source = ends.cluster.create_topic("t", partitions=2)
    pull = bridge.pull(ends.remote, ends.store, "t")
    if what == "_grow":
        pull.run(until_end=True)
        source.add_partitions(4)
        pull = bridge.pull(ends.remote, ends.store, "t")
    source[1].extend([b"1", b"2"])
    if what == "_new_topic":
        beside, faster = FollowedTopics, FollowedTopics._new_topic
    else:
        beside, faster = LogDirectory, LogDirectory.add_partitions

    def after_another(self, *arguments):
        monkeypatch.undo()
        ends.pull("t")
        return faster(self, *arguments)

    def at_the_store(self, *arguments):
        is_other = isinstance(self, LogDirectory) and self is not ends.store.directory
        return faster(self, *arguments) if is_other else after_another(self, *arguments)

    monkeypatch.setattr(beside, faster.__name__, at_the_store)
    assert pull.run(until_end=True).batch_count == 0
    check_copy(source, ends.store["t"])


def test_two_pulls_at_once_are_told_so(ends, monkeypatch):
    """Whoever comes second to the log, at whatever moment."""
    source = ends.cluster.create_topic("t")
    pull = bridge.pull(ends.remote, ends.store, "t")
    pull.run(until_end=True)
    source[0].extend([b"1", b"2"])
    append = Log.append_replicated

    def after_another(self, *arguments, **options):
        monkeypatch.undo()
        ends.pull("t")
        return append(self, *arguments, **options)

    monkeypatch.setattr(Log, "append_replicated", after_another)
    with pytest.raises(OutOfOrderError, match="If two bridges pull it, run one of them"):
        pull.run(until_end=True)


def test_producers_are_refused_while_it_is_a_copy(ends):
    ends.cluster.create_topic("t")
    ends.cluster["t"].extend([b"1", b"2"])
    ends.pull("t")
    with ends.store.producer() as producer, ends.store.listen("127.0.0.1:0") as listener:
        with pytest.raises(UsageError, match="t-0: it is a copy of a leader's log"):
            producer.send("t", b"mine").result(5)
        with logstore.connect(listener.address) as client, pytest.raises(UsageError):
            client.producer().send("t", b"mine").result(5)
    ends.cluster["t"].append(b"3")
    ends.pull("t")
    check_copy(ends.cluster["t"], ends.store["t"])
    ends.store["t"][0].set_role(Role.ALONE)
    with ends.store.producer() as producer:
        assert producer.send("t", b"mine").result(5).offset == 3


def test_no_marker_but_the_cluster_s_is_written_into_a_copy(ends):
    """Neither by a transaction here that tried to write into it, nor for one that is open at the cluster."""
    ends.cluster.create_topic("t")
    with ends.cluster.producer(transactional_id="theirs") as theirs, theirs.transaction():
        theirs.send("t", b"open").result(5)
        ends.pull("t")
        copy = ends.store["t"][0]
        assert copy.log_end_offset == 1
        with (
            ends.store.producer(transactional_id="ours") as ours,
            pytest.raises(UsageError, match="it is a copy"),
            ours.transaction(),
        ):
            ours.send("t", b"mine").result(5)
        assert [each.state for each in ends.store.transactions()] == ["CompleteAbort"]
        assert copy.log_end_offset == 1
    ends.pull("t")
    check_copy(ends.cluster["t"], ends.store["t"])


@contextlib.contextmanager
def an_old_backup(ends):
    """Of a cluster of which more was copied: connected."""
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.cluster.backup("/backup")
    source[0].assign_leader_epoch(3)
    source[0].extend([b"3"])
    ends.pull("t")
    with (
        logstore.open("/backup", files=ends.files) as old,
        old.listen("127.0.0.1:0") as listener,
        logstore.connect(listener.address) as remote,
    ):
        yield old, remote


def test_a_cluster_of_which_an_old_backup_is_back(ends, caplog):
    with an_old_backup(ends) as (old, remote):
        old["t"][0].extend([b"another 3"])
        bridge.pull(remote, ends.store, "t").run(until_end=True)
        check_copy(old["t"], ends.store["t"])
    assert "the cluster has lost or replaced the records from 2 on; 1 offsets are cut off here" in caplog.text


def test_a_cluster_that_does_not_know_the_epoch_of_the_records_here(ends, monkeypatch):
    """As an old copy of a broker's directory."""
    monkeypatch.setattr(LogHome, "_gives_above", lambda home, latest: False)
    monkeypatch.setattr(LogHome, "_begin_after_crash_locked", lambda home: None)
    with (
        an_old_backup(ends) as (_, remote),
        pytest.raises(OutOfOrderError, match="of leader epoch 3, which the cluster does not know"),
    ):
        bridge.pull(remote, ends.store, "t").run(until_end=True)


def test_a_batch_that_is_damaged_on_its_way(ends, monkeypatch):
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    pull = bridge.pull(ends.remote, ends.store, "t")
    plain = RemoteBroker.fetch

    def fetch(broker, request):
        result = wait_for(plain(broker, request))
        damaged = [each._replace(data=bytes(each.data)[:-1] + b"!") for each in result.partitions]
        return Answered(FetchResult(tuple(damaged)))

    monkeypatch.setattr(RemoteBroker, "fetch", fetch)
    with pytest.raises(CorruptionError, match="t-0: what the cluster sent from offset 0 on is damaged"):
        pull.run(until_end=True)
    monkeypatch.undo()
    pull.run(until_end=True)
    check_copy(source, ends.store["t"])


class OverQuota:
    """Brokers that answer every other fetch as Kafka does when a quota is exceeded: at once, and without
    having looked at a partition."""

    def __init__(self, monkeypatch, delay_ms):
        self.delay_ms = delay_ms
        self.asked = []
        self.plain = RemoteBroker.fetch
        monkeypatch.setattr(RemoteBroker, "fetch", lambda broker, request: self.fetch(broker, request))

    def fetch(self, broker, request):
        self.asked.append(time.monotonic())
        if len(self.asked) % 2:
            parts = [FetchedPartition(each.partition, ErrorCode.NONE) for each in request.partitions]
            throttled = RemotePending()
            throttled.complete_throttled(FetchResult(tuple(parts)), self.delay_ms)
            return throttled
        return self.plain(broker, request)


def test_a_quota_makes_a_run_longer_and_not_shorter(ends, monkeypatch):
    """Nothing is asked for before the delay is over."""
    source = ends.cluster.create_topic("t", partitions=2)
    pull = bridge.pull(ends.remote, ends.store, "t")
    over = OverQuota(monkeypatch, 40)
    for _ in range(2):
        source[0].extend([b"1", b"2"])
        source[1].extend([b"3"])
        assert pull.run(until_end=True).lag == 0
        check_copy(source, ends.store["t"])
    throttled, next_ones = over.asked[0::2], over.asked[1::2]
    assert all(later - at >= 0.04 for at, later in zip(throttled, next_ones, strict=True))


def test_a_quota_does_not_hide_that_logs_have_parted(ends, monkeypatch):
    monkeypatch.setattr(pull_topics, "_REST_SECONDS", 0.01)
    source = ends.cluster.create_topic("t")
    source[0].extend([b"1", b"2"])
    ends.pull("t")
    ends.store["t"][0].extend([b"not of the cluster"])
    source[0].extend([b"3", b"4"])
    OverQuota(monkeypatch, 10)
    with pytest.raises(OutOfOrderError, match="t-0 has diverged: the batch with offset 2 is another"):
        ends.pull("t")


def test_names(ends):
    with pytest.raises(UsageError, match="is internal"):
        bridge.pull(ends.remote, ends.store, "__consumer_offsets")
    with pytest.raises(UsageError, match="no topic is named"):
        bridge.pull(ends.remote, ends.store)
    with pytest.raises(UsageError):
        bridge.pull(ends.remote, ends.store, "no/name")


def test_followed_topics_are_in_backups(ends):
    ends.cluster.create_topic("t")[0].append(b"1", flush=True)
    ends.pull("t")
    ends.store.backup("/backup")
    assert read_followed(ends.files, "/backup") == read_followed(ends.files, "/store") != {}


def test_topics_that_are_new_are_made_together(ends, monkeypatch):
    """A cluster may have thousands."""
    names = [f"new{number}" for number in range(20)]
    for name in names:
        ends.cluster.create_topic(name).append(b"a", flush=True)
    ends.store.create_topic("other_one")
    ends.cluster.create_topic("other.one").append(b"a", flush=True)
    writes = []
    write = CatalogueWriter.write
    monkeypatch.setattr(CatalogueWriter, "write", lambda *args: writes.append(args) or write(*args))
    pulling = bridge.pull(ends.remote, ends.store, *names, "other.one")
    with pytest.raises(UsageError, match="clashes"):
        pulling.run(until_end=True)
    assert len(writes) == 2
    ends.pull(*names)
    assert all(ends.store[name][0].log_end_offset == 1 for name in names)
