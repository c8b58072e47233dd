"""Share groups go on in the target of a handover where they are in the source. 1 s."""

from __future__ import annotations

import random
import uuid

import pytest

import logstore
from logstore.broker.share.stored import ShareState
from logstore.broker.storing.shares import ShareStorage
from logstore.errors import StorageError, UsageError
from logstore.format.messages.share_records import ShareBatch, ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.logdir.cluster import ClusterTopic, read_cluster_topics
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.exchange.brokers import make_broker

TOPICS = ["jobs", "other", SHARE_STATE_TOPIC]


class World:
    """Two directories in memory."""

    def __init__(self):
        self.files, self.clock = FaultyFiles(MemoryFiles()), ManualClock()

    def open(self, path):
        return logstore.open(path, files=self.files, clock=self.clock)

    def hand_over(self, **options):
        options = {"topics": TOPICS} | options
        return logstore.handover("/source", "/target", files=self.files, clock=self.clock, **options)

    def write(self, rng):
        """Two groups that have done some jobs."""
        with self.open("/source") as store:
            for topic, partitions in (("jobs", 2), ("other", 1), ("kept", 1)):
                for log in store.create_topic(topic, partitions=partitions):
                    log.extend([b"%d" % number for number in range(10)])
            for group in ("a", "b"):
                with store.queue("jobs", "other", "kept", group=group, linger_ms=0) as queue:
                    for _ in range(30):
                        for job in queue.poll(0, max_jobs=rng.randint(1, 2)):
                            if (choice := rng.random()) < 0.5:
                                job.accept()
                            elif choice < 0.7:
                                job.release(rng.choice((None, 60)))
                            elif choice < 0.8:
                                job.reject()


def left(store, group, *topics):
    """What a group still has to do: (topic, partition, offset, delivery)."""
    with store.queue(*topics, group=group) as queue:
        return sorted((*job.partition, job.offset, job.delivery_count) for job in queue.poll(0))


@pytest.fixture
def world():
    return World()


@pytest.mark.parametrize("seed", range(5))
def test_workers_of_the_target_go_on(world, seed):
    world.write(random.Random(seed))
    report = world.hand_over()
    assert report.share_groups == ("a", "b")
    assert report.created_topics == ("jobs", "other")
    assert "share group a goes on where it is" in str(report)
    found = []
    for path in ("/source", "/target"):
        with world.open(path) as store:
            states = [store.queues()[number].partitions for number in range(2)]
            states = [[each for each in some if each.partition.topic != "kept"] for some in states]
            found.append((states, left(store, "a", "jobs", "other")))
    assert found[0] == found[1]
    assert found[0][1], "something is left to do"


def test_they_are_left_where_they_are_unless_they_are_named(world):
    world.write(random.Random(1))
    assert world.hand_over(topics=["jobs"]).share_groups == ()
    with world.open("/target") as store:
        assert store.queues() == []


def test_they_need_a_topic(world):
    world.write(random.Random(1))
    with pytest.raises(UsageError, match="name those that share groups work on"):
        world.hand_over(topics=[SHARE_STATE_TOPIC])


def test_a_dry_run_tells_of_them_and_writes_nothing(world):
    world.write(random.Random(1))
    assert world.hand_over(dry_run=True).share_groups == ("a", "b")
    assert not world.files.is_directory("/target")


def test_a_call_that_failed_is_finished_by_the_next_and_another_changes_nothing(world):
    world.write(random.Random(1))
    world.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=f"/target/{SHARE_STATE_TOPIC}", times=None)
    with pytest.raises(StorageError):
        world.hand_over()
    world.files.heal()
    report = world.hand_over()
    assert [each.was_placed for each in report.partitions] == [True] * 3
    with world.open("/target") as store:
        states = store.queues()
        end = store[SHARE_STATE_TOPIC][0].log_end_offset
    assert len(states) == 2
    assert world.hand_over().share_groups == ("a", "b")
    with world.open("/target") as store:
        assert (store.queues(), store[SHARE_STATE_TOPIC][0].log_end_offset) == (states, end)


