"""Partitions move to other nodes. Costs about 30 s."""

from __future__ import annotations

import threading
import time

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.errors import DiskFullError, UnknownTopicError, UsageError
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import alter_partition_reassignments as altering
from tests.replica.node.cluster import Cluster, eventually
from tests.replica.node.test_node import read, send
from tests.wire.raw_client import RawClient

T = TopicPartition("t", 0)


@pytest.fixture
def four(tmp_path):
    cluster = Cluster(tmp_path, 4)
    yield cluster
    cluster.close()


def create(cluster, replication_factor, **config):
    with logstore.connect(*cluster.addresses) as connected:
        settings = logstore.TopicConfig(**config)
        connected.create_topic("t", replication_factor=replication_factor, config=settings)
    cluster.leader_of(T)
    cluster.wait_for_isr(T, replication_factor)


def controller(cluster):
    return eventually(lambda: next((each for each in cluster.nodes.values() if each.is_controller), None))


def ask(cluster, goals, *, may_change_factor=True):
    """The error of each partition, asked at the controller as clients do."""
    administering = controller(cluster)._broker.cluster
    found = administering.reassign(goals, may_change_factor=may_change_factor)
    return {each: moved.error.name for each, moved in found.items()}


def place(cluster, goal, partition=T):
    with logstore.connect(*cluster.addresses) as connected:
        connected.reassign({partition: goal})


def is_at(cluster, goal, partition=T):
    state = cluster.state_of(partition)
    return state.replicas == goal and not state.adding and len(state.isr) == len(goal)


def holders(cluster, partition=T):
    """The nodes whose directories have the partition."""
    found = set()
    for node_id, store in cluster.stores.items():
        entry = store.directory.catalogue.get(partition.topic)
        if entry is not None and entry.holds(partition.partition):
            found.add(node_id)
    return found


def files(cluster, partition=T):
    name = f"{partition.topic}-{partition.partition}"
    return {each for each in range(1, 5) if (cluster._path / f"node-{each}" / name).exists()}


def test_a_partition_goes_where_it_is_sent(four):
    create(four, 2, min_insync_replicas=2)
    before = four.state_of(T).replicas
    send(four, [b"%d" % number for number in range(1_000)])
    goal = tuple(each for each in range(1, 5) if each not in before)
    place(four, goal)
    eventually(lambda: is_at(four, goal))
    eventually(lambda: holders(four) == set(goal) == files(four))
    assert four.leader_of(T).node_id in goal
    send(four, [b"last"])
    assert read(four) == [*(b"%d" % number for number in range(1_000)), b"last"]
    one, other = (four.log(each, T) for each in goal)
    assert one.fetch(0, max_bytes=1 << 20).data == other.fetch(0, max_bytes=1 << 20).data
    assert controller(four)._broker.cluster.moving() == {}


@pytest.mark.parametrize("goal", [(1, 2, 3, 4), (4,), (4, 3, 2), (2, 1, 3)], ids=str)
def test_under_load(four, goal):
    """Nothing is lost or doubled, whether there are more or fewer replicas, or others."""
    create(four, 3, min_insync_replicas=2)
    place(four, (1, 2, 3))
    eventually(lambda: is_at(four, (1, 2, 3)))
    sent, has_ended = [], threading.Event()
    with logstore.connect(*four.addresses) as connected, connected.producer(acks="all") as producer:

        def produce():
            while not has_ended.is_set():
                value = b"%d" % len(sent)
                producer.send("t", value).result()
                sent.append(value)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            eventually(lambda: len(sent) > 20)
            place(four, goal)
            eventually(lambda: is_at(four, goal))
            so_far = len(sent)
            eventually(lambda: len(sent) > so_far + 20)
        finally:
            has_ended.set()
            thread.join()
    assert read(four) == sent
    eventually(lambda: holders(four) == set(goal) == files(four))


def test_it_is_called_off_while_the_new_node_cannot_catch_up(four):
    create(four, 2)
    send(four, [b"1"])
    before = four.state_of(T).replicas
    new, idle = (each for each in range(1, 5) if each not in before)
    four.let_follow_nobody(new)
    place(four, (new, before[0]))
    moving = controller(four)._broker.cluster.moving()
    assert {each: set(move.replicas) for each, move in moving.items()} == {T: {new, *before}}
    assert (moving[T].adding, moving[T].removing) == ((new,), (before[1],))
    send(four, [b"2"])
    assert four.state_of(T).replicas == (new, before[0], before[1]), "the new one cannot catch up"
    place(four, None)
    eventually(lambda: set(four.state_of(T).replicas) == set(before))
    assert ask(four, {T: None}) == {T: "NO_REASSIGNMENT_IN_PROGRESS"}
    eventually(lambda: holders(four) == set(before) == files(four))
    assert read(four) == [b"1", b"2"]
    assert idle not in four.state_of(T).replicas


