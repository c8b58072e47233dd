"""Members of groups and their offsets, as clients of every version see them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import OffsetCommitResult
from logstore.broker.share.requests import JOINING, ShareGroupHeartbeat
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from tests.broker.rig import T0, Transactional
from tests.wire.handlers.asking import Asking, is_waiting

OK = ErrorCode.NONE
BY_ID = 10
MANY = 8
SESSION_MS = 10_000


@pytest.fixture
def asking():
    return Asking()


def versions_of(key):
    return range(APIS[key].first, APIS[key].last + 1)


def join_request(member_id="", instance_id=None, group="g"):
    return join_group.JoinGroupRequest(
        group,
        SESSION_MS,
        SESSION_MS,
        member_id,
        instance_id,
        "consumer",
        (join_group.Protocol("range", b"said"),),
    )


def join(asking, version=9, instance_id=None, group="g"):
    """A member of a group of one: the response."""
    joined = asking.ask(ApiKey.JOIN_GROUP, join_request("", instance_id, group), version)
    if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        joined = asking.ask(ApiKey.JOIN_GROUP, join_request(joined.member_id, instance_id, group), version)
    assert joined.error_code == OK
    return joined


def sync(asking, joined, version=5, group="g"):
    names = ("consumer", "range") if version >= 5 else (None, None)
    assignments = (sync_group.Assignment(joined.member_id, b"part"),)
    request = sync_group.SyncGroupRequest(
        group, joined.generation_id, joined.member_id, None, *names, assignments
    )
    return asking.ask(ApiKey.SYNC_GROUP, request, version)


def topic_of(asking, module, version, name="t", *partitions):
    """A topic in a request, by its id where the version has that."""
    if version >= BY_ID:
        return module.Topic(topic_id=asking.node.topics.id_of(name), partitions=partitions)
    return module.Topic(name, partitions=partitions)


def commit(asking, version, *partitions, group="g", generation=-1, member_id=""):
    request = offset_commit.OffsetCommitRequest(
        group,
        generation,
        member_id,
        topics=(topic_of(asking, offset_commit, version, "t", *partitions),),
    )
    (topic,) = asking.ask(ApiKey.OFFSET_COMMIT, request, version).topics
    return [each.error_code for each in topic.partitions]


def fetch(asking, version, *numbers, group="g", require_stable=False, everything=False):
    """The rows of topic ``t``, and the group's error."""
    if version < MANY:
        topics = None if everything else (offset_fetch.TopicWanted("t", numbers),)
        request = offset_fetch.OffsetFetchRequest(group, topics)
        if version >= 7:
            request = request._replace(require_stable=require_stable)
        found = asking.ask(ApiKey.OFFSET_FETCH, request, version)
    else:
        topic = (
            offset_fetch.GroupTopic(topic_id=asking.node.topics.id_of("t"), partitions=numbers)
            if version >= BY_ID
            else offset_fetch.GroupTopic("t", partitions=numbers)
        )
        wanted = offset_fetch.Group(group, topics=None if everything else (topic,))
        request = offset_fetch.OffsetFetchRequest(groups=(wanted,), require_stable=require_stable)
        (found,) = asking.ask(ApiKey.OFFSET_FETCH, request, version).groups
        assert found.group_id == group
    rows = [tuple(each) for topic in found.topics for each in topic.partitions]
    return rows, found.error_code


