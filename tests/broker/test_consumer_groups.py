"""Groups of the newer protocol at the seam: their offsets, how groups change over, and what is stored."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.consumer_groups.states import GroupState
from logstore.broker.groups.requests import (
    GroupProtocol,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.local import LocalBroker
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.requests import (
    CreatePartitionsRequest,
    MorePartitions,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from logstore.broker.storing.consumer_groups import describe_stored_consumer_group, stored_consumer_states
from logstore.config import StoreConfig
from logstore.format.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from logstore.logdir.directory import LogDirectory
from logstore.model import OffsetAndMetadata, TopicPartition
from tests.broker.rig import T0, T1, Rig, Transactional

SESSION_MS = 45_000
OFFSETS = TopicPartition("__consumer_offsets", 0)


@pytest.fixture
def rig():
    return Rig()


def beat(rig, member_id, epoch=0, group="g", **fields):
    joins = {"rebalance_timeout_ms": 10_000, "topics": ("t",), "owned": frozenset()} if epoch == 0 else {}
    fields = {"client_id": "c", "client_host": "/h"} | joins | fields
    return rig.now(
        rig.broker.consumer_group_heartbeat(ConsumerGroupHeartbeat(group, member_id, epoch, **fields))
    )


def classic_join(rig, group="g"):
    subscription = encode_subscription(ConsumerProtocolSubscription(("t",)))
    joins = JoinGroup(group, "consumer", (GroupProtocol("range", subscription),), 10_000, 10_000)
    return rig.soon(rig.broker.join_group(joins))


def classic_member(rig, group="g"):
    joined = classic_join(rig, group)
    assert joined.error is ErrorCode.NONE
    sync = SyncGroup(group, joined.generation, joined.member_id, assignments={})
    assert rig.soon(rig.broker.sync_group(sync)).error is ErrorCode.NONE
    return joined


def leave(rig, *members):
    result = rig.now(rig.broker.leave_group(LeaveGroup("g", members)))
    return [each.error for each in result.members] or result.error


def commit(rig, *partitions, epoch=-1, member_id="", group="g"):
    offsets = dict.fromkeys(partitions or (T0,), OffsetAndMetadata(3))
    return rig.now(rig.broker.offset_commit(OffsetCommitRequest(group, offsets, epoch, member_id))).error


def fetch(rig, **member):
    result = rig.now(rig.broker.offset_fetch(OffsetFetchRequest("g", **member)))
    return result.error or set(result.offsets)


def listed(rig):
    groups = rig.now(rig.broker.list_groups()).groups
    return {each.group_id: (each.group_type, each.protocol_type, each.state) for each in groups}


def classic_state(rig):
    """What the classic coordinator knows of the group."""
    return rig.now(rig.broker.describe_groups(("g",)))[0].state


def described(rig, group="g"):
    return rig.now(rig.broker.describe_consumer_groups((group,)))[0]


def restart(rig, **settings):
    """A broker that finds the directory as a killed process leaves it."""
    rig.directory.abandon()
    config = StoreConfig(**settings)
    rig.directory = LogDirectory("/data", files=rig.files, clock=rig.clock, config=config, seed=1)
    rig.broker = LocalBroker(rig.directory)


class TestDescribe:
    def test_a_group(self, rig):
        beat(rig, "a", instance_id="x", rack_id="r", pattern="u.*")
        group = described(rig)
        assert group[:6] == (ErrorCode.NONE, "g", "Stable", 1, 1, "uniform")
        (member,) = group.members
        assert member[:8] == ("a", "x", "r", 1, "c", "/h", ("t",), "u.*")
        assert [(each.topic, each.partition) for each in member.assignment] == [("t", 0), ("t", 1)]
        assert member.target == member.assignment
        assert listed(rig) == {"g": ("consumer", "consumer", "Stable")}
        assert rig.broker.group_states() == {"g": "Stable"}

    def test_a_group_that_is_not_there_or_classic(self, rig):
        classic_member(rig)
        for group in ("g", "never"):
            assert described(rig, group).error is ErrorCode.GROUP_ID_NOT_FOUND
        beat(rig, "a", group="newer")
        (found,) = rig.now(rig.broker.describe_groups(("newer",)))
        assert (found.error, found.state) == (ErrorCode.NONE, "Dead")
        assert listed(rig) == {
            "g": ("classic", "consumer", "Stable"),
            "newer": ("consumer", "consumer", "Stable"),
        }

    def test_more_partitions_are_seen_at_the_next_heartbeat(self, rig):
        first = beat(rig, "a")
        request = CreatePartitionsRequest((MorePartitions("t", 3),))
        assert not rig.now(rig.broker.create_partitions(request)).topics[0].error
        again = beat(rig, "a", 1, owned=frozenset(first.assignment))
        assert (again.member_epoch, len(again.assignment)) == (2, 3)


class TestOffsets:
    def test_members_commit_and_fetch_in_their_epoch(self, rig):
        beat(rig, "a")
        assert commit(rig, epoch=1, member_id="a") is ErrorCode.NONE
        assert commit(rig, epoch=2, member_id="a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(rig, epoch=1, member_id="b") is ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(rig) is ErrorCode.UNKNOWN_MEMBER_ID
        assert classic_state(rig) == "Dead"
        assert fetch(rig, member_id="a", member_epoch=1) == {T0}
        assert fetch(rig, member_id="a", member_epoch=0) is ErrorCode.STALE_MEMBER_EPOCH
        assert fetch(rig, member_id="b", member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert fetch(rig) == {T0}

    def test_one_that_is_behind_may_commit_what_it_has_had_since(self, rig):
        first = beat(rig, "a")
        beat(rig, "b")
        kept = beat(rig, "a", 1, owned=frozenset(first.assignment)).assignment
        assert beat(rig, "a", 1, owned=frozenset(kept)).member_epoch == 2
        (mine,) = (TopicPartition("t", each.partition) for each in kept)
        other = T1 if mine == T0 else T0
        assert commit(rig, mine, epoch=1, member_id="a") is ErrorCode.NONE
        assert commit(rig, other, epoch=1, member_id="a") is ErrorCode.STALE_MEMBER_EPOCH
        assert commit(rig, mine, other, epoch=1, member_id="a") is ErrorCode.STALE_MEMBER_EPOCH

    def test_nobody_commits_for_a_group_without_members(self, rig):
        beat(rig, "a")
        beat(rig, "a", -1)
        assert commit(rig) is ErrorCode.NONE
        assert listed(rig) == {"g": ("consumer", "consumer", "Empty")}

    def test_a_transaction_commits(self, rig):
        beat(rig, "a")
        producer = Transactional(rig)
        assert producer.start() is ErrorCode.NONE
        assert producer.commit_offsets("g", {T0: 7}) is ErrorCode.NONE
        assert producer.end() is ErrorCode.NONE
        assert fetch(rig) == {T0}

    def test_offsets_of_subscribed_topics_are_not_deleted(self, rig):
        beat(rig, "a")
        commit(rig, T0, epoch=1, member_id="a")
        request = OffsetDeleteRequest("g", (T0,))
        refused = rig.soon(rig.broker.offset_delete(request))
        assert refused.errors == {T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
        beat(rig, "a", -1)
        assert rig.soon(rig.broker.offset_delete(request)).errors == {T0: ErrorCode.NONE}
        assert listed(rig) == {}  # with its last offset

    def test_they_stay_while_there_are_members(self, rig):
        restart(rig, offsets_retention_minutes=1)
        beat(rig, "a")
        commit(rig, epoch=1, member_id="a")
        for _ in range(10):
            rig.pass_time(30_000)
            assert beat(rig, "a", 1).error is ErrorCode.NONE
        assert rig.broker.committed.expire() == {}
        assert CommittedOffsets(rig.directory).expire() == {}  # as it is stored
        beat(rig, "a", -1)
        assert rig.broker.committed.expire() == {"g": (T0,)}


class TestChangingOver:
    def test_an_empty_classic_group(self, rig):
        member = classic_member(rig)
        assert commit(rig, epoch=member.generation, member_id=member.member_id) is ErrorCode.NONE
        refused = beat(rig, "a")
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "has members of the classic protocol" in refused.message
        assert leave(rig, LeavingMember(member.member_id)) == [ErrorCode.NONE]
        assert beat(rig, "a").error is ErrorCode.NONE
        assert listed(rig) == {"g": ("consumer", "consumer", "Stable")}
        assert fetch(rig) == {T0}
        assert (rig.broker.committed.load_groups(), classic_state(rig)) == ({}, "Dead")

    def test_what_a_classic_group_has_still_to_store_comes_too_late(self, rig):
        member = classic_member(rig)
        before = rig.broker.committed.load_group("g")
        leave(rig, LeavingMember(member.member_id))
        beat(rig, "a")
        rig.broker.committed.store_group("g", before)
        assert rig.broker.committed.load_groups() == {}

    def test_an_empty_group_becomes_classic(self, rig):
        beat(rig, "a")
        commit(rig, epoch=1, member_id="a")
        assert classic_join(rig).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        beat(rig, "a", -1)
        classic_member(rig)
        assert listed(rig) == {"g": ("classic", "consumer", "Stable")}
        assert fetch(rig) == {T0}
        assert rig.broker.committed.load_consumer_groups() == {}
        assert beat(rig, "a", 1).error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_group_of_which_only_offsets_are_known(self, rig):
        assert commit(rig) is ErrorCode.NONE
        assert beat(rig, "a").error is ErrorCode.NONE
        assert listed(rig) == {"g": ("consumer", "consumer", "Stable")}
        beat(rig, "a", -1)
        assert listed(rig) == {"g": ("consumer", "consumer", "Empty")}

    def test_a_refused_member_changes_nothing(self, rig):
        member = classic_member(rig)
        leave(rig, LeavingMember(member.member_id))
        assert beat(rig, "a", assignor="best").error is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert listed(rig) == {"g": ("classic", "consumer", "Empty")}


class TestRemoving:
    def test_an_administrator_removes_a_static_member(self, rig):
        beat(rig, "a", instance_id="x")
        assert leave(rig, LeavingMember("b", "x")) == [ErrorCode.FENCED_INSTANCE_ID]
        assert leave(rig, LeavingMember("", "x"), LeavingMember("", "y")) == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]
        assert described(rig).state == "Empty"

    def test_groups_are_deleted_with_their_offsets(self, rig):
        beat(rig, "a")
        commit(rig, epoch=1, member_id="a")
        commit(rig, group="alone")
        names = ("g", "alone", "never")
        assert rig.soon(rig.broker.delete_groups(names)) == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "alone": ErrorCode.NONE,
            "never": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        beat(rig, "a", -1)
        assert rig.soon(rig.broker.delete_groups(("g",))) == {"g": ErrorCode.NONE}
        assert (listed(rig), fetch(rig), rig.broker.committed.load_consumer_groups()) == ({}, set(), {})


class TestRestart:
    def test_the_group_goes_on_where_it_was(self, rig):
        first = beat(rig, "a", pattern="t")
        beat(rig, "b")
        beat(rig, "a", 1, owned=frozenset(first.assignment))
        before = described(rig)
        restart(rig)
        assert stored_consumer_states(rig.broker.committed) == {"g": GroupState(before.state)}
        assert described(rig) == before
        assert beat(rig, "a", 1).error is ErrorCode.NONE
        rig.pass_time(SESSION_MS)
        assert described(rig).state == "Empty"
        restart(rig)
        assert described(rig).state == "Empty"

    def test_members_of_the_process_are_gone_but_static_ones(self, rig):
        beat(rig, "a", client_host="in-process")
        beat(rig, "b", client_host="in-process", instance_id="x")
        beat(rig, "c")
        restart(rig)
        assert [each.member_id for each in described(rig).members] == ["b", "c"]

    def test_without_a_coordinator(self, rig):
        beat(rig, "a")
        found = describe_stored_consumer_group(rig.directory, rig.broker.committed, "g")
        assert found == described(rig)
        assert describe_stored_consumer_group(rig.directory, rig.broker.committed, "never") is None

    def test_a_heartbeat_that_brings_nothing_new_stores_nothing(self, rig):
        beat(rig, "a")
        log = rig.directory.log(OFFSETS)
        end = log.log_end_offset
        for _ in range(3):
            assert beat(rig, "a", 1).error is ErrorCode.NONE
        assert log.log_end_offset == end
