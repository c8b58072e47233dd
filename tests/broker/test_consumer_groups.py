"""Groups of the newer protocol at the seam: their offsets, how groups change over, and what is stored."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.consumer_groups.states import GroupState
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
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
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    by_topic,
    decode_assignment,
    encode_assignment,
    encode_subscription,
    ungrouped,
)
from logstore.logdir.directory import LogDirectory
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
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


def classic_request(group="g", **fields):
    subscription = encode_subscription(ConsumerProtocolSubscription(("t",)))
    return JoinGroup(group, "consumer", (GroupProtocol("range", subscription),), 10_000, 10_000, **fields)


def classic_join(rig, group="g"):
    return rig.soon(rig.broker.join_group(classic_request(group)))


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


class TestClassicGroupsThatExpire:
    MINUTES = 10 * 60_000

    def test_they_go_after_their_last_offset(self, rig):
        """They were listed, and kept in memory, until somebody deleted them."""
        restart(rig, offsets_retention_minutes=15)
        member = classic_member(rig)
        assert commit(rig, epoch=member.generation, member_id=member.member_id) is ErrorCode.NONE
        assert leave(rig, LeavingMember(member.member_id)) == [ErrorCode.NONE]
        rig.pass_time(self.MINUTES)
        assert listed(rig) == {"g": ("classic", "consumer", "Empty")}
        rig.pass_time(self.MINUTES)
        rig.pass_time(self.MINUTES)
        assert (listed(rig), classic_state(rig)) == ({}, "Dead")
        assert rig.broker.committed.load_groups() == {}
        restart(rig, offsets_retention_minutes=15)
        assert listed(rig) == {}

    def test_they_stay_with_members_or_offsets_and_without_the_setting(self, rig):
        member = classic_member(rig)
        assert leave(rig, LeavingMember(member.member_id)) == [ErrorCode.NONE]
        rig.pass_time(self.MINUTES)
        assert listed(rig) == {"g": ("classic", "consumer", "Empty")}
        restart(rig, offsets_retention_minutes=25)
        assert commit(rig) is ErrorCode.NONE
        rig.pass_time(self.MINUTES)
        assert listed(rig) == {"g": ("classic", "consumer", "Empty")}

    def test_what_is_committed_meanwhile_stays(self, rig, monkeypatch):
        restart(rig, offsets_retention_minutes=15)
        member = classic_member(rig)
        assert leave(rig, LeavingMember(member.member_id)) == [ErrorCode.NONE]
        has_any = CommittedOffsets.has_any

        def commit_after(committed, group):
            found = has_any(committed, group)
            monkeypatch.undo()
            assert commit(rig) is ErrorCode.NONE
            return found

        monkeypatch.setattr(CommittedOffsets, "has_any", commit_after)
        rig.pass_time(self.MINUTES)
        assert fetch(rig) == {T0}


class TestChangingOver:
    def test_an_empty_classic_group(self, rig):
        member = classic_member(rig)
        assert commit(rig, epoch=member.generation, member_id=member.member_id) is ErrorCode.NONE
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


def classic_beat(rig, member_id, generation, instance_id=None):
    return rig.soon(rig.broker.heartbeat(Heartbeat("g", generation, member_id, instance_id)))


def rejoin(rig, member_id, *owned, generation=-1, takes=(T0, T1), **fields):
    """A cooperative member joins again, and asks for what it has then; if it leads, it takes these."""
    said = ConsumerProtocolSubscription(("t",), None, by_topic(owned), generation)
    given = {"member_id": member_id, **fields}
    protocols = (GroupProtocol("range", encode_subscription(said)),)
    joined = rig.soon(rig.broker.join_group(JoinGroup("g", "consumer", protocols, 10_000, 8_000, **given)))
    if joined.error is not ErrorCode.NONE:
        return joined.error
    instance_id = fields.get("instance_id")
    parts = {joined.member_id: encode_assignment(ConsumerProtocolAssignment(by_topic(takes)))}
    sync = SyncGroup("g", joined.generation, joined.member_id, instance_id, assignments=parts)
    synced = rig.soon(rig.broker.sync_group(sync))
    if synced.error is not ErrorCode.NONE:
        return synced.error
    assigned = decode_assignment(synced.assignment).assigned_partitions
    return joined.member_id, joined.generation, set(ungrouped(assigned))


class TestTimesOfAGroup:
    def test_they_are_its_own(self, rig):
        times = {"consumer.session.timeout.ms": "9000", "consumer.heartbeat.interval.ms": "1000"}
        rig.broker.group_settings.alter("g", times)
        assert beat(rig, "a").heartbeat_interval_ms == 1_000
        assert beat(rig, "b", group="other").heartbeat_interval_ms == 5_000
        rig.pass_time(10_000)
        assert (described(rig).members, len(described(rig, "other").members)) == ((), 1)

    def test_they_change_while_it_goes_on(self, rig):
        beat(rig, "a")
        rig.broker.group_settings.alter("g", {"consumer.session.timeout.ms": "9000"})
        beat(rig, "a", 1)
        rig.pass_time(10_000)
        assert described(rig).members == ()

    def test_those_of_the_store_may_have_changed_since(self, rig):
        rig.broker.group_settings.alter("g", {"consumer.heartbeat.interval.ms": "30000"})
        restart(rig, group_consumer_session_timeout_ms=9_000)
        assert beat(rig, "a").heartbeat_interval_ms == 3_000


class TestBothProtocols:
    """``me`` is a member of the classic protocol, ``a`` one of the newer."""

    def begin(self, rig):
        """``me`` has both partitions when ``a`` comes."""
        me, generation, owned = rejoin(rig, "")
        assert owned == {T0, T1}
        assert beat(rig, "a").assignment == ()
        assert listed(rig) == {"g": ("consumer", "consumer", "Reconciling")}
        return me, generation

    def test_one_changes_over_while_the_other_keeps_its_partition(self, rig):
        me, generation = self.begin(rig)
        assert commit(rig, epoch=generation, member_id=me) is ErrorCode.NONE
        assert commit(rig, epoch=9, member_id=me) is ErrorCode.ILLEGAL_GENERATION
        assert classic_beat(rig, me, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        _, generation, owned = rejoin(rig, me, T0, T1, generation=generation)
        (kept,) = owned
        assert classic_beat(rig, me, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        assert beat(rig, "a", 2).assignment is None  # not before it is given up
        assert rejoin(rig, me, kept, generation=generation) == (me, 2, {kept})
        assert classic_beat(rig, me, 2) is ErrorCode.NONE
        (given,) = beat(rig, "a", 2).assignment
        assert {given.partition, kept.partition} == {0, 1}
        assert {each.member_id: each.is_classic for each in described(rig).members} == {me: True, "a": False}
        assert listed(rig) == {"g": ("consumer", "consumer", "Stable")}

    def test_what_one_has_still_to_give_up_goes_to_nobody_when_the_group_changes_over(self, rig):
        me, generation, _ = rejoin(rig, "")
        assert rejoin(rig, me, T0, T1, generation=generation, takes=(T0,)) == (me, 2, {T0})
        assert beat(rig, "a").assignment == ()  # it may be at its last records of T1
        assert classic_beat(rig, me, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert rejoin(rig, me, T0, generation=2) == (me, 3, {T0})
        assert [each.partition for each in beat(rig, "a", 3).assignment] == [1]

    def test_an_eager_one_has_given_up_all_when_it_joins(self, rig):
        me, _ = self.begin(rig)
        _, generation, owned = rejoin(rig, me)
        assert (generation, len(owned)) == (2, 1)
        assert len(beat(rig, "a", 2).assignment) == 1

    @pytest.mark.parametrize("leaves", [True, False])
    def test_the_last_newer_one_goes(self, rig, leaves):
        me, _ = self.begin(rig)
        rejoin(rig, me)
        if leaves:
            beat(rig, "a", -1)
        else:
            for _ in range(10):
                rig.pass_time(SESSION_MS // 9)
                classic_beat(rig, me, 2)
        assert listed(rig) == {"g": ("classic", "consumer", "PreparingRebalance")}
        assert rig.broker.committed.load_consumer_groups() == {}
        assert commit(rig, epoch=2, member_id=me) is ErrorCode.NONE
        assert classic_beat(rig, me, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert rejoin(rig, me) == (me, 3, {T0, T1})
        restart(rig)
        assert listed(rig) == {"g": ("classic", "consumer", "Stable")}

    def test_who_is_behind_when_the_last_newer_one_goes_keeps_what_it_has_too(self, rig):
        me, generation = self.begin(rig)
        other = rejoin(rig, "other")[0]
        beat(rig, "a", -1)
        assert rig.broker.committed.load_group("g").generation > generation
        assert classic_beat(rig, me, generation) is ErrorCode.REBALANCE_IN_PROGRESS
        assert classic_beat(rig, me, generation + 1) is ErrorCode.ILLEGAL_GENERATION
        assert commit(rig, epoch=generation, member_id=me) is ErrorCode.NONE
        assert classic_beat(rig, other, rig.broker.committed.load_group("g").generation)

    def test_a_static_member_changes_over_and_back(self, rig):
        me, _, owned = rejoin(rig, "", instance_id="x")
        assert beat(rig, "a", instance_id="x").member_epoch == 1  # it gets what its former self had
        assert len(described(rig).members[0].assignment) == len(owned) == 2
        assert classic_beat(rig, me, 1, "x") is ErrorCode.FENCED_INSTANCE_ID
        assert rejoin(rig, "", instance_id="x") is ErrorCode.REBALANCE_IN_PROGRESS
        assert beat(rig, "a", 1, instance_id="x").error is ErrorCode.GROUP_ID_NOT_FOUND
        assert listed(rig) == {"g": ("classic", "consumer", "PreparingRebalance")}  # somebody has to lead it
        again, generation, owned = rejoin(rig, "", instance_id="x")
        assert (generation, owned) == (2, {T0, T1})
        assert classic_beat(rig, again, 2, "x") is ErrorCode.NONE

    def test_one_that_waits_for_a_rebalance_has_joined(self, rig):
        """Any error would end a consumer of aiokafka."""
        me = rejoin(rig, "")[0]
        waits = rig.broker.join_group(classic_request())
        assert waits.poll() is None
        beat(rig, "a")
        joined = rig.soon(waits)
        assert joined.error is ErrorCode.NONE
        assert {each.member_id for each in described(rig).members} == {me, "a", joined.member_id}
        assert classic_beat(rig, joined.member_id, joined.generation) is ErrorCode.NONE
        assert classic_beat(rig, me, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def test_an_eager_one_that_waits_for_a_rebalance_has_given_up_all(self, rig):
        me = rejoin(rig, "")[0]
        joins = [rig.broker.join_group(classic_request(member_id=member_id)) for member_id in ("", me)]
        for joined in map(rig.soon, joins):
            parts = {me: encode_assignment(ConsumerProtocolAssignment(by_topic((T0, T1))))}
            sync = SyncGroup("g", joined.generation, joined.member_id, assignments=parts)
            waits = rig.broker.sync_group(sync)
        assert rig.soon(waits).error is ErrorCode.NONE
        waits = rig.broker.join_group(classic_request(member_id=me))
        assert waits.poll() is None  # for the other one
        assert beat(rig, "a").assignment == ()
        assert rig.soon(waits)[:3] == (ErrorCode.NONE, me, 3)
        assert {each.member_id: len(each.assignment) for each in described(rig).members}[me] == 1

    @pytest.mark.parametrize("is_refused", [False, True])
    def test_an_assignment_that_is_stored_meanwhile(self, rig, monkeypatch, is_refused):
        """Its members hear of it only if the group stays a classic one: else others may get what it says."""
        joined = classic_join(rig)
        groups = rig.broker._groups
        unwritten = []
        monkeypatch.setattr(groups._storage, "store", lambda group, done: unwritten.append(done))
        parts = {joined.member_id: encode_assignment(ConsumerProtocolAssignment(by_topic((T0, T1))))}
        sync = SyncGroup("g", joined.generation, joined.member_id, assignments=parts)
        waits = rig.broker.sync_group(sync)
        newer = groups._coordinators().newer
        take = newer.heartbeat

        def take_later(*request):
            unwritten.pop()(ErrorCode.NONE)
            return take(*request)

        monkeypatch.setattr(newer, "heartbeat", take_later)
        came = beat(rig, "a", **({"assignor": "best"} if is_refused else {}))
        assert came.error is (ErrorCode.UNSUPPORTED_ASSIGNOR if is_refused else ErrorCode.NONE)
        synced = rig.soon(waits)
        assert synced.error is (ErrorCode.NONE if is_refused else ErrorCode.REBALANCE_IN_PROGRESS)
        assert bool(synced.assignment) is is_refused

    @pytest.mark.parametrize("does", ["nothing", "beats", "joins", "all"])
    def test_who_does_not_do_what_it_is_told_is_removed(self, rig, does):
        me, generation = self.begin(rig)
        for _ in range(12):
            rig.pass_time(1_000)
            beat(rig, "a", 2)
            if does == "beats":
                classic_beat(rig, me, generation)
            elif does == "joins":
                rig.soon(rig.broker.join_group(classic_request(member_id=me)))
                break
            elif does == "all":
                rejoin(rig, me)
        for _ in range(12):
            rig.pass_time(1_000)
            classic_beat(rig, me, 2)
            beat(rig, "a", 2)
        assert {each.member_id for each in described(rig).members} == ({"a", me} if does == "all" else {"a"})

    def test_who_was_removed_hears_so_before_it_is_let_in_again(self, rig):
        """Else it would commit in the new generation what others have by now."""
        me, generation = self.begin(rig)
        leave(rig, LeavingMember(me))
        assert rejoin(rig, me, T0, generation=generation) is ErrorCode.UNKNOWN_MEMBER_ID
        assert rejoin(rig, me)[0] == me

    def test_policies(self, rig):
        for policy in ("disabled", "downgrade"):
            restart(rig, group_consumer_migration_policy=policy)
            me, generation, _ = rejoin(rig, "")
            refused = beat(rig, "a")
            assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
            assert f"group_consumer_migration_policy is '{policy}'" in refused.message
            assert classic_beat(rig, me, generation) is ErrorCode.NONE
            leave(rig, LeavingMember(me))
        for policy in ("disabled", "upgrade"):
            restart(rig, group_consumer_migration_policy=policy)
            beat(rig, "a")
            me = rejoin(rig, "me")[0]
            beat(rig, "a", -1)
            rejoin(rig, me)
            assert listed(rig) == {"g": ("consumer", "consumer", "Stable")}
            assert classic_beat(rig, me, described(rig).group_epoch) is ErrorCode.NONE
            leave(rig, LeavingMember(me))

    @pytest.mark.parametrize("assignor", ["mine", "cooperative-sticky"])
    def test_an_assignor_that_tells_more_than_partitions(self, rig, assignor):
        """It is refused, unless it is one of Kafka's: librdkafka's say more, and nobody reads that."""
        said = encode_subscription(ConsumerProtocolSubscription(("t",)))
        request = classic_request()._replace(protocols=(GroupProtocol(assignor, said),))
        joined = rig.soon(rig.broker.join_group(request))
        told = encode_assignment(ConsumerProtocolAssignment((), b"more"))
        sync = SyncGroup("g", joined.generation, joined.member_id, assignments={joined.member_id: told})
        rig.soon(rig.broker.sync_group(sync))
        refused = beat(rig, "a")
        if assignor != "mine":
            assert refused.error is ErrorCode.NONE
            return
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "choose range, roundrobin or a sticky one" in refused.message
        assert classic_beat(rig, joined.member_id, 1) is ErrorCode.NONE

    @pytest.mark.parametrize("said", [b"", b"\0", encode_subscription(ConsumerProtocolSubscription(("t",)))])
    def test_no_consumers(self, rig, said):
        protocols = (GroupProtocol("range", said),)
        kind = "connect" if len(said) > 2 else "consumer"
        joined = rig.soon(rig.broker.join_group(JoinGroup("g", kind, protocols, 10_000, 10_000)))
        sync = SyncGroup("g", joined.generation, joined.member_id, assignments={})
        assert rig.soon(rig.broker.sync_group(sync)).error is ErrorCode.NONE
        refused = beat(rig, "a")
        assert refused.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert "its members are of the type" in refused.message or "cannot be read" in refused.message

    def test_partitions_that_came_since_the_last_generation_are_assigned(self, rig):
        rejoin(rig, "", instance_id="x")
        request = CreatePartitionsRequest((MorePartitions("t", 3),))
        assert not rig.now(rig.broker.create_partitions(request)).topics[0].error
        assert len(beat(rig, "a", instance_id="x").assignment) == 3

    def test_partitions_that_come_are_seen_by_the_next_heartbeat_of_either(self, rig):
        me, _ = self.begin(rig)
        rejoin(rig, me)
        request = CreatePartitionsRequest((MorePartitions("t", 3),))
        assert not rig.now(rig.broker.create_partitions(request)).topics[0].error
        assert classic_beat(rig, me, 2) is ErrorCode.REBALANCE_IN_PROGRESS
        assert beat(rig, "a", 2).member_epoch == 3

    def test_after_a_restart_both_go_on(self, rig):
        me, _ = self.begin(rig)
        rejoin(rig, me)
        before = described(rig)
        restart(rig)
        assert described(rig) == before
        assert classic_beat(rig, me, 2) is ErrorCode.NONE
        restart(rig)
        beat(rig, "a", -1)
        assert listed(rig) == {"g": ("classic", "consumer", "PreparingRebalance")}

    def test_a_group_that_was_stored_with_classic_members_only(self, rig):
        restart(rig, group_consumer_migration_policy="upgrade")
        me, _ = self.begin(rig)
        beat(rig, "a", -1)
        restart(rig)
        assert listed(rig) == {"g": ("classic", "consumer", "PreparingRebalance")}
        assert rejoin(rig, me)[2] == {T0, T1}

    def test_a_full_disk_keeps_the_group_as_it_is(self):
        files = FaultyFiles(MemoryFiles())
        rig = Rig(files=files)
        me, _ = self.begin(rig)
        rejoin(rig, me)
        groups = rig.broker._groups._coordinators().newer
        with groups._groups["g"].lock:
            after = groups._groups["g"].group.copy()
            after.remove("a")
            groups._groups["g"].change(after)
        files.fail(FAULTS["ENOSPC"], times=None)
        groups._has_changed("g")
        assert listed(rig) == {"g": ("consumer", "consumer", "Assigning")}
        files.heal()
        leave(rig, LeavingMember("nobody"))
        assert listed(rig) == {"g": ("classic", "consumer", "PreparingRebalance")}


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
