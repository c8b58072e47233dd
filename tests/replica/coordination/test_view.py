"""What a change of one topic costs the others in the view."""

from __future__ import annotations

from uuid import UUID

from logstore.replica.coordination import layout
from logstore.replica.coordination.tree import Stored
from logstore.replica.coordination.view import ViewMaker
from logstore.replica.rules.partition_state import PartitionState

NAMES = ["alice", "bob", "carol"]


def texts_of(name, number):
    topic_id = UUID(int=number + 1)
    return {
        layout.topic_path(name): layout.encode_topic(topic_id, {0: (1,)}),
        layout.config_path(name): layout.encode_config({}),
        layout.state_path((name, 0)): layout.encode_state(PartitionState((1,), None, 0, ()), 1),
        layout.topic_id_path(topic_id): name,
    }


def made():
    maker = ViewMaker()
    for number, name in enumerate(NAMES):
        maker.apply({path: Stored(text, 0) for path, text in texts_of(name, number).items()})
    return maker


def test_a_topic_that_is_deleted_leaves_the_others_as_they_are():
    """All of them were read again, for each that was deleted: 200 deletions took seconds."""
    maker = made()
    before = maker.view
    change = maker.apply({layout.topic_id_path(UUID(int=2)): None})
    assert change.topics == {"bob"}
    assert change.partitions == {("bob", 0)}
    assert maker.view.topics.keys() == {"alice", "carol"}
    assert all(now is before.topics[name] for name, now in maker.view.topics.items())
    assert all(now is before.partitions[each] for each, now in maker.view.partitions.items())


def test_a_marker_that_says_nobody_s_name_may_have_been_anybody_s():
    maker = made()
    marker = layout.topic_id_path(UUID(int=2))
    maker.apply({marker: Stored("bo", 1)})
    assert maker.view.topics.keys() == set(NAMES)
    maker.apply({marker: None})
    assert maker.view.topics.keys() == {"alice", "carol"}