class TestMembers:
    @pytest.mark.parametrize("version", versions_of(ApiKey.JOIN_GROUP))
    def test_a_life_in_each_version(self, asking, version):
        """Join, sync, heartbeat, leave; the others in the version beside it, as far as they go."""

        def beside(key):
            return min(version, APIS[key].last)

        first = asking.ask(ApiKey.JOIN_GROUP, join_request(), version)
        assert (first.error_code == ErrorCode.MEMBER_ID_REQUIRED) is (version >= 4)
        joined = first if version < 4 else join(asking, version)
        assert (joined.leader, joined.protocol_name) == (joined.member_id, "range")
        assert [each.metadata for each in joined.members] == [b"said"]
        synced = sync(asking, joined, beside(ApiKey.SYNC_GROUP))
        assert (synced.error_code, synced.assignment) == (OK, b"part")
        beat = heartbeat.HeartbeatRequest("g", joined.generation_id, joined.member_id)
        assert asking.ask(ApiKey.HEARTBEAT, beat, beside(ApiKey.HEARTBEAT)).error_code == OK
        leaves = leave_group.LeaveGroupRequest("g", joined.member_id)
        many = leave_group.LeaveGroupRequest("g", members=(leave_group.Member(joined.member_id),))
        version = beside(ApiKey.LEAVE_GROUP)
        for expected in (OK, ErrorCode.UNKNOWN_MEMBER_ID):
            left = asking.ask(ApiKey.LEAVE_GROUP, leaves if version < 3 else many, version)
            codes = [each.error_code for each in left.members] or [left.error_code]
            assert codes == [expected]
            assert version < 3 or left.error_code == OK

    def test_the_member_is_shown_with_its_client(self, asking):
        sync(asking, join(asking))
        request = describe_groups.DescribeGroupsRequest(("g",))
        (group,) = asking.ask(ApiKey.DESCRIBE_GROUPS, request).groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        (member,) = group.members
        assert (member.client_id, member.client_host) == ("tests", "/192.0.2.7")
        assert (member.member_metadata, member.member_assignment) == (b"said", b"part")

    def test_the_oldest_version_has_one_timeout_for_both(self, asking):
        """A member that does not come back is missed after its session timeout."""
        join(asking, 0)
        waits = asking.begin(ApiKey.JOIN_GROUP, join_request(), 0)
        asking.rig.pass_time(SESSION_MS - 1)
        assert is_waiting(waits)
        asking.rig.pass_time(1)
        assert asking.end(ApiKey.JOIN_GROUP, waits, 0).error_code == OK

    def test_static_members_leave_by_their_names(self, asking):
        join(asking, instance_id="one")
        members = (
            leave_group.Member("", "one"),
            leave_group.Member("", "two"),
        )
        left = asking.ask(ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest("g", members=members), 5)
        assert [(each.group_instance_id, each.error_code) for each in left.members] == [
            ("one", OK),
            ("two", ErrorCode.UNKNOWN_MEMBER_ID),
        ]

    def test_a_leader_that_restarts_keeps_the_assignment(self, asking):
        """It has to be told so, which old versions cannot (KIP-814)."""
        sync(asking, join(asking, instance_id="one"))
        for version in (8, 9):
            joined = join(asking, version, instance_id="one")
            assert joined.skip_assignment is (version == 9)
            assert (joined.leader == joined.member_id) is (version == 9)
            assert joined.generation_id == 1

    def test_members_say_which_protocol_they_follow(self, asking):
        joined = join(asking)
        request = sync_group.SyncGroupRequest("g", joined.generation_id, joined.member_id)
        assert asking.ask(ApiKey.SYNC_GROUP, request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert asking.ask(ApiKey.SYNC_GROUP, request, 4).error_code == OK


class TestOffsets:
    def test_each_version_reads_what_each_has_committed(self, asking):
        for number, version in enumerate(versions_of(ApiKey.OFFSET_COMMIT)):
            given = number % 2 * 7
            partition = offset_commit.Partition(
                0, 100 + number, *([given] if version >= 6 else [-1]), metadata="note" if number % 2 else None
            )
            assert commit(asking, version, partition) == [OK]
            for reads in versions_of(ApiKey.OFFSET_FETCH):
                rows, error = fetch(asking, reads, 0, 1)
                epoch = given if version >= 6 and reads >= 5 else -1
                note = "note" if number % 2 else ""
                assert rows == [(0, 100 + number, epoch, note, OK), (1, -1, -1, "", OK)]
                assert error == OK
                if reads >= 2:
                    assert fetch(asking, reads, everything=True)[0] == rows[:1]

    def test_members_alone_commit_while_there_are_some(self, asking):
        joined = join(asking)
        sync(asking, joined)
        one = offset_commit.Partition(0, 5)
        mine = {"generation": joined.generation_id, "member_id": joined.member_id}
        assert commit(asking, 9, one) == [ErrorCode.UNKNOWN_MEMBER_ID]
        assert commit(asking, 9, one, **mine) == [OK]
        assert commit(asking, 9, one, **{**mine, "generation": 99}) == [ErrorCode.ILLEGAL_GENERATION]

    def test_what_an_open_transaction_replaces_is_unstable(self, asking):
        assert commit(asking, 2, offset_commit.Partition(0, 5)) == [OK]
        producer = Transactional(asking.rig)
        producer.start()
        producer.commit_offsets("g", {T0: 6})
        for version in (7, 8, 9, 10):
            unstable = (0, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
            assert fetch(asking, version, 0, require_stable=True) == ([unstable], OK)
            assert fetch(asking, version, require_stable=True, everything=True) == ([unstable], OK)
            assert fetch(asking, version, 0)[0][0][1] == 5

    def test_ids_of_topics_that_there_are_not(self, asking):
        topic = offset_commit.Topic(partitions=(offset_commit.Partition(0, 5),))
        mixed = (topic, topic_of(asking, offset_commit, BY_ID, "t", offset_commit.Partition(1, 5)))
        request = offset_commit.OffsetCommitRequest("g", topics=mixed)
        found = asking.ask(ApiKey.OFFSET_COMMIT, request).topics
        assert [each.partitions[0].error_code for each in found] == [ErrorCode.UNKNOWN_TOPIC_ID, OK]
        wanted = offset_fetch.Group("g", topics=(offset_fetch.GroupTopic(partitions=(0,)),))
        (group,) = asking.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=(wanted,))).groups
        assert group.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    def test_what_is_not_there_is_told_to_strangers_too(self, asking):
        parts = offset_commit.Partition(0, 5), offset_commit.Partition(9, 5)
        request = offset_commit.OffsetCommitRequest(
            "g", 3, "stranger", topics=(topic_of(asking, offset_commit, 9, "t", *parts),)
        )
        (topic,) = asking.ask(ApiKey.OFFSET_COMMIT, request, 9).topics
        assert [each.error_code for each in topic.partitions] == [
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    def test_several_groups_at_once(self, asking):
        for number, group in enumerate(("g", "h")):
            commit(asking, 9, offset_commit.Partition(number, 5 + number), group=group)
        groups = tuple(offset_fetch.Group(each, topics=None) for each in ("h", "g", "none"))
        found = asking.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=groups), 9).groups
        rows = {
            each.group_id: [row[:2] for topic in each.topics for row in topic.partitions] for each in found
        }
        assert rows == {"h": [(1, 6)], "g": [(0, 5)], "none": []}
        assert list(rows) == ["h", "g", "none"]

    def test_old_versions_have_no_word_for_a_stale_member(self, asking):
        stale = OffsetCommitResult({T0: ErrorCode.STALE_MEMBER_EPOCH})
        asking.call.broker = SimpleNamespace(offset_commit=lambda _: Answered(stale))
        for version in versions_of(ApiKey.OFFSET_COMMIT):
            code = ErrorCode.UNSUPPORTED_VERSION if version < 9 else ErrorCode.STALE_MEMBER_EPOCH
            assert commit(asking, version, offset_commit.Partition(0, 5)) == [code]

    def test_delete(self, asking):
        commit(asking, 9, offset_commit.Partition(0, 5), offset_commit.Partition(1, 5))
        topics = (
            offset_delete.Topic("t", (offset_delete.Partition(0), offset_delete.Partition(9))),
            offset_delete.Topic("nowhere", (offset_delete.Partition(0),)),
        )
        found = asking.ask(ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest("g", topics))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert [[each.error_code for each in topic.partitions] for topic in found.topics] == [
            [OK, unknown],
            [unknown],
        ]
        assert [row[0] for row in fetch(asking, 9, everything=True)[0]] == [1]
        for group, code in (("", ErrorCode.INVALID_GROUP_ID), ("none", ErrorCode.GROUP_ID_NOT_FOUND)):
            request = offset_delete.OffsetDeleteRequest(group, topics)
            assert asking.ask(ApiKey.OFFSET_DELETE, request).error_code == code


