"""A cluster told of no groups, queues and transactions, and of no error, for up to seconds: the node that
coordinates them had hung for less than its session, so that its lease was over and nobody else led. It listed
nothing, as nodes do that know of another coordinator.
"""

import pytest
from tests.replica.node.cluster import Cluster
from tests.replica.node.test_queues import create, drain, send

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import wait_for
from logstore.broker.transactions.requests import ListTransactions
from logstore.errors import RetriableError
from logstore.replica.node.coordinating import GROUPS
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.telling import SHARE_STATES
from logstore.replica.node.transacting import TRANSACTIONS

COORDINATED = (GROUPS, SHARE_STATES, TRANSACTIONS)


@pytest.fixture
def three(tmp_path):
    cluster = Cluster(tmp_path)
    create(cluster, partitions=1)
    for each in COORDINATED:
        cluster.wait_for_isr(each, 3)
        cluster.leader_of(each)
    yield cluster
    cluster.close()


@pytest.fixture
def without_a_lease(monkeypatch):
    """Makes the leaders of coordinated partitions pause, and lets them go on."""
    check = PartitionReplica.check_produce

    def refuse(replica, **options):
        if replica.partition in COORDINATED:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        return check(replica, **options)

    def pause(is_paused):
        monkeypatch.setattr(PartitionReplica, "check_produce", refuse if is_paused else check)

    return pause


def test_groups_and_queues_are_not_listed_as_none(three, without_a_lease):
    """Costs 2 s."""
    with logstore.connect(*three.addresses) as store:
        send(store, 1)
        store.offsets("g").commit({("jobs", 0): 0})
        with store.queue("jobs", group="q") as queue:
            drain(queue, 1)
    with logstore.connect(*three.addresses, retry_backoff_ms=5, request_timeout_ms=500) as store:
        without_a_lease(True)
        with pytest.raises(RetriableError):
            list(store.groups())
        with pytest.raises(RetriableError):
            store.queues()
        without_a_lease(False)
    with logstore.connect(*three.addresses) as store:
        assert list(store.groups()) == ["g"]
        assert [each.group for each in store.queues()] == ["q"]


def test_who_coordinates_says_so_and_the_others_list_nothing(three, without_a_lease):
    def listed(node):
        broker = node._broker
        found = (
            broker.list_groups(),
            broker.list_share_groups(),
            broker.list_transactions(ListTransactions()),
        )
        return [wait_for(each, 5).error for each in found]

    of_groups, of_transactions = three.leader_of(GROUPS), three.leader_of(TRANSACTIONS)
    without_a_lease(True)
    for node in three.nodes.values():
        groups, shares, transactions = listed(node)
        awaited = ErrorCode.COORDINATOR_NOT_AVAILABLE if node is of_groups else ErrorCode.NONE
        assert (groups, shares) == (awaited, awaited)
        awaited = ErrorCode.COORDINATOR_NOT_AVAILABLE if node is of_transactions else ErrorCode.NONE
        assert transactions == awaited
