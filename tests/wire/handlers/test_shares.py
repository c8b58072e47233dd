"""Share groups over the protocol: sessions, what is refused, and what other requests tell of them. 2 s."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.broker.codes import ErrorCode
from logstore.broker.share.requests import ShareGroupConfig, ShareGroupHeartbeat
from logstore.logdir.acls import Operation, ResourceType
from logstore.model import Isolation
from logstore.wire.apis import ApiKey
from logstore.wire.handlers.share_sessions import Member, ShareSessions
from logstore.wire.handlers.shares.said import release_rest
from logstore.wire.messages.groups.delete_groups import DeleteGroupsRequest
from logstore.wire.messages.groups.describe_groups import DescribeGroupsRequest
from logstore.wire.messages.groups.list_groups import ListGroupsRequest
from logstore.wire.messages.groups.offset_commit import OffsetCommitRequest
from logstore.wire.messages.groups.offset_commit import Partition as CommitPartition
from logstore.wire.messages.groups.offset_commit import Topic as CommitTopic
from logstore.wire.messages.shares import alter_share_group_offsets as alter_offsets
from logstore.wire.messages.shares import delete_share_group_offsets as delete_offsets
from logstore.wire.messages.shares import describe_share_group_offsets as describe_offsets
from logstore.wire.messages.shares.acknowledged import Acknowledgements, Partition, Topic
from logstore.wire.messages.shares.share_acknowledge import ShareAcknowledgeRequest
from logstore.wire.messages.shares.share_fetch import ForgottenTopic, ShareFetchRequest
from logstore.wire.messages.shares.share_group_describe import ShareGroupDescribeRequest
from logstore.wire.messages.shares.share_group_heartbeat import ShareGroupHeartbeatRequest
from logstore.wire.messages.topics.incremental_alter_configs import (
    Config,
    IncrementalAlterConfigsRequest,
    Resource,
)
from tests.broker.rig import T1, Rig, Transactional
from tests.wire.handlers.asking import Asking, is_waiting

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = 32
SESSION_MS = 45_000
NOWHERE = uuid.UUID(int=7)


class Shares(Asking):
    """A client that is a member of groups, and words for what it asks."""

    def topic_id(self, name="t"):
        return self.node.topics.id_of(name)

    def beat(self, member="m", epoch=0, topics=("t",), group="g", rack=None):
        request = ShareGroupHeartbeatRequest(group, member, epoch, rack, topics)
        return self.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request)

    def set_up(self, *members, **config):
        settings = {"share.auto.offset.reset": "earliest"} | {
            name.replace("_", "."): value for name, value in config.items()
        }
        assert self.configure("g", **settings) == ErrorCode.NONE
        for each in members or ("m",):
            assert self.beat(each).error_code == ErrorCode.NONE

    def configure(self, group, operation=0, **config):
        changes = tuple(
            Config(name.replace("_", "."), operation, None if operation == 1 else value)
            for name, value in config.items()
        )
        request = IncrementalAlterConfigsRequest((Resource(GROUP, group, changes),))
        return self.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).resources[0].error_code

    def said(self, *batches, number=0, topic_id=None):
        """Of one partition: first, last and kinds of each batch."""
        told = tuple(Acknowledgements(first, last, tuple(kinds)) for first, last, *kinds in batches)
        return Topic(topic_id or self.topic_id(), (Partition(number, told),))

    def fetch_request(self, member="m", epoch=0, topics=None, **fields):
        topics = (self.said(),) if topics is None else topics
        fields = {"max_records": 10, "max_wait_ms": 0, "group_id": "g"} | fields
        return ShareFetchRequest(member_id=member, share_session_epoch=epoch, topics=topics, **fields)

    def fetch(self, member="m", epoch=0, topics=None, version=None, **fields):
        return self.ask(ApiKey.SHARE_FETCH, self.fetch_request(member, epoch, topics, **fields), version)

    def acknowledge(self, member="m", epoch=1, *topics, version=None, group="g", renews=False):
        request = ShareAcknowledgeRequest(group, member, epoch, renews, topics)
        return self.ask(ApiKey.SHARE_ACKNOWLEDGE, request, version)

    def outcome(self, epoch, *batches, **fields):
        """The code of what is said of one partition."""
        found = self.acknowledge("m", epoch, self.said(*batches), **fields)
        assert found.error_code == ErrorCode.NONE
        return found.topics[0].partitions[0].error_code


def acquired(response):
    assert response.error_code == ErrorCode.NONE, response
    return [
        (part.partition, *one)
        for topic in response.topics
        for part in topic.partitions
        for one in part.acquired_records
    ]


@pytest.fixture
def shares():
    made = Shares()
    made.rig.produce(*[b"x"] * 4)
    return made


# Sessions ---

MEMBERS = [Member("g", "one"), Member("g", "two"), Member("h", "one")]
PLACES = [(uuid.UUID(int=topic), number) for topic in (1, 2) for number in (0, 1)]
FETCHES = st.tuples(
    st.just("fetch"),
    st.sampled_from(MEMBERS),
    st.sampled_from(["first", "right", "right", "right", "wrong", "last"]),
    st.lists(st.sampled_from(PLACES), max_size=3),
    st.lists(st.sampled_from(PLACES), max_size=2),
    st.booleans(),
    st.integers(0, 2),
)
SAYS = st.tuples(
    st.just("acknowledge"), st.sampled_from(MEMBERS), st.sampled_from(["first", "right", "wrong", "last"])
)
ENDS = st.tuples(st.just("end"), st.integers(0, 2))


@settings(max_examples=300)
@given(st.lists(st.one_of(FETCHES, FETCHES, SAYS, ENDS), max_size=25))
def test_sessions_are_as_in_a_model(steps):
    """Each member has one; requests are counted; two places; a session goes with its connection."""
    sessions, model = ShareSessions(slots=2), {}
    owners = [object() for _ in range(3)]
    for kind, *given_ in steps:
        if kind == "end":
            gone = sessions.end_of(owners[given_[0]])
            assert set(gone) == {member for member, each in model.items() if each[0] == given_[0]}
            for member in gone:
                del model[member]
            continue
        member, how, *rest = given_
        known = model.get(member)
        right = known[1] if known else 1
        epoch = {"first": 0, "last": -1, "right": right, "wrong": right + 3}[how]
        if kind == "fetch":
            added, forgotten, says, owner = rest
            opened = sessions.fetch(
                owners[owner], member, epoch, added=added, forgotten=forgotten, says_something=says
            )
        else:
            opened = sessions.acknowledge(member, epoch)
        if how == "first":
            if kind == "acknowledge":
                expected = ErrorCode.INVALID_SHARE_SESSION_EPOCH
            elif says:
                expected = ErrorCode.INVALID_REQUEST
            else:
                model.pop(member, None)
                expected = ErrorCode.SHARE_SESSION_LIMIT_REACHED if len(model) == 2 else ErrorCode.NONE
                if expected is ErrorCode.NONE:
                    model[member] = [owner, 1, set(added)]
        elif known is None:
            expected = ErrorCode.SHARE_SESSION_NOT_FOUND
        elif how == "last":
            expected = ErrorCode.NONE
            del model[member]
        elif how == "wrong":
            expected = ErrorCode.INVALID_SHARE_SESSION_EPOCH
        else:
            expected = ErrorCode.NONE
            known[1] += 1
            if kind == "fetch":
                known[2] = (known[2] - set(forgotten)) | set(added)
        assert opened.error is expected
        assert opened.is_last == (how == "last" and expected is ErrorCode.NONE)
        if kind == "fetch" and expected is ErrorCode.NONE and how != "last":
            assert set(opened.wanted) == model[member][2]
        assert len(sessions) == len(model)


def test_the_epoch_after_the_last_is_the_first_but_one():
    sessions = ShareSessions()
    sessions.fetch(None, MEMBERS[0], 0)
    sessions._sessions[MEMBERS[0]].epoch = 2**31 - 1
    assert sessions.acknowledge(MEMBERS[0], 2**31 - 1).error is ErrorCode.NONE
    assert sessions.acknowledge(MEMBERS[0], 1).error is ErrorCode.NONE


def test_every_partition_of_a_session_comes_first_in_turn():
    sessions = ShareSessions()
    sessions.fetch(None, MEMBERS[0], 0, added=PLACES)
    firsts = [sessions.fetch(None, MEMBERS[0], epoch).wanted[0] for epoch in range(1, 5)]
    assert sorted(firsts) == PLACES


def test_a_session_names_only_what_changes(shares):
    shares.set_up()
    shares.rig.produce(b"y", to=T1)
    assert acquired(shares.fetch(max_records=2)) == [(0, 0, 1, 1)]
    assert acquired(shares.fetch(epoch=1, topics=(), max_records=1)) == [(0, 2, 2, 1)]
    assert acquired(shares.fetch(epoch=2, topics=(shares.said(number=1),), max_records=1)) == [(1, 0, 0, 1)]
    left = (ForgottenTopic(shares.topic_id(), (0,)),)
    assert acquired(shares.fetch(epoch=3, topics=(), forgotten_topics=left)) == []
    assert acquired(shares.fetch(epoch=4)) == [(0, 3, 3, 1)]


@pytest.mark.parametrize("ends", ["acknowledge", "fetch", "connection"])
def test_the_end_of_a_session_gives_the_rest_back(shares, ends):
    shares.set_up("m", "n")
    assert acquired(shares.fetch()) == [(0, 0, 3, 1)]
    shares.fetch("n")
    if ends == "acknowledge":
        assert shares.outcome(-1, (0, 0, ACCEPT)) == ErrorCode.NONE
    elif ends == "fetch":
        found = shares.fetch(epoch=-1, topics=(shares.said((0, 0, ACCEPT)),))
        assert (acquired(found), found.topics[0].partitions[0].acknowledge_error_code) == ([], 0)
    else:
        shares.outcome(1, (0, 0, ACCEPT))
        for member in shares.node.share_sessions.end_of(shares.call):
            release_rest(shares.call, member)
    assert shares.acknowledge("m", 2).error_code in (ErrorCode.SHARE_SESSION_NOT_FOUND,)
    if ends == "connection":
        assert shares.fetch("n", 1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(shares.fetch("n")) == [(0, 1, 3, 2)]


# What became of records ---


@pytest.mark.parametrize("version", [1, 2])
def test_kinds_for_each_offset_are_cut_into_runs(shares, version):
    shares.set_up()
    shares.fetch(version=version)
    kinds = (0, 3, ACCEPT, RELEASE, RELEASE, REJECT)
    found = shares.fetch(epoch=1, topics=(shares.said(kinds),), version=version)
    assert acquired(found) == [(0, 1, 2, 2)]
    assert found.topics[0].partitions[0].acknowledge_error_code == ErrorCode.NONE
    assert found.acquisition_lock_timeout_ms == 30_000


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, ACCEPT)],
        [(-1, 0, ACCEPT)],
        [(0, 1)],
        [(0, 2, ACCEPT, ACCEPT)],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(1, 2, ACCEPT), (0, 0, ACCEPT)],
        [(0, 1, ACCEPT), (1, 2, ACCEPT)],
        [(0, 0, RENEW)],
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(shares, batches):
    shares.set_up()
    shares.fetch()
    assert shares.outcome(1, *batches) == ErrorCode.INVALID_REQUEST
    found = shares.fetch(epoch=2, topics=(shares.said(*batches),), max_wait_ms=10_000)
    assert found.topics[0].partitions[0].acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert shares.outcome(3, (0, 3, ACCEPT)) == ErrorCode.NONE


@pytest.mark.parametrize("with_fetch", [False, True])
def test_all_of_a_partition_count_or_none(shares, with_fetch):
    shares.set_up()
    shares.fetch(max_records=2)
    batches = [(0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, ACCEPT)]
    if with_fetch:
        found = shares.fetch(epoch=1, topics=(shares.said(*batches),), max_records=0)
        code = found.topics[0].partitions[0].acknowledge_error_code
    else:
        code = shares.outcome(1, *batches)
    assert code == ErrorCode.INVALID_RECORD_STATE
    assert shares.outcome(2, (0, 1, ACCEPT)) == ErrorCode.NONE


@pytest.mark.parametrize("with_fetch", [False, True])
def test_locks_are_renewed(shares, with_fetch):
    shares.set_up(share_record_lock_duration_ms="1000")
    shares.fetch()
    shares.rig.pass_time(999)
    if with_fetch:
        topics = (shares.said((0, 3, RENEW)),)
        nothing = {"max_records": 0, "max_bytes": 0, "is_renew_ack": True}
        taking = shares.fetch(epoch=1, topics=topics, **nothing | {"max_records": 1})
        assert taking.error_code == ErrorCode.INVALID_REQUEST
        assert acquired(shares.fetch(epoch=1, topics=topics, **nothing)) == []
    else:
        found = shares.acknowledge("m", 1, shares.said((0, 3, RENEW)), renews=True)
        assert (found.topics[0].partitions[0].error_code, found.acquisition_lock_timeout_ms) == (0, 1000)
    shares.rig.pass_time(999)
    assert shares.outcome(2, (0, 3, ACCEPT)) == ErrorCode.NONE


def test_a_fetch_waits(shares):
    shares.set_up()
    shares.fetch()
    shares.outcome(1, (0, 3, ACCEPT))
    waiting = shares.begin(
        ApiKey.SHARE_FETCH, shares.fetch_request(epoch=2, topics=(), max_wait_ms=10_000, min_bytes=1), 2
    )
    assert is_waiting(waiting)
    shares.rig.produce(b"z")
    assert acquired(shares.end(ApiKey.SHARE_FETCH, waiting, 2)) == [(0, 4, 4, 1)]


def test_max_bytes_and_max_records(shares):
    shares.set_up()
    shares.rig.produce(b"y" * 500)
    shares.rig.produce(b"y" * 500)
    assert acquired(shares.fetch(max_records=3)) == [(0, 0, 2, 1)]
    assert acquired(shares.fetch(epoch=1, max_bytes=10)) == [(0, 3, 3, 1)]
    for mode in (0, 1):
        assert acquired(shares.fetch(epoch=2 + mode, share_acquire_mode=mode, max_records=1)) == [
            (0, 4 + mode, 4 + mode, 1)
        ]


def test_records_of_aborted_transactions_are_not_given():
    """The protocol has no list of them; the offsets between are done."""
    shares = Shares(Rig())
    aborted, done = Transactional(shares.rig, "a"), Transactional(shares.rig, "b")
    for each in (aborted, done):
        assert not each.start()
    assert not aborted.send(b"1")
    assert not done.send(b"2")
    assert not aborted.send(b"3")
    assert not aborted.end(committed=False)
    assert not done.end()
    shares.set_up(share_isolation_level="read_committed")
    assert shares.node.group_settings.config_of("g").isolation is Isolation.COMMITTED
    assert acquired(shares.fetch()) == [(0, 1, 1, 1)]
    assert shares.outcome(1, (1, 1, ACCEPT)) == ErrorCode.NONE
    (described,) = shares.rig.now(shares.rig.broker.describe_share_groups(("g",)))
    assert described.partitions[0].start_offset == 5


# Who may, and what there is not ---


class TestRights:
    def test_of_the_group(self):
        shares = Shares(denied=[(Operation.READ, ResourceType.GROUP, "g")])
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert shares.beat().error_code == code
        assert shares.fetch().error_code == code
        assert shares.acknowledge().error_code == code
        assert len(shares.node.share_sessions) == 0

    def test_to_subscribe(self):
        shares = Shares(denied=[(Operation.DESCRIBE, ResourceType.TOPIC, "t")])
        assert shares.beat().error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def test_to_read(self, shares):
        shares.set_up()
        shares.fetch()
        shares.node.security.denied = [(Operation.READ, ResourceType.TOPIC, "t")]
        found = shares.fetch(epoch=1, topics=(shares.said((0, 0, ACCEPT)),), max_wait_ms=10_000)
        (part,) = found.topics[0].partitions
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (part.error_code, part.acknowledge_error_code, part.records) == (code, code, b"")
        assert shares.outcome(2, (0, 0, ACCEPT)) == code

    def test_to_describe(self, shares):
        shares.set_up()
        shares.node.security.denied = [(Operation.DESCRIBE, ResourceType.TOPIC, "t")]
        request = ShareGroupDescribeRequest(("g",))
        (member,) = shares.ask(ApiKey.SHARE_GROUP_DESCRIBE, request).groups[0].members
        assert (member.subscribed_topic_names, member.assignment.topic_partitions) == ((), ())
        shares.node.security.denied = [(Operation.DESCRIBE, ResourceType.GROUP, None)]
        (group,) = shares.ask(ApiKey.SHARE_GROUP_DESCRIBE, request).groups
        assert (group.error_code, group.members) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
        assert shares.ask(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups[0].group_id == "g"

    def test_to_give_settings(self):
        shares = Shares(denied=[(Operation.ALTER_CONFIGS, ResourceType.GROUP, "g")])
        code = shares.configure("g", share_auto_offset_reset="earliest")
        assert code == ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_who_is_not_named(shares):
    for fields in ({"group_id": ""}, {"group_id": None}, {"member": ""}, {"member": None}):
        assert shares.fetch(**fields).error_code == ErrorCode.INVALID_REQUEST
    assert shares.acknowledge("", 1).error_code == ErrorCode.INVALID_REQUEST
    assert shares.beat(group="").error_code == ErrorCode.INVALID_REQUEST


def test_who_is_no_member(shares):
    assert shares.fetch().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shares.acknowledge("m", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shares.beat(epoch=3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_topics_that_there_are_not(shares):
    shares.set_up()
    found = shares.fetch(topics=(shares.said(topic_id=NOWHERE), shares.said(number=9)), max_wait_ms=10_000)
    codes = {(topic.topic_id, part.partition): part.error_code for topic in found.topics for part in topic[1]}
    assert codes == {
        (NOWHERE, 0): ErrorCode.UNKNOWN_TOPIC_ID,
        (shares.topic_id(), 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = shares.acknowledge("m", 1, shares.said((0, 0, ACCEPT), topic_id=NOWHERE))
    assert found.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(
    "change",
    [
        {"share_auto_offset_reset": "middle"},
        {"share_record_lock_duration_ms": "0"},
        {"share_record_lock_duration_ms": "soon"},
        {"share_isolation_level": "serializable"},
        {"consumer_session_timeout_ms": "1"},
        {"operation": 2, "share_auto_offset_reset": "latest"},
    ],
    ids=str,
)
def test_settings_that_there_are_not(shares, change):
    before = shares.node.group_settings.config_of("g")
    assert shares.configure("g", **change) in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert shares.node.group_settings.config_of("g") == before


# Members, and what else tells of groups ---


def test_a_group_begins_at_the_end_unless_it_is_told_otherwise(shares):
    """As with Kafka. A setting is given, and taken back; who comes later takes what there is."""
    shares.configure("g", share_auto_offset_reset="earliest")
    shares.configure("g", operation=1, share_auto_offset_reset="")
    assert shares.beat().error_code == ErrorCode.NONE
    assert acquired(shares.fetch()) == []
    shares.configure("g", share_auto_offset_reset="earliest")
    assert shares.beat("n").error_code == ErrorCode.NONE
    assert acquired(shares.fetch("n")) == []
    shares.rig.produce(b"z")
    assert acquired(shares.fetch("n", 1)) == [(0, 4, 4, 1)]


def test_heartbeats_tell_of_partitions_once(shares):
    first = shares.beat(topics=("t", "t", "later"))
    assert (first.member_id, first.member_epoch, first.heartbeat_interval_ms) == ("m", 1, 5_000)
    assert [each[:] for each in first.assignment.topic_partitions] == [(shares.topic_id(), (0, 1))]
    assert shares.beat(epoch=1, topics=None).assignment is None
    shares.rig.directory.create_topic("later", 1, None)
    later = shares.beat(epoch=1, topics=None)
    assert later.member_epoch == 2
    assert {each.topic_id for each in later.assignment.topic_partitions} == {
        shares.topic_id(),
        shares.topic_id("later"),
    }
    assert shares.beat(epoch=-1).member_epoch == -1


def test_settings_that_change_hold_for_members_that_are_there(shares):
    shares.set_up("m", "other")
    assert acquired(shares.fetch(max_records=1)) == [(0, 0, 0, 1)]
    changed = {"share_delivery_count_limit": "1", "share_record_lock_duration_ms": "1000"}
    assert shares.configure("g", **changed) == ErrorCode.NONE
    assert shares.fetch("m", 1, (), max_records=1).acquisition_lock_timeout_ms == 1_000
    assert shares.outcome(2, (0, 0, RELEASE)) == ErrorCode.NONE
    assert acquired(shares.fetch("other")) == [(0, 2, 3, 1)]
    assert shares.configure("g", 1, **changed) == ErrorCode.NONE
    assert shares.fetch("other", 1, ()).acquisition_lock_timeout_ms == 30_000


def test_what_else_members_have_brought_along_stays(shares):
    brought = ShareGroupConfig(delivery_count_limit=2, record_lock_duration_ms=5_000)
    joined = shares.rig.broker.share_group_heartbeat(ShareGroupHeartbeat("g", "w", 0, ("t",), config=brought))
    assert shares.rig.now(joined).error is ErrorCode.NONE
    assert shares.configure("g", share_record_lock_duration_ms="1000") == ErrorCode.NONE
    for _ in range(2):
        assert shares.beat("m").error_code == ErrorCode.NONE
        assert acquired(shares.fetch(max_records=1))[0][1] == 0
        assert shares.acknowledge("m", -1, shares.said((0, 0, RELEASE))).error_code == ErrorCode.NONE
    found = shares.fetch(max_records=1)
    assert (found.acquisition_lock_timeout_ms, acquired(found)) == (1_000, [(0, 1, 1, 1)])


class TestOneThatLeavesBeforeItsSessionEnds:
    """librdkafka leaves on one connection, and ends its session on another: which comes first is a race."""

    @pytest.fixture
    def left(self, shares):
        shares.set_up("m", "other")
        assert acquired(shares.fetch()) == [(0, 0, 3, 1)]
        assert shares.beat(epoch=-1).member_epoch == -1
        return shares

    def test_what_it_says_of_its_last_records_counts(self, left):
        assert acquired(left.fetch("other")) == []
        assert left.outcome(1, (0, 1, ACCEPT)) == ErrorCode.NONE
        assert left.outcome(-1, (2, 2, ACCEPT)) == ErrorCode.NONE
        assert acquired(left.fetch("other", 1)) == [(0, 3, 3, 2)]

    def test_the_rest_goes_to_others_when_its_connection_ends(self, left):
        for member in left.node.share_sessions.end_of(left.call):
            release_rest(left.call, member)
        assert acquired(left.fetch("other")) == [(0, 0, 3, 2)]

    def test_it_is_no_member_any_more(self, left):
        assert left.fetch(epoch=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        (group,) = left.ask(ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(("g",))).groups
        assert [each.member_id for each in group.members] == ["other"]
        assert left.acknowledge("m", -1).error_code == ErrorCode.NONE
        assert left.acknowledge("m", -1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_the_times_of_a_group(shares):
    times = {"share.session.timeout.ms": "6000", "share.heartbeat.interval.ms": "2000"}
    assert shares.configure("g", **times) == ErrorCode.NONE
    assert shares.beat().heartbeat_interval_ms == 2_000
    shares.rig.pass_time(6_000)
    assert shares.beat(epoch=1, topics=None).error_code == ErrorCode.NONE
    assert shares.configure("g", **{"share.session.timeout.ms": "7000"}) == ErrorCode.NONE
    assert shares.beat(epoch=1, topics=None).heartbeat_interval_ms == 2_000
    shares.rig.pass_time(7_000)
    assert shares.beat(epoch=1, topics=None).error_code == ErrorCode.NONE
    shares.rig.pass_time(7_001)
    assert shares.beat(epoch=1, topics=None).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    for wrong in ({"share.session.timeout.ms": "2000"}, {"share.heartbeat.interval.ms": "7000"}):
        assert shares.configure("g", **wrong) == ErrorCode.INVALID_CONFIG


def test_what_other_requests_tell_of_a_group(shares):
    shares.set_up()
    (listed,) = shares.ask(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Stable", "share")
    (classic,) = shares.ask(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(("g",))).groups
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    found, unknown = shares.ask(
        ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(("g", "h"), include_authorized_operations=True)
    ).groups
    assert (found.group_state, found.group_epoch, found.assignor_name) == ("Stable", 1, "simple")
    assert (unknown.error_code, unknown.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == ("m", "tests", "/192.0.2.7")
    assert member.assignment.topic_partitions[0].topic_name == "t"
    assert found.authorized_operations > 0
    delete = DeleteGroupsRequest(("g",))
    assert shares.ask(ApiKey.DELETE_GROUPS, delete).groups[0].error_code == ErrorCode.NON_EMPTY_GROUP
    shares.rig.pass_time(SESSION_MS + 1)
    assert shares.ask(ApiKey.DELETE_GROUPS, delete).groups[0].error_code == ErrorCode.NONE
    assert shares.ask(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups == ()


def test_who_sets_a_group_back_is_told_in_words_why_not(shares):
    def alter(topic, number):
        topics = (alter_offsets.Topic(topic, (alter_offsets.Partition(number, 0),)),)
        request = alter_offsets.AlterShareGroupOffsetsRequest("g", topics)
        return shares.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, request)

    def delete(topic):
        request = delete_offsets.DeleteShareGroupOffsetsRequest("g", (delete_offsets.Topic(topic),))
        return shares.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, request)

    assert delete("t").error_message == "there is no share group 'g'"
    shares.set_up()
    for refused in (alter("t", 0), delete("t")):
        assert refused.error_message.startswith("share group 'g' has members: stop them")
    shares.rig.pass_time(SESSION_MS + 1)
    assert (
        alter("nope", 3).topics[0].partitions[0].error_message
        == "there is no topic 'nope' with a partition 3"
    )
    assert delete("nope").topics[0].error_message == "there is no topic 'nope'"
    assert alter("t", 0).topics[0].partitions[0].error_message is None
    assert delete("t").topics[0].error_message is None


def test_the_name_of_consumers_is_not_taken_for_a_share_group_s(shares):
    """It would begin one, and who deleted that again would delete the offsets of the consumers."""
    commit = OffsetCommitRequest("g", topics=(CommitTopic("t", partitions=(CommitPartition(0, 1),)),))
    assert shares.ask(ApiKey.OFFSET_COMMIT, commit, 8).topics[0].partitions[0].error_code == ErrorCode.NONE
    asked = alter_offsets.AlterShareGroupOffsetsRequest(
        "g", (alter_offsets.Topic("t", (alter_offsets.Partition(0, 0),)),)
    )
    refused = shares.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, asked)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "'g' is a group of consumers" in refused.error_message
    (listed,) = shares.ask(ApiKey.LIST_GROUPS, ListGroupsRequest()).groups
    assert listed.group_type == "classic"
    shares.set_up()  # workers may take the name: both are there then
    shares.rig.pass_time(SESSION_MS + 1)
    assert shares.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, asked).error_code == ErrorCode.NONE


def test_a_share_group_that_there_is_not_has_begun_nowhere(shares):
    """As with Kafka: its admin clients would raise an error for the groups of one that asks for many."""
    topics = (describe_offsets.Topic("t", (0, 1)), describe_offsets.Topic("hidden", (0,)))
    groups = (describe_offsets.Group("none", None), describe_offsets.Group("none", topics))
    request = describe_offsets.DescribeShareGroupOffsetsRequest(groups)
    for asked in (
        shares,
        Shares(rig=shares.rig, denied=[(Operation.DESCRIBE, ResourceType.TOPIC, "hidden")]),
    ):
        every, some = asked.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups
        assert (every.error_code, every.topics) == (ErrorCode.NONE, ())
        found = {each.name: each.partitions for each in some.topics}
        assert [(each.start_offset, each.lag, each.error_code) for each in found["t"]] == [(-1, -1, 0)] * 2
    assert found["hidden"][0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