class TestAdministering:
    @pytest.fixture
    def groups(self, asking):
        """A group with a member, one with offsets, and one that shares."""
        sync(asking, join(asking, group="g"), group="g")
        commit(asking, 9, offset_commit.Partition(0, 5), group="offsets")
        beat = ShareGroupHeartbeat("shares", "one", JOINING, ("t",))
        assert asking.rig.now(asking.rig.broker.share_group_heartbeat(beat)).error is OK
        return asking

    @pytest.mark.parametrize(
        ("states", "types", "expected"),
        [
            ((), (), {"g", "offsets", "shares"}),
            (("stable",), (), {"g", "shares"}),
            (("Empty", "Dead"), (), {"offsets"}),
            ((), ("Classic",), {"g", "offsets"}),
            (("Stable",), ("share", "consumer"), {"shares"}),
            ((), ("consumer",), set()),
        ],
    )
    def test_list(self, groups, states, types, expected):
        found = groups.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest(states, types)).groups
        assert {each.group_id for each in found} == expected
        kinds = {"g": ("consumer", "classic"), "offsets": ("", "classic"), "shares": ("share", "share")}
        for each in found:
            assert (each.protocol_type, each.group_type) == kinds[each.group_id]

    def test_a_group_that_there_is_not(self, asking):
        request = describe_groups.DescribeGroupsRequest(("none",), True)
        for version in versions_of(ApiKey.DESCRIBE_GROUPS):
            asked = request if version >= 3 else request._replace(include_authorized_operations=False)
            (group,) = asking.ask(ApiKey.DESCRIBE_GROUPS, asked, version).groups
            code = OK if version < 6 else ErrorCode.GROUP_ID_NOT_FOUND
            assert (group.group_id, group.group_state, group.error_code) == ("none", "Dead", code)
            assert (group.authorized_operations > 0) is (3 <= version < 6)

    def test_operations_that_are_authorized(self, groups):
        def operations(asking, asks):
            request = describe_groups.DescribeGroupsRequest(("g",), asks)
            return asking.ask(ApiKey.DESCRIBE_GROUPS, request).groups[0].authorized_operations

        held = Asking(groups.rig, denied=[(Operation.DELETE, ResourceType.GROUP, "g")])
        of_all = sum(1 << each for each in (3, 6, 8, 10, 11))
        assert operations(groups, True) == of_all
        assert operations(held, True) == of_all - (1 << Operation.DELETE)
        assert operations(held, False) == -(2**31)

    def test_delete(self, groups):
        def delete(*names):
            found = groups.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(names)).groups
            return {each.group_id: each.error_code for each in found}

        assert delete("g", "offsets", "shares", "none") == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "offsets": OK,
            "shares": ErrorCode.NON_EMPTY_GROUP,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        leaves = ShareGroupHeartbeat("shares", "one", -1)
        groups.rig.now(groups.rig.broker.share_group_heartbeat(leaves))
        assert delete("shares") == {"shares": OK}
        assert delete("shares") == {"shares": ErrorCode.GROUP_ID_NOT_FOUND}


GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
NO_GROUP, NO_TOPIC = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestWhatIsDenied:
    """By operation: group ``g`` as a whole, or of its topics ``t`` alone."""

    @pytest.mark.parametrize(
        ("key", "request_", "operation"),
        [
            (ApiKey.JOIN_GROUP, join_request(), Operation.READ),
            (ApiKey.SYNC_GROUP, sync_group.SyncGroupRequest("g"), Operation.READ),
            (ApiKey.HEARTBEAT, heartbeat.HeartbeatRequest("g"), Operation.READ),
            (ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest("g"), Operation.READ),
            (ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest("g"), Operation.DELETE),
        ],
        ids=str,
    )
    def test_one_group(self, asking, key, request_, operation):
        held = Asking(asking.rig, denied=[(operation, GROUP, "g")])
        assert held.ask(key, request_).error_code == NO_GROUP
        assert held.node.security.noted == [(operation, GROUP, "g")]
        assert asking.ask(key, request_).error_code != NO_GROUP

    def test_of_several_groups_one(self, asking):
        held = Asking(asking.rig, denied=[(Operation.DESCRIBE, GROUP, "h"), (Operation.DELETE, GROUP, "h")])
        for group in ("g", "h"):
            commit(asking, 9, offset_commit.Partition(0, 5), group=group)
        described = held.ask(ApiKey.DESCRIBE_GROUPS, describe_groups.DescribeGroupsRequest(("g", "h"))).groups
        assert [each.error_code for each in described] == [OK, NO_GROUP]
        wanted = tuple(offset_fetch.Group(each, topics=None) for each in ("g", "h"))
        fetched = held.ask(ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=wanted)).groups
        assert [(each.error_code, len(each.topics)) for each in fetched] == [(OK, 1), (NO_GROUP, 0)]
        assert fetch(held, 1, 0, group="h") == ([(0, -1, -1, "", NO_GROUP)], 0)
        assert fetch(held, 2, 0, group="h") == ([], NO_GROUP)
        deleted = held.ask(ApiKey.DELETE_GROUPS, delete_groups.DeleteGroupsRequest(("h", "g"))).groups
        assert [each.error_code for each in deleted] == [NO_GROUP, OK]

    def test_listed_is_what_may_be_seen(self, asking):
        for group in ("g", "h"):
            commit(asking, 9, offset_commit.Partition(0, 5), group=group)
        no_h = (Operation.DESCRIBE, GROUP, "h")
        no_cluster = (Operation.DESCRIBE, ResourceType.CLUSTER, None)
        for denied, expected in (((no_h,), {"g", "h"}), ((no_h, no_cluster), {"g"})):
            held = Asking(asking.rig, denied=denied)
            found = held.ask(ApiKey.LIST_GROUPS, list_groups.ListGroupsRequest()).groups
            assert {each.group_id for each in found} == expected
            assert held.node.security.noted == []  # it was not asked for by name

    def test_one_topic_of_several(self, asking):
        asking.rig.directory.create_topic("u", 1, None)
        held = Asking(
            asking.rig, denied=[(each, TOPIC, "t") for each in (Operation.READ, Operation.DESCRIBE)]
        )
        for version in (9, 10):
            topics = tuple(
                topic_of(asking, offset_commit, version, name, offset_commit.Partition(0, 5))
                for name in ("t", "u")
            )
            request = offset_commit.OffsetCommitRequest("g", topics=topics)
            found = held.ask(ApiKey.OFFSET_COMMIT, request, version).topics
            assert [each.partitions[0].error_code for each in found] == [NO_TOPIC, OK]
        commit(asking, 9, offset_commit.Partition(0, 5))
        assert fetch(held, 9, 0) == ([(0, -1, -1, "", NO_TOPIC)], OK)
        assert fetch(held, 9, everything=True) == ([(0, 5, -1, "", OK)], OK)  # of topic u alone
        topics = tuple(offset_delete.Topic(each, (offset_delete.Partition(0),)) for each in ("t", "u"))
        found = held.ask(ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest("g", topics)).topics
        assert [each.partitions[0].error_code for each in found] == [NO_TOPIC, OK]

    def test_all_topics(self, asking):
        """Nothing is left to ask the broker."""
        held = Asking(asking.rig, denied=[(Operation.READ, TOPIC, None)])
        assert commit(held, 9, offset_commit.Partition(0, 5), offset_commit.Partition(1, 5)) == [NO_TOPIC] * 2
        topics = (offset_delete.Topic("t", (offset_delete.Partition(0),)),)
        (found,) = held.ask(ApiKey.OFFSET_DELETE, offset_delete.OffsetDeleteRequest("g", topics)).topics
        assert found.partitions[0].error_code == NO_TOPIC


def test_the_group_of_a_commit_without_a_name(asking):
    """Kafka's oldest clients commit for it, if they follow no group."""
    assert commit(asking, 2, offset_commit.Partition(0, 5), group="") == [OK]
    assert fetch(asking, 2, 0, group="") == ([(0, 5, -1, "", OK)], OK)
