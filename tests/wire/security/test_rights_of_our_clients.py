"""Our clients need no rights but those that other clients need. 0.5 s."""

import contextlib
import logging
import time

import pytest

import logstore
from logstore import TopicConfig
from logstore.connected import Sasl
from logstore.errors import RecordTooLargeError, UsageError
from logstore.security import Acl, Operation, PatternType, Permission, ResourceType


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.users.set_password("alice", "pw")
        yield store


@pytest.fixture
def connect(store):
    """As alice, who may do so much with a topic."""
    with contextlib.ExitStack() as stack:

        def connect(topic, *operations):
            place = ResourceType.TOPIC, topic, PatternType.LITERAL, "User:alice", "*"
            store.acls.add([Acl(*place, each, Permission.ALLOW) for each in operations])
            listener = store.listen("127.0.0.1:0", sasl_enabled_mechanisms="SCRAM-SHA-256", authorize=True)
            sasl = Sasl(username="alice", password="pw")
            remote = logstore.connect(listener.address, sasl=sasl, request_timeout_ms=5_000)
            return stack.enter_context(remote)

        yield connect


def test_a_producer_may_write(store, connect):
    """It does not have to know the settings of the topic, and the broker checks by them."""
    store.create_topic("t", config=TopicConfig(max_message_bytes=2_000_000))
    with connect("t", Operation.WRITE).producer() as producer:
        assert producer.send("t", b"x").result(5).offset == 0
        assert producer.send("t", bytes(1_500_000)).result(5).offset == 1
        with pytest.raises((RecordTooLargeError, UsageError)):
            producer.send("t", bytes(2_500_000)).result(5)
    assert len(list(store["t"][0])) == 2


def test_a_producer_does_not_ask_again_and_again_for_what_is_denied(store, connect, caplog):
    """A broker notes each such question."""
    caplog.set_level(logging.INFO, logger="logstore.audit")
    store.create_topic("t")
    with connect("t", Operation.WRITE).producer(metadata_max_age_ms=1, linger_ms=0) as producer:
        for _ in range(20):
            producer.send("t", b"x").result(5)
            time.sleep(0.002)
    denied = [each for each in caplog.records if "DESCRIBE_CONFIGS" in each.getMessage()]
    assert 1 <= len(denied) <= 2


@pytest.mark.parametrize("may_set", [True, False])
def test_a_worker_that_may_not_say_where_its_new_group_begins_warns(store, connect, caplog, may_set):
    """0.2 s."""
    store.create_topic("t")
    store["t"].append(b"x")
    place = ResourceType.GROUP, "g", PatternType.LITERAL, "User:alice", "*"
    rights = (Operation.READ, Operation.ALTER_CONFIGS) if may_set else (Operation.READ,)
    store.acls.add([Acl(*place, each, Permission.ALLOW) for each in rights])
    shop = connect("t", Operation.READ)
    for round_number in range(2):
        with shop.queue("t", group="g") as queue:
            jobs = queue.poll(timeout=0.1)
            assert len(jobs) == (1 if may_set and not round_number else 0)
            for job in jobs:
                queue.accept(job)
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    if may_set:
        assert told == []
    else:  # once: then the group is there
        (line,) = told
        assert "'g' is new, and share.auto.offset.reset=earliest was not set: GROUP_AUTHORIZATION" in line
        assert "needs ALTER_CONFIGS on the group" in line


def test_who_may_only_make_a_topic_is_told_that_it_is_made(store, connect):
    connect("t", Operation.CREATE).create_topic("t", partitions=2)
    assert len(store["t"]) == 2


def test_who_may_only_delete_a_topic_is_told_that_it_is_gone(store, connect):
    store.create_topic("t")
    connect("t", Operation.DELETE).delete_topic("t")
    assert "t" not in store
