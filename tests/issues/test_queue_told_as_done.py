"""``queues()`` of a store elsewhere told of a queue that nothing waited there, when a broker could not say
how far it was; and of one of a cluster left out the jobs of partitions whose leader was not there.
"""

import pytest
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_queues import create, drain, send

import logstore
from logstore.errors import LogstoreError, RetriableError
from logstore.replica.node.sharing import offsets
from logstore.replica.node.telling import leader_of
from logstore.testing import DropAnswer, Refuse, kafka

ASK = "DescribeShareGroupOffsets"


@pytest.fixture
def servers():
    with kafka(topics={"jobs": 1}) as servers:
        servers.store["jobs"].extend([b"%d" % number for number in range(5)])
        with servers.store.queue("jobs", group="g") as queue:
            for job in queue.poll(timeout=5, max_jobs=2):
                job.accept()
        yield servers


def waiting(*servers):
    """To who has time."""
    with logstore.connect(*servers) as store:
        (status,) = store.queues()
        return status.waiting_count


@pytest.mark.parametrize(
    "code", ["UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR", "GROUP_AUTHORIZATION_FAILED"]
)
def test_a_broker_that_cannot_say(servers, code):
    with logstore.connect(servers, request_timeout_ms=500, retry_backoff_ms=5) as store:
        servers.intercept(ASK, Refuse(code), times=None)
        with pytest.raises(LogstoreError, match="queue 'g': how far it is cannot be read: "):
            store.queues()
        servers.let_through()
    assert waiting(servers) == 3


def test_a_broker_that_does_not_answer(servers):
    with logstore.connect(servers, request_timeout_ms=300, retry_backoff_ms=5) as store:
        servers.intercept(ASK, DropAnswer())
        with pytest.raises(RetriableError, match="queue 'g'"):
            store.queues()
    assert waiting(servers) == 3


def test_a_broker_that_does_not_know_the_request(servers):
    """Kafka before 4.2."""
    servers.intercept(ASK, Refuse("UNSUPPORTED_VERSION"), times=None)
    with logstore.connect(servers) as store:
        (status,) = store.queues()
        assert status.partitions == ()


def test_a_partition_without_a_leader(tmp_path, monkeypatch):
    """Costs 4 s."""
    cluster = Cluster(tmp_path)
    try:
        create(cluster, partitions=2)
        with logstore.connect(*cluster.addresses) as store:
            send(store, 20)
            with store.queue("jobs", group="g") as queue:
                drain(queue, 20)
            send(store, 20)
        assert waiting(*cluster.addresses) == 20
        with (
            monkeypatch.context() as patched,
            logstore.connect(*cluster.addresses, request_timeout_ms=2_000, retry_backoff_ms=5) as store,
        ):
            patched.setattr(
                offsets, "leader_of", lambda view, each: None if each[1] else leader_of(view, each)
            )
            with pytest.raises(RetriableError, match=r"jobs-1.*LEADER_NOT_AVAILABLE"):
                store.queues()
        assert waiting(*cluster.addresses) == 20
    finally:
        cluster.close()
