"""Many topics are made over a connection, some with each request. 0.5 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.requests import NewTopic
from logstore.clients.asking import at_a_time
from logstore.config import TopicConfig
from logstore.errors import InvalidTopicError, TopicExistsError, UsageError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        yield store


def test_more_than_one_request(store):
    topics = {f"t{number:03}": 1 + number % 2 for number in range(205)}
    with store.listen("127.0.0.1:0") as listener, logstore.connect(listener.address) as remote:
        remote.create_topics(topics, config=TopicConfig(retention_ms=7))
        remote.create_topics({})
    assert {name: len(topic) for name, topic in store.items()} == topics
    assert {topic.config.retention_ms for topic in store.values()} == {7}


def test_what_is_refused_keeps_none_of_the_later_requests_from_being_made(store):
    """Of several that asked for the same topics at once each made some of the first request and was refused
    for the rest of it; the others nobody asked for."""
    topics = dict.fromkeys([f"t{number:03}" for number in range(205)], 1)
    store.create_topics(dict.fromkeys(list(topics)[:100], 1))
    with (
        store.listen("127.0.0.1:0") as listener,
        logstore.connect(listener.address) as remote,
        pytest.raises(TopicExistsError, match="topic 't000'"),
    ):
        remote.create_topics(topics)
    assert list(store) == list(topics)


def test_as_many_partitions_as_a_request_may_create():
    topics = {**dict.fromkeys([f"t{number}" for number in range(60)], 200), "large": 7_000, "last": 1}
    some = list(at_a_time([NewTopic(*each) for each in topics.items()]))
    assert [sum(one.partition_count for one in each) for each in some] == [5_000, 5_000, 2_000, 7_000, 1]
    assert {one.name: one.partition_count for each in some for one in each} == topics


def test_one_is_refused_and_the_others_are_made(store):
    store.create_topic("b")
    with store.listen("127.0.0.1:0") as listener, logstore.connect(listener.address) as remote:
        with pytest.raises(TopicExistsError, match="topic 'b'"):
            remote.create_topics({"a": 2, "b": 1, "c": 1})
        for wrong in (["d"], {"d": 0}, {"d": True}, {"d": 1, "huge": 10**12}):
            with pytest.raises(UsageError):
                remote.create_topics(wrong)
        with pytest.raises(InvalidTopicError):
            remote.create_topics({"d": 1, "e/f": 1})
    assert list(store) == ["a", "b", "c"]
