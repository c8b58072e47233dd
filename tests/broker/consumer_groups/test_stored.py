"""What is stored of a group: what has changed, in an order that a crash may cut; and all of it is read."""

from __future__ import annotations

import uuid

import pytest

from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.states import GroupState, MemberState
from logstore.broker.consumer_groups.stored import group_of, rows_between
from logstore.format.messages import consumer_group_records as records
from logstore.format.messages.consumer_group_records import AboutConsumerGroup, decode_consumer_group_key
from tests.broker.consumer_groups.stage import GROUP, Client, Stage, settle

ORDERS = uuid.UUID(int=1)


@pytest.fixture
def stage():
    return Stage({"orders": 4})


def kinds(stage):
    """Of the rows of the last change, with a minus for those that remove."""
    return [
        (decode_consumer_group_key(key).kind, "-" if value is None else "")
        for key, value in stage.storage.stored
    ]


def test_a_new_member(stage):
    Client(stage, "a", "orders")
    assert kinds(stage) == [(kind, "") for kind in (3, 5, 7, 6, 8)]


def test_a_pattern_has_a_record(stage):
    Client(stage, "a", pattern="o.*", topics=None)
    assert (16, "") in kinds(stage)
    Client(stage, "a", "orders", pattern="")
    assert (16, "-") in kinds(stage)


def test_a_step_of_one_member_is_one_record(stage):
    a = Client(stage, "a", "orders")
    Client(stage, "b", "orders")
    a.beat()
    assert kinds(stage) == [(8, "")]


def test_a_member_that_leaves(stage):
    a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
    settle(a, b)
    stage.beat("b", -1)
    assert kinds(stage) == [(3, ""), (8, "-"), (7, "-"), (5, "-")]


def test_what_says_the_same_is_not_written(stage):
    Client(stage, "a", "orders")
    before = stage.group
    after = before.copy()
    after.put(before.members["a"]._replace())
    assert rows_between(before, after) == []
    assert rows_between(Group(GROUP), before) != []


def test_the_topics_that_kafka_4_0_wrote_are_passed_over(stage):
    Client(stage, "a", "orders")
    rows = {decode_consumer_group_key(key): value for key, value in stage.storage.rows[GROUP].items()}
    assert group_of(GROUP, {**rows, AboutConsumerGroup(records.TOPICS_KIND, GROUP): b"\0\0"}) == stage.group


def member_rows(member_id, **current):
    described = records.ConsumerGroupMemberMetadataValue(
        client_id="c", subscribed_topic_names=("orders",), classic_member_metadata=None
    )
    value = records.ConsumerGroupCurrentMemberAssignmentValue(**current)
    version = records.VALUE_VERSION
    return {
        AboutConsumerGroup(records.MEMBER_KIND, GROUP, member_id): records.MEMBER_VALUE.encode_versioned(
            described, version
        ),
        AboutConsumerGroup(
            records.CURRENT_OF_MEMBER_KIND, GROUP, member_id
        ): records.CURRENT_OF_MEMBER_VALUE.encode_versioned(value, version),
    }


def test_since_when_a_member_has_something_if_kafka_did_not_say():
    held = (records.CurrentPartitions(ORDERS, (0, 1), None),)
    group = group_of(GROUP, member_rows("a", member_epoch=5, assigned_partitions=held))
    assert group.members["a"].assigned == {TopicIdPartition(ORDERS, each): 5 for each in (0, 1)}


def test_a_state_that_is_not_known_counts_as_stable():
    assert group_of(GROUP, member_rows("a", state=9)).members["a"].state is MemberState.STABLE


def test_members_of_the_classic_protocol_that_support_nothing_are_left_out():
    """Their target too, and the others share it."""
    version = records.VALUE_VERSION
    classic = records.ConsumerGroupMemberMetadataValue(
        classic_member_metadata=records.ClassicMemberMetadata(1)
    )
    target = records.ConsumerGroupTargetAssignmentMemberValue((records.TargetPartitions(ORDERS, (0,)),))
    rows = member_rows("a", member_epoch=5) | {
        AboutConsumerGroup(records.MEMBER_KIND, GROUP, "b"): records.MEMBER_VALUE.encode_versioned(
            classic, version
        ),
        AboutConsumerGroup(
            records.TARGET_OF_MEMBER_KIND, GROUP, "b"
        ): records.TARGET_OF_MEMBER_VALUE.encode_versioned(target, version),
        AboutConsumerGroup(records.GROUP_KIND, GROUP): records.GROUP_VALUE.encode_versioned(
            records.ConsumerGroupMetadataValue(5), version
        ),
        AboutConsumerGroup(records.TARGET_KIND, GROUP): records.TARGET_VALUE.encode_versioned(
            records.ConsumerGroupTargetAssignmentMetadataValue(5), version
        ),
    }
    group = group_of(GROUP, rows)
    assert (list(group.members), group.targets) == (["a"], {})
    assert group.state is GroupState.ASSIGNING
