"""Queues (share groups) of a cluster. Costs about 30 s."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.share.kept import AS_SET, Beginning, Reading, Writing
from logstore.broker.share.requests import AlterShareOffsets, DeleteShareOffsets, ShareOffsetsQuery
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange
from logstore.broker.storing.shares import ShareStorage
from logstore.errors import (
    DiskFullError,
    InvalidConfigError,
    JobLostError,
    RetriableError,
    UnknownGroupError,
    UsageError,
)
from logstore.format.messages.share_records import ShareBatch, ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.model import TopicPartition
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.sharing import asking
from logstore.replica.node.sharing.states import SHARE_STATES
from logstore.replica.node.sharing.writing import KeptThere
from tests.replica.node.cluster import Cluster, eventually

NONE = ErrorCode.NONE
TIMEOUT = 30


@pytest.fixture
def three(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


def create(cluster, name="jobs", partitions=3, **settings):
    with logstore.connect(*cluster.addresses) as connected:
        config = logstore.TopicConfig(**{"min_insync_replicas": 2, **settings})
        connected.create_topic(name, partitions=partitions, config=config)
    for each in [*(TopicPartition(name, number) for number in range(partitions)), GROUPS, SHARE_STATES]:
        cluster.wait_for_isr(each, 3)
        cluster.leader_of(each)


def send(connected, count, topic="jobs", first=0):
    with connected.producer(acks="all") as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(first, first + count)]
        for each in sent:
            each.result()


def drain(queue, count, *, accept=True):
    """So many jobs, with how often each was delivered."""
    found = []
    deadline = time.monotonic() + TIMEOUT
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} jobs have come"
        for job in queue.poll(timeout=1):
            found.append((int(job.value), job.delivery_count))
            if accept:
                job.accept()
    queue.flush()
    return found


def lead_all(cluster, node_id, partitions):
    """Let a node lead these, too."""
    others = [each for each in (1, 2, 3) if each != node_id]
    with logstore.connect(*cluster.addresses) as connected:
        connected.reassign(dict.fromkeys(partitions, (node_id, *others)))
        eventually(lambda: not connected.reassignments())
    controller = eventually(
        lambda: next((each for each in cluster.nodes.values() if each.is_controller), None)
    )
    for each in partitions:
        eventually(lambda each=each: cluster.state_of(each).replicas[0] == node_id)
    controller._broker.cluster.elect(partitions, is_unclean=False)
    for each in partitions:
        eventually(lambda each=each: each in cluster.nodes[node_id].led)


def listed(connected):
    """Nothing while a node that is gone is asked."""
    with suppress(RetriableError):
        return [(each.group, each.state) for each in connected.queues()]


def test_workers_share_the_jobs_of_all_nodes(three):
    create(three)
    assert len({three.leader_of(TopicPartition("jobs", each)).node_id for each in range(3)}) == 3
    with logstore.connect(*three.addresses) as connected:
        send(connected, 300)
        found = []
        with (
            connected.queue("jobs", group="workers") as one,
            connected.queue("jobs", group="workers") as other,
        ):
            deadline = time.monotonic() + TIMEOUT
            while len(found) < 300 and time.monotonic() < deadline:
                for queue in (one, other):
                    for job in queue.poll(timeout=0.2, max_jobs=20):
                        found.append((int(job.value), job.delivery_count))
                        job.accept()
        assert sorted(found) == [(number, 1) for number in range(300)]
        with connected.queue("jobs", group="workers") as queue:
            assert queue.poll(timeout=0.5) == []
        with connected.queue("jobs", group="others") as queue:
            assert sorted(drain(queue, 300)) == [(number, 1) for number in range(300)]


@pytest.mark.parametrize("role", ["records", "members", "states", "all"])
def test_what_was_accepted_stays_so_when_a_node_is_gone(three, role):
    """And what was not comes again, as one delivery more if it was taken before."""
    create(three, partitions=1)
    job_partition = TopicPartition("jobs", 0)
    partition = {"records": job_partition, "members": GROUPS, "states": SHARE_STATES, "all": SHARE_STATES}[
        role
    ]
    if role == "all":
        lead_all(three, three.leader_of(SHARE_STATES).node_id, [job_partition, GROUPS])
    with logstore.connect(*three.addresses) as connected:
        send(connected, 40)
        with connected.queue("jobs", group="workers", record_lock_duration_ms=2_000) as queue:
            jobs = []
            while len(jobs) < 40:
                jobs += queue.poll(timeout=1, max_jobs=40 - len(jobs))
            for job in jobs[:25]:
                job.accept()
            queue.flush()
            gone = three.leader_of(partition).node_id
            three.crash(gone)
            again = drain(queue, 15)
        assert sorted(again) == [(number, 2) for number in range(25, 40)]
        send(connected, 5, first=40)
        with connected.queue("jobs", group="workers") as queue:
            assert sorted(drain(queue, 5)) == [(number, 1) for number in range(40, 45)]
            assert queue.poll(timeout=0.5) == []


def test_an_earlier_leader_changes_nothing_any_more(three):
    create(three, partitions=1)
    states = eventually(lambda: three.leader_of(SHARE_STATES))._broker.share_states
    key = ShareKey("g", uuid.uuid4(), 0)

    def ask(pending):
        (found,) = wait_for(pending, TIMEOUT).values()
        return found

    done = ShareChange(3, (ShareBatch(3, 5, RecordState.ACKNOWLEDGED, 1),), 7)
    assert ask(states.read([Reading(key, 7)])).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(states.write([Writing(key, 0, done)])) is ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(states.begin([Beginning(key)])) is NONE
    assert ask(states.begin([Beginning(key, 17)])) is NONE, "it has begun"
    assert ask(states.read([Reading(key, 7)])).state.start_offset == AS_SET
    state_epoch = ask(states.read([Reading(key, 7)])).state.state_epoch
    assert ask(states.write([Writing(key, state_epoch - 1, done)])) is ErrorCode.FENCED_STATE_EPOCH
    assert ask(states.write([Writing(key, state_epoch, done)])) is NONE
    found = ask(states.read([Reading(key, 8)]))
    assert (found.error, found.state.start_offset, found.state.batches) == (NONE, 3, done.batches)
    late = ShareChange(4, (), 7)
    assert ask(states.write([Writing(key, state_epoch, late)])) is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(states.read([Reading(key, 7)])).error is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(states.read([Reading(key, 8)])).state.start_offset == 3
    more = key._replace(partition=1)
    assert ask(states.begin([Beginning(more)])) is NONE
    assert ask(states.read([Reading(more, 0)])).state.start_offset == 0, "of a topic that is known"
    assert ask(states.delete([key])) is NONE
    assert ask(states.read([Reading(key, 9)])).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert ask(states.begin([Beginning(key)])) is NONE
    assert ask(states.read([Reading(key, 9)])).state.state_epoch > state_epoch


def test_settings_are_known_to_all_nodes(three):
    create(three)
    with logstore.connect(*three.addresses) as connected:
        with connected.queue("jobs", group="workers", delivery_count_limit=2, record_lock_duration_ms=1_000):
            pass
        for node in three.nodes.values():
            config = eventually(
                lambda node=node: (
                    found := node._broker.group_settings.config_of("workers"),
                    found.delivery_count_limit == 2 and found,
                )[1]
            )
            assert config.record_lock_duration_ms == 1_000
        send(connected, 6)
        with connected.queue(
            "jobs", group="workers", delivery_count_limit=2, record_lock_duration_ms=1_000
        ) as queue:
            assert len(drain(queue, 6, accept=False)) == 6
            time.sleep(1.1)
            assert {count for _, count in drain(queue, 6, accept=False)} == {2}
            time.sleep(1.1)
            assert queue.poll(timeout=0.5) == [], "each was delivered twice"


def letters(cluster, partitions=1, topic="dead"):
    """What the dead-letter topic has: values, and where they were."""
    found = []
    for place in [TopicPartition(topic, number) for number in range(partitions)]:
        for record in cluster.log(cluster.leader_of(place).node_id, place).read():
            told = dict(record.headers)
            number, offset = int(told["logstore.partition"]), int(told["logstore.offset"])
            found.append((record.value, (told["logstore.topic"].decode(), number, offset)))
    return found


def test_failed_jobs_go_to_the_dead_letter_topic_whichever_nodes_lead_it(three):
    """Also when a node dies that leads some of either."""
    create(three)
    create(three, "other")
    create(three, "dead", errors_deadletterqueue_group_enable=True)
    with logstore.connect(*three.addresses) as connected:
        with connected.producer(acks="all") as producer:
            for number in range(60):
                producer.send("jobs", b"%d" % number, key=b"%d" % (number // 3))
        with pytest.raises(InvalidConfigError, match="'other' does not take dead letters; set its errors"):
            connected.queue("jobs", group="g", dead_letter_topic="other")
        with pytest.raises(InvalidConfigError, match="there is no topic 'nowhere' for dead letters"):
            connected.queue("jobs", group="g", dead_letter_topic="nowhere")
        seen = {}
        with connected.queue(
            "jobs", group="g", dead_letter_topic="dead", delivery_count_limit=4, record_lock_duration_ms=2_000
        ) as queue:
            deadline = time.monotonic() + 2 * TIMEOUT
            while len({where for _, where in letters(three, 3)}) < 40:
                assert time.monotonic() < deadline, f"{len(letters(three, 3))} letters are there"
                for job in queue.poll(timeout=0.5):
                    number = int(job.value)
                    seen[*job.partition, job.offset] = number
                    with suppress(RetriableError, JobLostError):  # while another node is about to lead
                        (job.accept, job.reject, job.release)[number % 3]()
                if len(seen) > 20 and 3 in three.nodes:
                    three.crash(3)
    assert set(letters(three, 3)) == {(b"%d" % number, place) for place, number in seen.items() if number % 3}


def test_a_job_that_the_dead_letter_topic_cannot_take_holds_up_no_others(three, caplog):
    """Also where there are more than are sent at a time."""
    create(three)
    create(three, "dead", partitions=2, errors_deadletterqueue_group_enable=True, max_message_bytes=4_000)
    with logstore.connect(*three.addresses) as connected:
        with connected.producer(acks="all") as producer:
            for number in range(400):
                large = bytes(9_000) if number == 7 else b""
                producer.send("jobs", b"%d" % number + large, key=b"%d" % number)
        with connected.queue("jobs", group="g", dead_letter_topic="dead") as queue:
            count, deadline = 0, time.monotonic() + TIMEOUT
            while count < 400 and time.monotonic() < deadline:
                for job in queue.poll(timeout=1):
                    count += 1
                    job.reject()
            queue.flush()
            eventually(lambda: len({where for _, where in letters(three, 2)}) == 399)
            eventually(lambda: "a failed job could not go to topic 'dead'" in caplog.text)
    found = {int(value) for value, _ in letters(three, 2)}
    assert found == set(range(400)) - {7}


def test_jobs_wait_while_nobody_leads_the_dead_letter_topic(three, caplog):
    create(three, partitions=1)
    with logstore.connect(*three.addresses) as connected:
        config = logstore.TopicConfig(errors_deadletterqueue_group_enable=True)
        connected.create_topic("dead", config=config, replication_factor=1)
        place = TopicPartition("dead", 0)
        three.wait_for_isr(place, 1)
        gone = three.leader_of(place).node_id
        others = [each for each in (1, 2, 3) if each != gone]
        lead_all(three, others[0], [TopicPartition("jobs", 0), GROUPS, SHARE_STATES])
        send(connected, 3)
        with connected.queue("jobs", group="g", dead_letter_topic="dead") as queue:
            jobs = queue.poll(timeout=5)
            three.stop(gone)
            for job in jobs:
                job.reject()
            eventually(lambda: "a failed job could not go to topic 'dead'" in caplog.text)
            assert queue.poll(timeout=0.2) == []
        three.start(gone)
        eventually(lambda: len(letters(three)) == 3)


def test_new_partitions_are_read_from_their_beginning(three):
    create(three, partitions=1)
    with logstore.connect(*three.addresses) as connected:
        send(connected, 3)
        with connected.queue("jobs", group="late", auto_offset_reset="latest") as queue:
            assert queue.poll(timeout=0.5) == []
            connected.add_partitions("jobs", 2)
            three.leader_of(TopicPartition("jobs", 1))
            with connected.producer(acks="all") as producer:
                producer.send("jobs", b"7", partition=1).result()
            assert drain(queue, 1) == [(7, 1)]


def test_queues_are_listed_and_deleted(three):
    create(three)
    with logstore.connect(*three.addresses) as connected:
        assert connected.queues() == []
        send(connected, 10)
        with connected.queue("jobs", group="workers") as queue:
            drain(queue, 10)
            assert listed(connected) == [("workers", "Stable")]
            with pytest.raises(UsageError, match="has workers"):
                connected.delete_queue("workers")
        eventually(lambda: listed(connected) == [("workers", "Empty")])
        three.crash(three.leader_of(GROUPS).node_id)
        eventually(lambda: listed(connected) == [("workers", "Empty")])
        connected.delete_queue("workers")
        assert connected.queues() == []
        with pytest.raises(UnknownGroupError):
            connected.delete_queue("workers")
        with connected.queue("jobs", group="workers") as queue:
            assert sorted(drain(queue, 10)) == [(number, 1) for number in range(10)]


def test_what_was_done_of_a_deleted_topic_is_forgotten(three):
    create(three)
    create(three, "others")
    with logstore.connect(*three.addresses) as connected:
        send(connected, 10)
        with connected.queue("jobs", group="workers") as queue:
            drain(queue, 10)
        with connected.queue("others", group="others"):
            pass
        connected.delete_topic("jobs")
        eventually(lambda: listed(connected) == [("others", "Empty")])
        create(three)
        send(connected, 10)
        with connected.queue("jobs", group="workers") as queue:
            assert sorted(drain(queue, 10)) == [(number, 1) for number in range(10)]


def test_a_nodes_own_store_says_where_queues_are(three):
    create(three)
    with pytest.raises(UsageError, match=r"logstore\.connect\(\)"):
        three.stores[1].queue("jobs", group="g")


def test_a_store_takes_its_queues_into_a_cluster(tmp_path):
    with logstore.open(tmp_path / "node-1") as store:
        store.create_topic("jobs")
        store["jobs"].extend([b"%d" % number for number in range(10)])
        with store.queue("jobs", group="workers") as queue:
            for job in queue.poll(max_jobs=6):
                job.accept()
    cluster = Cluster(tmp_path, 2)
    try:
        cluster.leader_of(TopicPartition("jobs", 0))
        cluster.leader_of(TopicPartition(SHARE_STATE_TOPIC, 0))
        with (
            logstore.connect(*cluster.addresses) as connected,
            connected.queue("jobs", group="workers") as queue,
        ):
            assert sorted(drain(queue, 4)) == [(number, 1) for number in range(6, 10)]
    finally:
        cluster.close()


def test_workers_go_on_while_nodes_come_and_go(three):
    """Each job is done, and none that was accepted comes again."""
    create(three)
    count = 1_500
    accepted, unknown, doubled, has_ended = set(), set(), [], threading.Event()

    def work():
        with (
            logstore.connect(*addresses) as mine,
            mine.queue("jobs", group="workers", record_lock_duration_ms=2_000) as queue,
        ):
            numbers = []
            while not has_ended.is_set():
                try:
                    jobs = queue.poll(timeout=0.2, max_jobs=20)
                    numbers = [int(job.value) for job in jobs]
                    doubled.extend(number for number in numbers if number in accepted)
                    for job in jobs:
                        job.accept()
                    queue.flush()
                    accepted.update(numbers)
                except (JobLostError, RetriableError):  # what became of some is not known
                    unknown.update(numbers)

    addresses = three.addresses
    threads = [threading.Thread(target=work) for _ in range(2)]
    for each in threads:
        each.start()
    partitions = [TopicPartition("jobs", number) for number in range(3)]
    try:
        with logstore.connect(*addresses) as connected:
            for node_id in (1, 2, 3):
                send(connected, count // 3, first=(node_id - 1) * count // 3)
                three.crash(node_id)
                time.sleep(0.5)
                three.start(node_id, listener=addresses[node_id - 1])
                for each in [*partitions, GROUPS, SHARE_STATES]:
                    three.wait_for_isr(each, 3)
            eventually(lambda: len(accepted | unknown) == count, 60)
            eventually(lambda: all(is_done(three, each) for each in partitions), 60)
    finally:
        has_ended.set()
        for each in threads:
            each.join()
    assert not doubled


def is_done(cluster, partition):
    """Whether the only group has done all records."""
    taken = cluster.leader_of(partition)._broker._led_shares._taken.values()
    (found,) = [each.held.describe() for each in taken if each.held.partition == partition] or [None]
    return found is not None and found.start_offset == found.high_watermark


def test_work_goes_on_when_leaders_hand_over(three):
    """Locks are lost with them: warnings tell, and the jobs come again."""
    create(three)
    done, reports, queues = set(), [], []

    def work(connected):
        with connected.queue("jobs", group="workers", record_lock_duration_ms=4_000) as queue:
            queues.append(queue)
            reports.append(queue.work(lambda job: done.add(int(job.value))))

    addresses = three.addresses
    with logstore.connect(*addresses) as connected:
        threads = [threading.Thread(target=work, args=(connected,)) for _ in range(2)]
        for each in threads:
            each.start()
        for node_id in (1, 2, 3):
            send(connected, 200, first=(node_id - 1) * 200)
            three.stop(node_id)
            three.start(node_id, listener=addresses[node_id - 1])
            for number in range(3):
                three.wait_for_isr(TopicPartition("jobs", number), 3)
        eventually(lambda: len(done) == 600, 60)
        for each in queues:
            each.stop()
        for each in threads:
            each.join(TIMEOUT)
    assert len(reports) == 2


def test_a_partition_without_a_leader_holds_up_nothing_else(three):
    with logstore.connect(*three.addresses) as connected:
        connected.create_topic("jobs", partitions=3, replication_factor=1)
        for number in range(3):
            three.leader_of(TopicPartition("jobs", number))
        with connected.producer() as producer:
            for number in range(30):
                producer.send("jobs", b"%d" % number, partition=number % 3)
        three.stop(connected.leaders("jobs")[0])
        began = time.monotonic()
        with connected.queue("jobs", group="workers") as queue:
            found = set()
            while len(found) < 20:
                polled = time.monotonic()
                for job in queue.poll(timeout=0.5):
                    found.add(int(job.value))
                    job.accept()
                assert time.monotonic() - polled < 10
                assert time.monotonic() - began < TIMEOUT
            queue.flush()
        assert time.monotonic() - began < 15, "nor the end"


def test_a_poll_ends_in_its_time_while_nobody_coordinates(three):
    with logstore.connect(*three.addresses) as connected:
        connected.create_topic("jobs", partitions=1)
        goal = {("__consumer_offsets", 0): (2,), ("jobs", 0): (1, 3), ("__share_group_state", 0): (1, 3)}
        connected.reassign(goal)
        eventually(lambda: not connected.reassignments())
        eventually(lambda: TopicPartition("jobs", 0) not in three.nodes[2].led)
        send(connected, 30)
        with connected.queue("jobs", group="workers", metadata_max_age_ms=100) as queue:
            three.stop(2)
            time.sleep(0.2)
            for _ in range(3):
                began = time.monotonic()
                for job in queue.poll(timeout=0.5, max_jobs=5):
                    job.accept()
                assert time.monotonic() - began < 10
            with pytest.raises(RetriableError):
                logstore.connect(three.nodes[1].address, request_timeout_ms=1_000).queues()
            three.start(2)
            assert len(drain(queue, 15)) == 15


def test_a_worker_that_joins_hears_that_the_disk_for_states_is_full(three, monkeypatch, caplog):
    """And the node says it once, however often the worker asks."""

    def refuse(*_):
        raise DiskFullError("[Errno 28] writing: No space left on device")

    create(three, partitions=1)
    why = "__share_group_state-0 does not take now how far the group is: KAFKA_STORAGE_ERROR at its leader"
    with logstore.connect(*three.addresses, request_timeout_ms=1_000) as connected:
        with monkeypatch.context() as full:
            full.setattr(ShareStorage, "write", refuse)
            full.setattr(asking, "PATIENCE_SECONDS", 0.5)  # a node's, of the three that the worker has
            with pytest.raises(RetriableError, match=why):
                connected.queue("jobs", group="g", request_timeout_ms=1_000)
        assert sum("could not be stored" in each.message for each in caplog.records) == 1
        connected.queue("jobs", group="g").close()


def test_settings_are_those_of_the_first_worker(three):
    create(three)
    with logstore.connect(*three.addresses) as connected:
        send(connected, 30)
        with connected.queue("jobs", group="g", record_lock_duration_ms=20_000) as first:
            assert first.poll(timeout=5, max_jobs=1)
            with connected.queue("jobs", group="g", record_lock_duration_ms=3_000) as second:
                (job, *_) = second.poll(timeout=5, max_jobs=1)
                assert job.seconds_left > 15


def test_who_holds_a_partition_hears_that_it_is_lost_before_a_change_is_dropped_for_that():
    """Else a worker whose change is dropped could hear, in between, that it was stored."""
    key = ShareKey("workers", uuid.uuid4(), 0)
    kept = KeptThere(None, key, 1, 1)
    was_lost = []
    kept.on_lost = lambda: was_lost.append(kept.is_lost)
    kept.lose()
    kept.lose()
    assert was_lost == [False]
    assert kept.is_lost


def test_what_nodes_tell_of_queues_by_metrics(three):
    """All nodes together say what a store that is alone says."""
    create(three, partitions=2)
    with logstore.connect(*three.addresses) as connected:
        send(connected, 10)
        with connected.queue("jobs", group="w", auto_offset_reset="earliest") as queue:
            taken = []
            while len(taken) < 4:
                taken += queue.poll(timeout=1, max_jobs=4 - len(taken))

            def told(name):
                found = {}
                for number, store in three.stores.items():
                    metrics = store.metrics()
                    assert not metrics.incomplete
                    for labels, value in metrics[f"logstore_queue_{name}"].items():
                        assert labels not in found, f"node {number} tells again of {labels}"
                        found[labels] = value
                return found

            assert told("workers") == {("w",): 1}
            eventually(lambda: set(told("taken_jobs")) == {("w", "jobs", 0), ("w", "jobs", 1)})
            assert sum(told("taken_jobs").values()) == 4
            assert sum(told("waiting_jobs").values()) == 6
            for job in taken:
                job.accept()
            queue.flush()
            assert sum(told("taken_jobs").values()) == 0
        eventually(lambda: told("workers") == {("w",): 0})
        assert sum(told("waiting_jobs").values()) == 6


# How far groups are


class HowFar:
    """What administrators ask and say of a group, through one node."""

    def __init__(self, connected, group="g"):
        self.broker, self.group = connected._broker, group

    def ask(self, *partitions):
        """Start offset and lag in each partition, or the error."""
        query = ShareOffsetsQuery(self.group, partitions or None)
        found = wait_for(self.broker.share_group_offsets(query), TIMEOUT)
        assert found.error is NONE
        return {
            each.partition.partition: each.error or (each.start_offset, each.lag) for each in found.partitions
        }

    def set(self, **offsets):
        places = tuple((TopicPartition(name[:-1], int(name[-1])), offset) for name, offset in offsets.items())
        return wait_for(self.broker.alter_share_group_offsets(AlterShareOffsets(self.group, places)), TIMEOUT)

    def forget(self, *topics):
        return wait_for(
            self.broker.delete_share_group_offsets(DeleteShareOffsets(self.group, topics)), TIMEOUT
        )


def test_how_far_a_group_is_is_asked_and_set(three):
    """3 s. Each partition is led by another node."""
    create(three)
    with logstore.connect(*three.addresses) as connected:
        of_group = HowFar(connected)
        with connected.producer(acks="all") as producer:
            for number in range(30):
                producer.send("jobs", b"%d" % number, partition=number % 3)
        assert of_group.forget("jobs").error is ErrorCode.GROUP_ID_NOT_FOUND
        assert of_group.set(jobs0=4).errors == {TopicPartition("jobs", 0): NONE}  # where it begins
        with connected.queue("jobs", group="g") as queue:
            drain(queue, 26)
            assert of_group.ask() == dict.fromkeys(range(3), (10, 0))
            assert of_group.set(jobs0=0).error is ErrorCode.NON_EMPTY_GROUP
            assert of_group.forget("jobs").error is ErrorCode.NON_EMPTY_GROUP
        result = of_group.set(jobs0=4, jobs1=11, jobs2=10, jobs9=0, none0=0)
        assert (result.error, {str(each): code.name for each, code in result.errors.items()}) == (
            NONE,
            {
                "jobs-0": "NONE",
                "jobs-1": "INVALID_REQUEST",
                "jobs-2": "NONE",
                "jobs-9": "UNKNOWN_TOPIC_OR_PARTITION",
                "none-0": "UNKNOWN_TOPIC_OR_PARTITION",
            },
        )
        assert of_group.ask() == {0: (4, 6), 1: (10, 0), 2: (10, 0)}
        (status,) = connected.queues()
        assert (status.state, status.waiting_count, len(status.partitions)) == ("Empty", 6, 3)
        with connected.queue("jobs", group="g") as queue:
            again = drain(queue, 6)
            assert sorted(again) == [(3 * offset, 1) for offset in range(4, 10)]
        assert of_group.ask() == dict.fromkeys(range(3), (10, 0))
        result = of_group.forget("jobs", "none")
        assert result.errors == {"jobs": NONE, "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        with connected.queue("jobs", group="g") as queue:
            assert sorted(drain(queue, 30)) == [(number, 1) for number in range(30)]


def test_how_far_a_group_is_survives_the_nodes_that_know(three):
    """3 s."""
    create(three, partitions=1)
    with logstore.connect(*three.addresses) as connected:
        of_group = HowFar(connected)
        send(connected, 10)
        with connected.queue("jobs", group="g") as queue:
            drain(queue, 10)
        assert of_group.set(jobs0=7).error is NONE
        three.crash(three.leader_of(SHARE_STATES).node_id)
        eventually(lambda: of_group.ask() == {0: (7, 3)})
        with connected.queue("jobs", group="g") as queue:
            assert sorted(drain(queue, 3)) == [(7, 1), (8, 1), (9, 1)]


def test_jobs_that_took_the_place_of_lost_ones_are_given(three):
    """An unclean election has cost jobs that were done. Those that had come in their place before a worker
    asked counted as done. 4 s."""
    jobs = TopicPartition("jobs", 0)
    create(three, partitions=1, min_insync_replicas=1, unclean_leader_election_enable=True)
    with logstore.connect(*three.addresses) as connected:
        connected.reassign({jobs: (1, 2)})
        eventually(lambda: not connected.reassignments())
        leader = eventually(lambda: three.leader_of(jobs)).node_id
        send(connected, 3)
        with connected.queue("jobs", group="g") as queue:
            assert drain(queue, 3) == [(number, 1) for number in range(3)]
            three.stop(3 - leader)
            three.wait_for_isr(jobs, 1)
            three.wait_for_isr(SHARE_STATES, 2)
            send(connected, 3)
            assert drain(queue, 3) == [(number, 1) for number in range(3)]
    three.stop(leader)
    three.start(3 - leader)
    eventually(lambda: three.leader_of(jobs).node_id == 3 - leader)
    with logstore.connect(*three.addresses) as connected:
        send(connected, 5)
        with connected.queue("jobs", group="g") as queue:
            assert drain(queue, 5) == [(number, 1) for number in range(5)]
            assert queue.poll(timeout=0.2) == []