def test_a_group_that_has_begun_in_the_target_is_not_set_back(world):
    world.write(random.Random(1))
    world.hand_over()
    with world.open("/target") as store, store.queue("jobs", "other", group="a") as queue:
        queue.poll(0, max_jobs=1)[0].accept()
        done = store.queues()
    with pytest.raises(UsageError, match=r"share group 'a' has begun in .* its state is not replaced"):
        world.hand_over()
    with world.open("/target") as store:
        assert store.queues()[0].partitions == done[0].partitions


def test_what_is_said_of_records_that_a_crash_took_is_not_handed_over(world):
    with world.open("/source") as store:
        topic = store.create_topic("jobs")
        topic[0].extend([b"x"] * 3)
        key = ShareKey("a", topic.topic_id, 0)
        state = ShareState(0, 0, 1, (ShareBatch(2, 7, 2, 1),))
        ShareStorage(store._directory).write_snapshot(key, state)
    world.hand_over(topics=["jobs", SHARE_STATE_TOPIC])
    with world.open("/target") as store:
        ((_, found),) = ShareStorage(store._directory).load().items()
        assert found[2:] == (1, (ShareBatch(2, 2, 2, 1),))


def test_a_broker_must_know_the_group_and_its_epochs_are_kept(tmp_path):
    """As a stock broker has it: ``tests/interop``."""
    source, broker = tmp_path / "store", make_broker(tmp_path / "broker")
    with logstore.open(source) as store:
        store.create_topic("kept")[0].extend([b"x"] * 4)
        with store.queue("kept", group="a") as queue:
            queue.poll(0, max_jobs=2)[1].accept()
    topics = ["kept", SHARE_STATE_TOPIC]
    with pytest.raises(UsageError, match="the broker does not know share group 'a' in kept-0"):
        logstore.handover(source, broker, topics=topics, accept_settings=True)
    with logstore.open(broker) as store:
        key = ShareKey("a", store["kept"].topic_id, 0)
        other = ShareKey("a", uuid.uuid4(), 0)
    make_state_topic(broker)
    with logstore.open(broker) as store:
        storage = ShareStorage(store._directory)
        storage.write_snapshot(key, ShareState(7, 3, -1))
        storage.write_snapshot(other, ShareState(1, 1, 5))
    report = logstore.handover(source, broker, topics=topics, accept_settings=True)
    assert (report.is_to_broker, report.share_groups) == (True, ("a",))
    with logstore.open(broker) as store:
        found = ShareStorage(store._directory).load()
        assert found[other] == ShareState(1, 1, 5)
        assert found[key] == ShareState(7, 3, 0, (ShareBatch(0, 0, 0, 1), ShareBatch(1, 1, 2, 1)))


@pytest.mark.parametrize("held", [(), (0,), (1,), (0, 1)])
def test_states_that_are_in_several_directories_of_a_broker_are_refused(tmp_path, monkeypatch, held):
    """The partition of a state follows from their number, which the directory alone does not tell: a state
    went into one in which the broker does not look for it."""
    source, broker = tmp_path / "store", make_broker(tmp_path / "broker")
    with logstore.open(source) as store:
        store.create_topic("kept")[0].extend([b"x"] * 4)
        with store.queue("kept", group="a") as queue:
            queue.poll(0, max_jobs=1)[0].accept()
    for number in held:
        make_state_topic(broker, number)

    def read_with_states(files, path):
        told = ClusterTopic(SHARE_STATE_TOPIC, uuid.UUID(int=1), dict.fromkeys(range(3), (1,)))
        return (read_cluster_topics(files, path) or {}) | {SHARE_STATE_TOPIC: told}

    monkeypatch.setattr("logstore.exchange.place.read_cluster_topics", read_with_states)
    topics = ["kept", SHARE_STATE_TOPIC]
    elsewhere = r"'__share_group_state'.* another of .* log\.dirs.* move all partitions of the topic into one"
    with pytest.raises(UsageError, match=elsewhere):
        logstore.handover(source, broker, topics=topics, accept_settings=True)
    if held:
        with pytest.raises(UsageError, match=elsewhere):
            logstore.handover(broker, tmp_path / "target", topics=topics)


def make_state_topic(broker, number=0):
    """As the broker makes it: a directory with an id."""
    directory = broker / f"{SHARE_STATE_TOPIC}-{number}"
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    (directory / f"{0:020}.log").write_bytes(b"")
