"""Who looks after groups sees and is refused the same, in the store and over the network. 1 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.pending import wait_for
from logstore.errors import LogstoreError
from logstore.testing import MemoryFiles

pytest.importorskip("logstore.wire.listener.listener")

SECONDS = 10
T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def store():
    with logstore.open("/s", files=MemoryFiles()) as store:
        for log in store.create_topic("t", partitions=2):
            log.extend([b"x"] * 10)
        yield store


@pytest.fixture
def both(store):
    """The groups as they are seen here, and through a listener."""
    with store.listen() as listener, logstore.connect(listener.address) as elsewhere:
        yield store.groups(), elsewhere.groups()


def join_newer(store, group):
    """A member of the newer protocol."""
    broker = store._open_broker(store._directory)
    request = ConsumerGroupHeartbeat(
        group, "m", rebalance_timeout_ms=60_000, topics=("t",), owned=frozenset()
    )
    assert not wait_for(broker.consumer_group_heartbeat(request), SECONDS).error


def test_groups_of_each_protocol_are_seen(store, both):
    here, there = both
    store.offsets("empty").commit({T0: 4, T1: 7})
    join_newer(store, "newer")
    store.offsets("newer").commit({T1: 2})
    with store.consumer("t", group="classic") as consumer:
        while len(consumer.assignment) < 2:
            consumer.poll(0.05)
        consumer.commit()
        assert list(there) == list(here) == ["classic", "empty", "newer"]
        assert dict(there.items()) == dict(here.items())
        for name in here:
            assert name in there
            assert there[name] == here[name]
        assert there["newer"].group_type == "consumer"
        assert there["classic"].group_type == "classic"


def refusal(call):
    with pytest.raises(LogstoreError) as caught:
        call()
    return type(caught.value)


REFUSED = [
    lambda groups: groups["none"],
    lambda groups: groups.delete("none"),
    lambda groups: groups.delete("newer"),
    lambda groups: groups.delete_offsets("newer", [T0]),
    lambda groups: groups.delete_offsets("empty", [("other", 0)]),
    lambda groups: groups.remove_members("newer", ["x"]),
    lambda groups: groups.reset("newer", "earliest"),
    lambda groups: groups.reset("empty", {}),
    lambda groups: groups.reset("empty", {T0: 11}),
    lambda groups: groups.reset("empty", {T0: 1}, topics=["t"]),
    lambda groups: groups.reset("empty", "earliest", topics=["t"], partitions=[T0]),
    lambda groups: groups.reset("empty", "earliest", topics=["other"]),
    lambda groups: groups.reset("empty", "somewhere"),
]


@pytest.mark.parametrize("call", REFUSED)
def test_the_same_is_refused(store, both, call):
    here, there = both
    store.offsets("empty").commit({T0: 4})
    join_newer(store, "newer")
    store.offsets("newer").commit({T0: 2})
    before = dict(here.items())
    assert refusal(lambda: call(there)) is refusal(lambda: call(here))
    assert dict(here.items()) == before


@pytest.mark.parametrize("to", ["earliest", "latest", {T0: 3}])
def test_a_reset_ends_at_the_same_offsets(store, both, to):
    here, there = both
    for name in ("a", "b"):
        store.offsets(name).commit({T0: 4, T1: 5})
    planned = here.reset("a", to, dry_run=True)
    assert there.reset("a", to, dry_run=True) == planned
    assert here.reset("a", to) == there.reset("b", to) == planned
    assert store.offsets("a") == store.offsets("b")
