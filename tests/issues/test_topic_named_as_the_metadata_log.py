"""A topic called ``__cluster_metadata`` was created, and lost at the next open: its directory is the one by
which a broker's directory is known. From then on the store was taken for a broker's, and refused new topics.
"""

import pytest

import logstore
from logstore.broker.local import LocalBroker
from logstore.broker.requests import CreateTopicsRequest, NewTopic
from logstore.errors import InvalidTopicError

NAME = "__cluster_metadata"
REASON = "is the metadata log of a Kafka cluster"


def test_the_name_is_refused_and_the_store_stays_one(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        for create in (store.create_topic, store.require_topic):
            with pytest.raises(InvalidTopicError, match=REASON):
                create(NAME)
        with pytest.raises(InvalidTopicError, match=REASON):
            store.create_topic(NAME, partitions=2, held=[1])
        broker = LocalBroker(store._directory)
        for validate_only in (True, False):
            request = CreateTopicsRequest((NewTopic(NAME, 1),), validate_only=validate_only)
            (outcome,) = broker.create_topics(request).poll().topics
            assert REASON in str(outcome)
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("orders")
        assert list(store) == ["orders"]
    assert not (tmp_path / "s" / f"{NAME}-0").exists()


@pytest.mark.parametrize(
    "name", ["meta.properties", "__cluster_metadata-0", "__Cluster_metadata", "t-0.delete"]
)
def test_names_that_only_look_like_it_are_topics(tmp_path, name):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic(name).append(b"1", flush=True)
    with logstore.open(tmp_path / "s") as store:
        assert [record.value for record in store[name].read()] == [b"1"]
