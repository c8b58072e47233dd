"""Requests that ACLs do not allow count as requests with an error."""

import pytest

import logstore
from logstore.broker.broker import Broker
from logstore.connected import Sasl
from logstore.errors import UsageError
from logstore.security import Acl, Operation, PatternType, Permission, ResourceType
from logstore.wire.listener.answering import _COUNTED_AS

DENIED = "TOPIC_AUTHORIZATION_FAILED"


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.users.set_password("alice", "pw")
        store.require_topic("orders")
        yield store


@pytest.fixture
def shop(store):
    """As alice."""
    listener = store.listen(sasl_enabled_mechanisms="SCRAM-SHA-256", authorize=True)
    with logstore.connect(listener.address, sasl=Sasl(username="alice", password="pw")) as shop:
        yield shop


def allow(store, *operations):
    place = ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*"
    store.acls.add([Acl(*place, each, Permission.ALLOW) for each in operations])


def errors(store):
    return dict(store.metrics()["logstore_request_errors"])


def test_a_refused_request_counts_with_its_error(store, shop):
    with pytest.raises(UsageError, match=DENIED):
        shop.consumer("orders")
    assert errors(store)["metadata", DENIED] >= 1
    with pytest.raises(UsageError, match="TRANSACTIONAL_ID"):
        shop.producer(transactional_id="t")
    assert errors(store)["find_coordinator", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"] == 1


def test_each_refused_request_counts_once(store, shop):
    allow(store, Operation.DESCRIBE)
    with shop.producer(linger_ms=0, enable_idempotence=False) as producer:
        for count in range(1, 4):
            with pytest.raises(UsageError, match=DENIED):
                producer.send("orders", b"x").result(5)
            assert errors(store)["produce", DENIED] == count


def test_what_is_allowed_does_not_count(store, shop):
    allow(store, Operation.WRITE, Operation.READ, Operation.DESCRIBE_CONFIGS)
    with shop.producer() as producer:
        producer.send("orders", b"x").result(5)
    with shop.consumer("orders") as consumer:
        assert len(consumer.poll(timeout=5)) == 1
    assert not any("AUTHORIZATION" in error for _, error in errors(store))
    assert shop.topics() == {"orders": 1}


def test_requests_count_under_the_names_of_the_broker():
    assert all(hasattr(Broker, name) for name in _COUNTED_AS.values())
