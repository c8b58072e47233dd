"""Kafka's own share consumer on our listener and on a cluster of nodes: it takes, accepts, releases and
rejects, and shares a partition with another and with a worker of ours."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import logstore
from logstore.model import TopicPartition
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.sharing.states import SHARE_STATES
from logstore.testing import kafka
from tests.interop.kafka import require_kafka, run_program, tool_jars
from tests.interop.test_admin_tools import run
from tests.replica.node.cluster import Cluster
from tests.rotation import rotating

pytestmark = pytest.mark.interop


@pytest.fixture(params=rotating(["a listener", "a cluster"], 2))
def address(request, tmp_path):
    require_kafka()
    if request.param == "a listener":
        with kafka() as made, logstore.connect(str(made)) as store:
            store.create_topic("jobs", partitions=1)
            yield str(made)
        return
    cluster = Cluster(tmp_path)
    with logstore.connect(*cluster.addresses) as store:
        store.create_topic("jobs", partitions=1)
        for each in (TopicPartition("jobs", 0), GROUPS, SHARE_STATES):
            cluster.wait_for_isr(each, 3)
    yield ",".join(cluster.addresses)
    cluster.close()


def fill(address, count):
    with logstore.connect(address) as store, store.producer() as producer:
        for number in range(count):
            producer.send("jobs", b"%d" % number)


def delivered(printed):
    """Offsets and counts."""
    return [tuple(map(int, line.split())) for line in printed.split("\n") if line]


def test_each_kind_of_acknowledgement_and_the_counts(address):
    """What is released comes again, with the delivery counted; what is accepted or rejected does not. 4 s."""
    fill(address, 5)
    found = delivered(run_program("ShareReader.java", address, "jobs", "g", "ARRXA", ".RA..", ".A..."))
    assert sorted(found) == [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1)]
    with logstore.connect(address) as store, store.queue("jobs", group="g") as queue:
        assert queue.poll(0.3) == []


def test_a_consumer_of_kafka_and_a_worker_of_ours_share_a_partition(address):
    """Both get some, none gets what the other has. 6 s."""
    fill(address, 6)
    with logstore.connect(address) as store, store.queue("jobs", group="g") as queue:
        ours = queue.poll(5, max_jobs=2)
        assert [job.offset for job in ours] == [0, 1]
        with ThreadPoolExecutor() as pool:
            theirs = pool.submit(run_program, "ShareReader.java", address, "jobs", "g", "..AAAA")
            assert sorted(delivered(theirs.result())) == [(offset, 1) for offset in range(2, 6)]
        ours[0].accept()
        ours[1].release()
        (again,) = queue.poll(5)
        assert (again.offset, again.delivery_count) == (1, 2)
        again.accept()


def test_two_consumers_of_kafka_share_a_partition(address):
    """Each accepts its own two of four records, and releases what is the other's until that has come. A
    worker of ours keeps the settings, with which no record is given up. 3 s."""
    fill(address, 4)
    limits = {"delivery_count_limit": 10_000}
    with logstore.connect(address) as store, store.queue("jobs", group="g", **limits) as queue:
        with ThreadPoolExecutor() as pool:
            both = [
                pool.submit(run_program, "ShareReader.java", address, "jobs", "g", word)
                for word in ("AA..", "..AA")
            ]
            found = [sorted(offset for offset, _ in delivered(each.result())) for each in both]
        assert found == [[0, 1], [2, 3]]
        assert queue.poll(0.3) == []


def test_kafkas_tool_lists_describes_and_deletes(address):
    """6 s."""
    fill(address, 2)
    tool = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
    with logstore.connect(address) as store, store.queue("jobs", group="g") as queue:
        assert queue.poll(5)
        listed, members, refused = run(
            address,
            (tool, "--list"),
            (tool, "--describe", "--group", "g", "--members"),
            (tool, "--delete", "--group", "g"),
            classes=tool_jars(),
        )
        assert listed.said.split() == ["g"]
        assert queue.member_id in members.said
        assert "is not EMPTY" in refused.said
    deleted, left = run(address, (tool, "--delete", "--group", "g"), (tool, "--list"), classes=tool_jars())
    assert "Deletion of requested share groups ('g') was successful." in deleted.said
    assert left.said.strip() == ""
