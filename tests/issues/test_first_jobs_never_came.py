"""The first jobs of a queue never came: the group had begun behind its newest record, as groups of Kafka do
without ``share.auto.offset.reset``.

A worker that joined gave its group this setting, and joined all the same when the broker could not take it
just then. In a cluster, the node that coordinated the group went by what it had heard of the setting, which
may be late. Now the worker asks again, and does not join without; and the node asks its coordinator.
"""

import pytest
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_queues import create, drain, send

import logstore
from logstore.errors import ClosedError, FencedError, LogstoreError, RetriableError
from logstore.replica.coordination.session import TreeSession
from logstore.replica.node.sharing import settings
from logstore.testing import Refuse, kafka

CONFIGURE = "IncrementalAlterConfigs"


@pytest.fixture
def servers():
    with kafka(topics={"jobs": 1}) as servers:
        servers.store["jobs"].extend([b"%d" % number for number in range(20)])
        yield servers


@pytest.fixture
def three(tmp_path):
    cluster = Cluster(tmp_path)
    create(cluster, partitions=2)
    yield cluster
    cluster.close()


@pytest.mark.parametrize("code", ["REQUEST_TIMED_OUT", "NOT_CONTROLLER", "COORDINATOR_NOT_AVAILABLE"])
def test_a_worker_sends_the_settings_of_its_group_again(servers, code):
    servers.intercept(CONFIGURE, Refuse(code), times=9)
    with logstore.connect(servers, retry_backoff_ms=5) as store, store.queue("jobs", group="g") as queue:
        assert sorted(drain(queue, 20)) == [(number, 1) for number in range(20)]


def test_a_worker_does_not_join_without_them(servers):
    servers.intercept(CONFIGURE, Refuse("REQUEST_TIMED_OUT"), times=None)
    with (
        logstore.connect(servers, retry_backoff_ms=5, request_timeout_ms=500) as store,
        pytest.raises(RetriableError, match=r"queue 'g': share\.[a-z.]+ was not set"),
    ):
        store.queue("jobs", group="g")
    servers.let_through()
    with logstore.connect(servers) as store, store.queue("jobs", group="g") as queue:
        assert len(drain(queue, 20)) == 20


@pytest.mark.parametrize("code", ["UNKNOWN_SERVER_ERROR", "THROTTLING_QUOTA_EXCEEDED"])
def test_a_refusal_that_says_nothing_of_the_setting_is_told(servers, code):
    servers.intercept(CONFIGURE, Refuse(code))
    with logstore.connect(servers) as store:
        with pytest.raises(LogstoreError, match=r"queue 'g': share\.[a-z.]+ was not set"):
            store.queue("jobs", group="g")
        with store.queue("jobs", group="g") as queue:
            assert len(drain(queue, 20)) == 20


@pytest.mark.parametrize("code", ["INVALID_CONFIG", "INVALID_REQUEST", "GROUP_AUTHORIZATION_FAILED"])
def test_a_worker_joins_where_settings_are_refused_for_good(servers, code):
    """Another broker may not know a setting, or not allow it."""
    servers.intercept(CONFIGURE, Refuse(code), times=None)
    with logstore.connect(servers) as store, store.queue("jobs", group="g") as queue:
        servers.store["jobs"].append(b"20")
        assert drain(queue, 1) == [(20, 1)]


@pytest.mark.parametrize("error", [RetriableError, FencedError, ClosedError])
def test_a_coordinator_that_fails_for_a_moment(three, monkeypatch, error):
    """Costs 1 s."""
    configure = TreeSession.configure_group
    failures = iter(range(12))

    def fail(session, group, change):
        if next(failures, None) is not None:
            raise error("no answer")
        return configure(session, group, change)

    monkeypatch.setattr(TreeSession, "configure_group", fail)
    with logstore.connect(*three.addresses, retry_backoff_ms=5) as store:
        send(store, 20)
        with store.queue("jobs", group="g") as queue:
            assert sorted(drain(queue, 20)) == [(number, 1) for number in range(20)]


def test_nodes_that_hear_late_of_the_settings(three, monkeypatch):
    """Costs 1 s."""
    monkeypatch.setattr(settings, "_VIEW_SECONDS", 0.01)
    for node in three.nodes.values():
        view = node.view
        monkeypatch.setattr(node._broker.group_settings, "_view", lambda view=view: view)
    with logstore.connect(*three.addresses) as store:
        send(store, 20)
        with store.queue("jobs", group="g") as queue:
            assert sorted(drain(queue, 20)) == [(number, 1) for number in range(20)]