def test_a_node_that_was_away_deletes_what_has_left_it(four):
    create(four, 2)
    send(four, [b"1"])
    one, other = four.state_of(T).replicas
    goal = tuple(each for each in range(1, 5) if each not in (one, other))
    four.stop(other)
    place(four, goal)
    eventually(lambda: is_at(four, goal))
    assert other in files(four)
    four.start(other)
    eventually(lambda: holders(four) == set(goal) == files(four))
    place(four, (other, *goal))
    eventually(lambda: is_at(four, (other, *goal)))
    send(four, [b"2"])
    assert read(four) == [b"1", b"2"]


def test_the_controller_goes_in_the_middle(four):
    create(four, 2)
    send(four, [b"1"])
    before = four.state_of(T).replicas
    idle = [each for each in range(1, 5) if each not in before]
    first = controller(four).node_id
    new = next(each for each in idle if each != first)
    goal = (new, next(each for each in before if each != first))
    four.let_follow_nobody(new)
    place(four, goal)
    four.crash(first)
    assert controller(four).node_id != first
    four.stop(new)
    four.start(new)
    eventually(lambda: is_at(four, goal), 40)
    four.start(first)
    eventually(lambda: holders(four) == set(goal) == files(four))
    assert read(four) == [b"1"]


def test_a_topic_grows_and_goes_while_it_moves(four):
    create(four, 2)
    before = four.state_of(T).replicas
    new = next(each for each in range(1, 5) if each not in before)
    four.let_follow_nobody(new)
    place(four, (new, before[0]))
    with logstore.connect(*four.addresses) as connected:
        connected.add_partitions("t", 3)
        states = [four.state_of(TopicPartition("t", each)) for each in (1, 2)]
        assert {len(each.replicas) for each in states} == {2}, "as many as it will have"
        connected.delete_topic("t")
        eventually(lambda: "t" not in four.view.topics and not connected.reassignments())
    eventually(lambda: not any("t" in store for store in four.stores.values()))


def test_many_partitions_move_at_once(four):
    count = 100
    with logstore.connect(*four.addresses) as connected:
        connected.create_topic("many", partitions=count, replication_factor=1)
        partitions = [TopicPartition("many", number) for number in range(count)]
        eventually(lambda: all(four.view.partitions[each].leader for each in partitions))
        with connected.producer(acks="all") as producer:
            for each in partitions:
                producer.send("many", b"%d" % each.partition, partition=each.partition)
        goal = {each: (each.partition % 4 + 1, (each.partition + 1) % 4 + 1) for each in partitions}
        connected.reassign(goal)
        eventually(lambda: not connected.reassignments(), 60)
    assert all(four.state_of(each).replicas == goal[each] for each in partitions)
    assert sorted(map(int, read(four, "many"))) == list(range(count))


def test_what_cannot_be(four):
    create(four, 2)
    replicas = four.state_of(T).replicas
    nowhere = TopicPartition("t", 9)
    assert ask(four, {T: (1, 1), nowhere: (1,)}) == {
        T: "INVALID_REPLICA_ASSIGNMENT",
        nowhere: "UNKNOWN_TOPIC_OR_PARTITION",
    }
    for wrong in ((), (7,), (-1, 1)):
        assert ask(four, {T: wrong}) == {T: "INVALID_REPLICA_ASSIGNMENT"}
    assert ask(four, {T: (1, 2, 3)}, may_change_factor=False) == {T: "INVALID_REPLICATION_FACTOR"}
    assert ask(four, {T: replicas}) == {T: "NONE"}
    assert four.state_of(T).replicas == replicas
    other = next(each for each in four.nodes.values() if not each.is_controller)
    assert other._broker.cluster.reassign({T: (1,)}, may_change_factor=True) is None


def test_a_client_says_where_to(four):
    create(four, 2)
    replicas = four.state_of(T).replicas
    new = next(each for each in range(1, 5) if each not in replicas)
    four.let_follow_nobody(new)
    with logstore.connect(*four.addresses) as connected:
        connected.reassign({("t", 0): [new]})
        moving = connected.reassignments()
        assert moving == {T: ((new, *replicas), (new,), replicas)}
        assert moving[T].adding == (new,)
        connected.reassign({T: None})
        assert not connected.reassignments()
        with pytest.raises(UsageError, match="t-0: it does not move"):
            connected.reassign({T: None})
        with pytest.raises(UsageError, match="t-0: no living node has the number 9"):
            connected.reassign({T: (1, 9)})
        with pytest.raises(UnknownTopicError, match="t-7: there is no such partition"):
            connected.reassign({("t", 7): (1,)})
        for wrong in ((), "12", 3, (1.5,)):
            with pytest.raises(UsageError, match="no ids of nodes"):
                connected.reassign({T: wrong})
        with pytest.raises(UsageError, match="is no partition"):
            connected.reassign({"t": (1,)})


