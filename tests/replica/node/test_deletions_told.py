"""When somebody is told that a topic is deleted."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import DeleteTopicsRequest
from logstore.replica.coordination.interface import Topic
from logstore.replica.node.controller.changing import ClusterTopics


def test_a_topic_is_gone_from_the_view_first():
    """Another look at the same topic was taken for another topic: who made it again at once was told that it
    exists, and then it was gone."""
    asked = []

    def view():
        asked.append(None)
        is_there = len(asked) < 4
        return SimpleNamespace(topics={"t": Topic(UUID(int=1), {})} if is_there else {})

    deleted = []
    topics = ClusterTopics(None, view, lambda: SimpleNamespace(delete_topic=deleted.append), None)
    (outcome,) = topics.delete_topics(DeleteTopicsRequest(("t",))).topics
    assert (deleted, outcome.error) == (["t"], ErrorCode.NONE)
    assert len(asked) == 4
