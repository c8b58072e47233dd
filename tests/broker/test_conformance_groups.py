"""What any broker answers about groups: who is in them, their offsets, and what may be deleted. The broker
comes from the fixture ``rig``."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.requests import (
    DeleteTopicsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
)
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    by_topic,
    encode_assignment,
    encode_subscription,
)
from logstore.model import OffsetAndMetadata, TopicPartition
from tests.broker.rig import T0, T1, Rig, Transactional

NOWHERE = TopicPartition("nowhere", 0)
U0 = TopicPartition("u", 0)
SESSION_MS = 10_000


@pytest.fixture
def rig():
    rig = Rig()
    rig.directory.create_topic("u", 1, None)
    return rig


def commit(rig, group, *partitions, **member):
    offsets = dict.fromkeys(partitions, OffsetAndMetadata(0, "note"))
    return rig.now(rig.broker.offset_commit(OffsetCommitRequest(group, offsets, **member))).error


def committed(rig, group):
    return set(rig.now(rig.broker.offset_fetch(OffsetFetchRequest(group))).offsets)


def delete_offsets(rig, group, *partitions):
    result = rig.soon(rig.broker.offset_delete(OffsetDeleteRequest(group, partitions)))
    return result.error or dict(result.errors)


def listed(rig):
    result = rig.now(rig.broker.list_groups())
    assert result.error is ErrorCode.NONE
    return {each.group_id: each.state for each in result.groups}


def state(rig, group):
    (described,) = rig.now(rig.broker.describe_groups((group,)))
    return described.state


class Member:
    """The one member of a group, which reads ``t``."""

    def __init__(self, rig, group="g", *, topics=("t",), protocol_type="consumer", syncs=True):
        self.rig, self.group = rig, group
        said = encode_subscription(ConsumerProtocolSubscription(topics))
        protocols = (GroupProtocol("range", said),)
        joins = JoinGroup(
            group, protocol_type, protocols, SESSION_MS, SESSION_MS, client_id="c", client_host="h"
        )
        joined = rig.soon(rig.broker.join_group(joins))
        assert joined.error is ErrorCode.NONE
        self.id, self.generation = joined.member_id, joined.generation
        if syncs:
            part = encode_assignment(ConsumerProtocolAssignment(by_topic([T1, T0])))
            sync = SyncGroup(group, self.generation, self.id, assignments={self.id: part})
            assert rig.soon(rig.broker.sync_group(sync)).error is ErrorCode.NONE

    def commit(self, *partitions):
        return commit(self.rig, self.group, *partitions, generation=self.generation, member_id=self.id)

    def leave(self):
        leaves = LeaveGroup(self.group, (LeavingMember(self.id),))
        assert self.rig.now(self.rig.broker.leave_group(leaves)).error is ErrorCode.NONE


class TestListAndDescribe:
    def test_groups_with_members_and_groups_with_offsets(self, rig):
        assert listed(rig) == {}
        member = Member(rig)
        commit(rig, "alone", T0)
        assert listed(rig) == {"g": "Stable", "alone": "Empty"}
        member.leave()
        assert listed(rig) == {"g": "Empty", "alone": "Empty"}
        assert state(rig, "never") == "Dead"

    def test_what_was_committed_beside_the_coordinator(self, rig):
        """Those who need no members commit and delete without asking it."""
        assert listed(rig) == {}
        rig.broker.committed.commit("beside", {T0: OffsetAndMetadata(1)})
        assert (listed(rig), state(rig, "beside")) == ({"beside": "Empty"}, "Empty")
        rig.broker.committed.delete("beside")
        assert (state(rig, "beside"), listed(rig)) == ("Dead", {})

    def test_what_an_open_transaction_has_committed(self, rig):
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        assert producer.commit_offsets("in transaction", {T0: 0}) is ErrorCode.NONE
        assert (listed(rig), committed(rig, "in transaction")) == ({"in transaction": "Empty"}, set())
        assert producer.end(committed=False) is ErrorCode.NONE
        assert listed(rig) == {}
        assert producer.commit_offsets("in transaction", {T0: 0}) is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        assert (listed(rig), committed(rig, "in transaction")) == ({"in transaction": "Empty"}, {T0})

    def test_members_are_shown_when_the_group_is_stable(self, rig):
        member = Member(rig, syncs=False)
        (described,) = rig.now(rig.broker.describe_groups(("g",)))
        assert (described.state, described.protocol) == ("CompletingRebalance", "")
        assert [(each.member_id, each.assignment) for each in described.members] == [(member.id, b"")]
        rig.pass_time(SESSION_MS)
        member = Member(rig)
        (described,) = rig.now(rig.broker.describe_groups(("g",)))
        assert described[2:5] == ("Stable", "consumer", "range")
        assert [each[:4] for each in described.members] == [(member.id, None, "c", "h")]


class TestOffsetsOfTransactions:
    """A producer that names no member commits beside them: its own id and epoch count (KIP-447)."""

    @pytest.fixture
    def producer(self, rig):
        made = Transactional(rig)
        assert made.start() is ErrorCode.NONE
        return made

    def test_beside_members(self, rig, producer):
        member = Member(rig)
        assert commit(rig, "g", T0) is ErrorCode.UNKNOWN_MEMBER_ID
        assert producer.commit_offsets("g", {T0: 0}) is ErrorCode.NONE
        stale = {"generation": member.generation + 1, "member_id": member.id, "transaction": producer.me}
        assert commit(rig, "g", T0, **stale) is ErrorCode.ILLEGAL_GENERATION

    def test_while_the_members_wait_for_their_parts(self, rig, producer):
        member = Member(rig, syncs=False)
        assert member.commit(T0) is ErrorCode.REBALANCE_IN_PROGRESS
        assert producer.commit_offsets("g", {T0: 0}) is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        assert committed(rig, "g") == {T0}


class TestDeleteGroups:
    def test_only_without_members(self, rig):
        member = Member(rig)
        member.commit(T0)
        commit(rig, "alone", T0)
        rig.broker.committed.commit("beside", {T0: OffsetAndMetadata(1)})
        names = ("g", "alone", "beside", "never")
        assert rig.soon(rig.broker.delete_groups(names)) == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "alone": ErrorCode.NONE,
            "beside": ErrorCode.NONE,
            "never": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert [committed(rig, name) for name in names] == [{T0}, set(), set(), set()]
        member.leave()
        assert rig.soon(rig.broker.delete_groups(("g",))) == {"g": ErrorCode.NONE}
        assert (listed(rig), committed(rig, "g")) == ({}, set())

    def test_a_deleted_group_takes_one_batch(self, rig):
        """After a kill it is there, or it is not."""
        member = Member(rig)
        member.commit(T0, T1, U0)
        member.leave()
        log = rig.directory.log(TopicPartition("__consumer_offsets", 0))
        before = log.log_end_offset
        assert rig.soon(rig.broker.delete_groups(("g",))) == {"g": ErrorCode.NONE}
        records = list(log.read(before))
        assert [record.value for record in records] == [None] * 4
        assert len(log.fetch(before, max_bytes=1).data) == len(log.fetch(before).data)

    def test_of_many_offsets_it_takes_several(self, rig):
        for start in range(0, 10_000, 1_000):
            many = {TopicPartition("wide", start + number): OffsetAndMetadata(0) for number in range(1_000)}
            rig.broker.committed.commit("g", many)
        log = rig.directory.log(TopicPartition("__consumer_offsets", 0))
        before = log.log_end_offset
        assert rig.soon(rig.broker.delete_groups(("g",))) == {"g": ErrorCode.NONE}
        assert (listed(rig), committed(rig, "g"), log.log_end_offset) == ({}, set(), before + 10_000)
        assert len(log.fetch(before, max_bytes=1).data) < len(log.fetch(before).data)

    def test_what_a_transaction_has_committed_before_goes_too(self, rig):
        """Whether or not the group had an offset of the same partition."""
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        commit(rig, "g", T0)
        assert producer.commit_offsets("g", {T0: 0, T1: 0}) is ErrorCode.NONE
        assert producer.commit_offsets("pending only", {T0: 0}) is ErrorCode.NONE
        assert rig.soon(rig.broker.delete_groups(("g", "pending only"))) == {
            "g": ErrorCode.NONE,
            "pending only": ErrorCode.NONE,
        }
        assert listed(rig) == {}
        assert producer.commit_offsets("g", {U0: 0}) is ErrorCode.NONE  # later: the group begins again
        assert producer.end() is ErrorCode.NONE
        assert (listed(rig), committed(rig, "g")) == ({"g": "Empty"}, {U0})

    def test_offsets_go_with_their_topic(self, rig):
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        commit(rig, "g", T0, U0)
        assert producer.commit_offsets("g", {T0: 0, T1: 0, U0: 0}) is ErrorCode.NONE
        assert not rig.now(rig.broker.delete_topics(DeleteTopicsRequest(("t",)))).topics[0].error
        assert committed(rig, "g") == {U0}
        assert producer.end() is ErrorCode.NONE
        assert committed(rig, "g") == {U0}


class TestOffsetDelete:
    """KIP-496."""

    def test_of_a_group_without_members(self, rig):
        commit(rig, "g", T0, T1, U0)
        assert delete_offsets(rig, "g", T0, T1) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}
        assert (committed(rig, "g"), listed(rig)) == ({U0}, {"g": "Empty"})
        assert delete_offsets(rig, "g", T0) == {T0: ErrorCode.NONE}  # it has none
        assert delete_offsets(rig, "g") == {}

    def test_a_group_goes_with_its_last_offset(self, rig):
        member = Member(rig)
        member.commit(T0, U0)
        member.leave()
        assert delete_offsets(rig, "g", T0, NOWHERE) == {
            T0: ErrorCode.NONE,
            NOWHERE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert listed(rig) == {"g": "Empty"}
        assert delete_offsets(rig, "g", U0) == {U0: ErrorCode.NONE}
        assert (listed(rig), rig.broker.committed.load_groups()) == ({}, {})
        assert delete_offsets(rig, "g", U0) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_not_of_topics_that_members_subscribe_to(self, rig):
        member = Member(rig)
        member.commit(T0, U0)
        assert delete_offsets(rig, "g", T0, U0) == {
            T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            U0: ErrorCode.NONE,
        }
        assert (committed(rig, "g"), listed(rig)) == ({T0}, {"g": "Stable"})
        beat = Heartbeat("g", member.generation, member.id)
        assert rig.now(rig.broker.heartbeat(beat)) is ErrorCode.NONE  # its members notice nothing

    def test_during_a_rebalance_as_in_the_last_generation(self, rig):
        member = Member(rig)
        member.commit(T0, U0)
        joins = JoinGroup("g", "consumer", (GroupProtocol("range", b""),), SESSION_MS, SESSION_MS)
        rig.broker.join_group(joins)
        assert state(rig, "g") == "PreparingRebalance"
        assert delete_offsets(rig, "g", T0, U0) == {
            T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            U0: ErrorCode.NONE,
        }
        assert committed(rig, "g") == {T0}

    def test_before_members_have_an_assignment(self, rig):
        commit(rig, "g", T0, U0)
        Member(rig, syncs=False)
        assert state(rig, "g") == "CompletingRebalance"
        assert delete_offsets(rig, "g", T0, U0) == {
            T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            U0: ErrorCode.NONE,
        }

    def test_not_of_members_that_are_no_consumers(self, rig):
        Member(rig, protocol_type="connect").commit(T0)
        assert delete_offsets(rig, "g", T0) is ErrorCode.NON_EMPTY_GROUP
        assert committed(rig, "g") == {T0}

    def test_of_a_group_that_is_not_there(self, rig):
        assert delete_offsets(rig, "never", T0) is ErrorCode.GROUP_ID_NOT_FOUND

    def test_of_partitions_that_are_not_there(self, rig):
        commit(rig, "g", T0)
        rig.broker.committed.commit("g", {NOWHERE: OffsetAndMetadata(1)})  # as a deleted topic has left it
        beyond = TopicPartition("t", 2)
        assert delete_offsets(rig, "g", NOWHERE, beyond) == {
            NOWHERE: ErrorCode.NONE,
            beyond: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert committed(rig, "g") == {T0}

    def test_what_a_transaction_is_about_to_commit(self, rig):
        """It stays for other partitions, and the group with it."""
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        commit(rig, "g", T0)
        assert producer.commit_offsets("g", {T0: 0, T1: 0, U0: 0}) is ErrorCode.NONE
        assert delete_offsets(rig, "g", T0, U0) == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
        assert (listed(rig), committed(rig, "g")) == ({"g": "Empty"}, set())
        assert producer.end() is ErrorCode.NONE
        assert committed(rig, "g") == {T1}

    def test_results_are_values(self):
        assert OffsetDeleteResult(ErrorCode.NONE) == OffsetDeleteResult(ErrorCode.NONE, {})
