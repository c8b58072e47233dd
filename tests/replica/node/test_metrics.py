"""What those see who watch over a cluster. 2 s."""

import logstore
from logstore.metrics.declared import TABLE
from logstore.model import TopicPartition
from tests.replica.node.cluster import eventually
from tests.replica.node.test_node import create, send

OF_CLUSTERS = {each.name for each in TABLE if each.name.startswith("logstore_replica_")}

IN_THREE = 6 + 3
"""Partitions with three replicas: of the test's topic, and those of groups, transactions and queues."""


def total(cluster, name):
    """Of all nodes that run."""
    return sum(store.metrics().total(f"logstore_replica_{name}") for store in cluster.stores.values())


def test_nodes_tell_of_leaders_and_of_what_lacks_replicas(cluster):
    create(cluster, partitions=6, min_insync_replicas=2)
    for number in range(6):
        cluster.wait_for_isr(TopicPartition("t", number), 3)
    with logstore.connect(*cluster.addresses) as remote:
        remote.create_topic("alone", partitions=3, replication_factor=1)
    eventually(lambda: total(cluster, "led_partitions") == IN_THREE + 3)
    assert total(cluster, "living_nodes") == 3 * 3
    assert total(cluster, "is_controller") == 1
    for name in ("offline_partitions", "under_replicated_partitions", "under_min_isr_partitions"):
        assert total(cluster, name) == 0
    eventually(lambda: total(cluster, "follower_lag") == 0)

    gone = next(each for each in cluster.nodes if not cluster.nodes[each].is_controller)
    cluster.stop(gone)
    eventually(lambda: total(cluster, "led_partitions") == IN_THREE + 2)
    eventually(lambda: total(cluster, "under_replicated_partitions") == IN_THREE)
    assert total(cluster, "offline_partitions") == 2 * 1, "each node knows of it"
    assert total(cluster, "living_nodes") == 2 * 2
    assert total(cluster, "under_min_isr_partitions") == 0
    send(cluster, [b"v"] * 30)
    behind = {node: lag for s in cluster.stores.values() for (node,), lag in lags(s) if lag}
    assert set(behind) == {gone}

    cluster.stop(next(each for each in cluster.nodes if not cluster.nodes[each].is_controller))
    eventually(lambda: total(cluster, "under_min_isr_partitions") == 6)
    cluster.start(gone)
    eventually(lambda: total(cluster, "under_min_isr_partitions") == 0)
    eventually(lambda: not lags_of(cluster, gone))


def lags(store):
    return store.metrics()["logstore_replica_follower_lag"].items()


def lags_of(cluster, node_id):
    return [lag for s in cluster.stores.values() for (node,), lag in lags(s) if node == node_id and lag]


def test_only_nodes_have_them(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.require_topic("t")
        with store.producer() as producer:
            producer.send("t", b"v")
        assert not any(store.metrics()[name] for name in OF_CLUSTERS)