def test_groups_and_transactions_move_along(four):
    """Their topics are moved like others, and who coordinates them then goes on."""
    create(four, 3)
    offsets, transactions = TopicPartition("__consumer_offsets", 0), TopicPartition("__transaction_state", 0)
    with logstore.connect(*four.addresses) as connected:
        with connected.producer(transactional_id="x") as producer:
            with producer.transaction():
                producer.send("t", b"1")
            with connected.consumer("t", group="g", auto_offset_reset="earliest") as consumer:
                assert [each.value for each in consumer.poll(5)] == [b"1"]
                consumer.commit()
            for each in (offsets, transactions):
                state = four.state_of(each)
                new = next(one for one in range(1, 5) if one not in state.replicas)
                goal = (new, *(one for one in state.replicas if one != state.leader.node_id))
                place(four, goal, each)
                eventually(lambda each=each, goal=goal: is_at(four, goal, each))
            with producer.transaction():
                producer.send("t", b"2")
        with connected.consumer("t", group="g", isolation=logstore.Isolation.COMMITTED) as consumer:
            assert [each.value for each in consumer.poll(10)] == [b"2"]


def test_transactions_go_on_while_their_coordinator_moves(four):
    """Each move may meet a transaction that is about to end."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    create(four, 2)
    state = TopicPartition("__transaction_state", 0)
    errors, count, is_over = [], [], threading.Event()

    def produce(name):
        settings = {"bootstrap.servers": ",".join(four.addresses), "transactional.id": name, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        while not is_over.is_set():
            try:
                producer.begin_transaction()
                producer.produce("t", name)
                producer.commit_transaction(30)
                count.append(name)
            except confluent_kafka.KafkaException as error:
                errors.append(str(error))
                return

    threads = [threading.Thread(target=produce, args=(f"x{number}",)) for number in range(3)]
    for each in threads:
        each.start()
    try:
        for number in range(6):
            goal = (number % 4 + 1, (number + 1) % 4 + 1)
            place(four, goal, state)
            eventually(lambda goal=goal: is_at(four, goal, state))
            before = len(count)
            eventually(lambda before=before: errors or len(count) > before + 5, 60)
    finally:
        is_over.set()
        for each in threads:
            each.join(60)
    assert not errors
    assert len(read(four)) == len(count)


@pytest.mark.parametrize(
    ("number", "goal", "error"),
    [
        (0, (0,), "NONE"),
        (0, (0, 1), "INVALID_REPLICA_ASSIGNMENT"),
        (0, None, "NO_REASSIGNMENT_IN_PROGRESS"),
        (1, (0,), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_a_store_that_is_alone(tmp_path, number, goal, error):
    with logstore.open(tmp_path) as store, store.listen() as listener:
        store.create_topic("t")
        wanted = altering.Topic("t", (altering.Partition(number, goal),))
        with RawClient(listener.address) as client:
            request = altering.AlterPartitionReassignmentsRequest(topics=(wanted,))
            (topic,) = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request).responses
    assert [ErrorCode(each.error_code).name for each in topic.partitions] == [error]


def test_what_was_made_can_be_moved_at_once(cluster):
    """By the controller that has made it."""
    create(cluster, 3)
    first = controller(cluster)
    two = (1, 2)
    with logstore.connect(first.address) as connected:
        for number in range(10):
            name = f"new-{number}"
            connected.create_topic(name, replication_factor=1)
            assert ask(cluster, {TopicPartition(name, 0): two}) == {(name, 0): "NONE"}
            connected.add_partitions(name, 2)
            assert ask(cluster, {TopicPartition(name, 1): two}) == {(name, 1): "NONE"}
            connected.delete_topic(name)
            gone = ask(cluster, {TopicPartition(name, 0): two})
            assert gone == {(name, 0): "UNKNOWN_TOPIC_OR_PARTITION"}


def test_who_catches_up_is_held_back_and_nobody_else(four):
    """A node that takes 200 kB a second copies 1 MB in some seconds; its replica that is in sync goes on."""
    create(four, 2)
    send(four, [bytes(10_000)] * 100)
    before = four.state_of(T).replicas
    new = next(each for each in range(1, 5) if each not in before)
    four.stop(new)
    four.start(new, follower_replication_throttled_rate=200_000)
    with logstore.connect(*four.addresses) as connected:
        connected.create_topic("live", replication_factor=4)
    live = TopicPartition("live", 0)
    four.wait_for_isr(live, 4)
    began = time.monotonic()
    place(four, (new, *before))
    slowest = 0.0
    while not is_at(four, (new, *before)):
        at = time.monotonic()
        send(four, [b"now"], "live")
        slowest = max(slowest, time.monotonic() - at)
    assert time.monotonic() - began > 2, "1 MB at 200 kB a second, of which a window may come at once"
    assert slowest < 2
    assert len(four.state_of(live).isr) == 4


def test_what_a_full_disk_did_not_delete_goes_when_there_is_room(cluster, monkeypatch):
    create(cluster, 2)
    other = cluster.state_of(T).replicas[1]
    goal = tuple(each for each in cluster.nodes if each != other)
    refused = []

    def refuse(*_):
        refused.append(True)
        raise DiskFullError("[Errno 28] writing: No space left on device")

    with monkeypatch.context() as full:
        full.setattr(cluster.stores[other].directory, "delete_topic", refuse)
        place(cluster, goal)
        eventually(lambda: refused and is_at(cluster, goal))
        assert other in holders(cluster)
    eventually(lambda: holders(cluster) == set(goal))
