"""Requests on the cluster, its disk, elections and quotas, from their bytes to a directory and back."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.apis import ApiKey
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.messages.cluster import (
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    metadata,
)
from logstore.wire.messages.parts import NOT_ASKED
from logstore.wire.messages.quotas import alter_client_quotas, describe_client_quotas
from tests.wire.handlers.rig_admin import AdminRig

NONE = ErrorCode.NONE


@pytest.fixture
def rig():
    return AdminRig()


@pytest.mark.parametrize(("version", "no_name"), [(11, ""), (12, None), (13, None)])
def test_who_asks_for_an_id_and_may_not_see_the_topic_is_not_told_its_name(rig, version, no_name):
    topic_id = rig.directory.topic("t").topic_id
    wanted = (metadata.TopicWanted(topic_id, no_name),)
    (seen,) = rig.send(ApiKey.METADATA, version, topics=wanted).topics
    assert seen[:3] == (NONE, "t", topic_id)
    rig.rights.deny(Operation.DESCRIBE, topic="t")
    (denied,) = rig.send(ApiKey.METADATA, version, topics=wanted).topics
    assert denied[:3] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, no_name, topic_id)


class TestCluster:
    def test_this_node_is_all_there_is(self, rig):
        found = rig.send(ApiKey.DESCRIBE_CLUSTER)
        assert (found.cluster_id, found.controller_id) == (rig.call.node.cluster_id, 0)
        assert [each[:3] for each in found.brokers] == [(0, "here", 9092)]
        assert found.cluster_authorized_operations == NOT_ASKED
        rig.rights.deny(Operation.ALTER)
        some = rig.send(ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True)
        may_create, may_alter = 1 << Operation.CREATE, 1 << Operation.ALTER
        assert some.cluster_authorized_operations & (may_create | may_alter) == may_create

    @pytest.mark.parametrize(
        ("kind", "code"),
        [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
    )
    def test_there_are_brokers_only(self, rig, kind, code):
        found = rig.send(ApiKey.DESCRIBE_CLUSTER, endpoint_type=kind)
        assert (found.error_code, found.endpoint_type, found.brokers) == (code, kind, ())
        assert found.error_message


class TestTopicPartitions:
    def page(self, rig, topics=(), most=2000, cursor=None):
        found = rig.send(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            topics=tuple(describe_topic_partitions.TopicWanted(each) for each in topics),
            response_partition_limit=most,
            cursor=cursor,
        )
        assert sum(len(each.partitions) for each in found.topics) <= max(1, most)
        return found

    def pages(self, rig, topics=(), most=2000):
        """What all pages have together: topic -> numbers of partitions."""
        seen: dict[str, list[int]] = {}
        cursor = None
        while True:
            found = self.page(rig, topics, most, cursor)
            for each in found.topics:
                seen.setdefault(each.name, []).extend(one.partition for one in each.partitions)
            cursor = found.next_cursor
            if cursor is None:
                return seen

    @pytest.mark.parametrize("most", [-1, 0, 1, 2, 3, 4, 5, 8, 9, 2000])
    def test_the_pages_are_the_whole(self, rig, most):
        rig.directory.create_topic("a", 3, None)
        rig.directory.create_topic("z", 3, None)
        every = {"a": [0, 1, 2], "t": [0, 1], "z": [0, 1, 2]}
        assert self.pages(rig, most=most) == every
        assert self.pages(rig, ("z", "a", "z"), most) == {"a": every["a"], "z": every["z"]}
        rig.rights.deny(Operation.DESCRIBE, topic="t")
        del every["t"]
        assert self.pages(rig, most=most) == every

    def test_the_listener_limits_a_page(self):
        rig = AdminRig(partitions=5, listener=ListenerConfig(max_request_partition_size_limit=2))
        found = self.page(rig)
        assert len(found.topics[0].partitions) == 2
        assert found.next_cursor == ("t", 2)

    def test_a_topic_is_described(self, rig):
        rig.rights.deny(Operation.ALTER, topic="t")
        (found,) = self.page(rig, ("t",)).topics
        assert found[:4] == (NONE, "t", rig.directory.topic("t").topic_id, False)
        assert found.authorized_operations & (1 << Operation.ALTER) == 0
        assert found.authorized_operations & (1 << Operation.READ)
        assert [each[:6] for each in found.partitions] == [
            (NONE, number, 0, 0, (0,), (0,)) for number in (0, 1)
        ]

    def test_topics_that_are_not_there_or_not_to_be_seen(self, rig):
        rig.rights.deny(Operation.DESCRIBE, topic="t")
        unknown, denied = self.page(rig, ("t", "x")).topics
        assert unknown[:2] == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x")
        assert denied[:3] == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t", NO_UUID)
        assert self.page(rig).topics == ()

    @pytest.mark.parametrize("cursor", [("t", -1), ("a", 0)])
    def test_a_cursor_that_leads_nowhere(self, rig, cursor):
        (found,) = self.page(rig, ("t",), cursor=describe_topic_partitions.Cursor(*cursor)).topics
        assert found[:2] == (ErrorCode.INVALID_REQUEST, "t")

    def test_a_cursor_behind_the_end(self, rig):
        (found,) = self.page(rig, cursor=describe_topic_partitions.Cursor("t", 9)).topics
        assert found.partitions == ()


class TestLogDirs:
    def test_sizes_of_all_and_of_some(self, rig):
        rig.produce(b"a" * 500)
        found = rig.send(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        assert found.error_code == NONE
        (directory,) = found.directories
        size = rig.directory.log(TopicPartition("t", 0)).written_bytes
        assert directory.path == rig.directory.path
        assert directory.topics == (("t", ((0, size, 0, False), (1, 0, 0, False))),)
        assert directory.total_bytes > directory.usable_bytes > 0
        wanted = (describe_log_dirs.TopicWanted("t", (1, 7)), describe_log_dirs.TopicWanted("x", (0,)))
        (directory,) = rig.send(ApiKey.DESCRIBE_LOG_DIRS, topics=wanted).directories
        assert directory.topics == (("t", ((1, 0, 0, False),)),)
        (directory,) = rig.send(ApiKey.DESCRIBE_LOG_DIRS, topics=()).directories
        assert directory.topics == ()

    def test_a_denial(self, rig):
        rig.rights.deny(Operation.DESCRIBE)
        found = rig.send(ApiKey.DESCRIBE_LOG_DIRS, topics=None)
        assert (found.error_code, found.directories) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ())
        assert rig.send(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=None).directories == ()


class TestElections:
    def elect(self, rig, kind, topics, version=2):
        wanted = None if topics is None else tuple(elect_leaders.Topic(*each) for each in topics)
        return rig.send(ApiKey.ELECT_LEADERS, version, election_type=kind, topics=wanted)

    @pytest.mark.parametrize("kind", [0, 1])
    def test_the_only_replica_leads(self, rig, kind):
        found = self.elect(rig, kind, [("t", (0, 1, 2)), ("x", (0,))])
        assert found.error_code == NONE
        assert [[each[:2] for each in topic.partitions] for topic in found.topics] == [
            [
                (0, ErrorCode.ELECTION_NOT_NEEDED),
                (1, ErrorCode.ELECTION_NOT_NEEDED),
                (2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
            [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
        ]
        assert all(each.error_message for topic in found.topics for each in topic.partitions)
        assert self.elect(rig, kind, None).topics == ()

    @pytest.mark.parametrize(
        ("kind", "code"),
        [(0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (1, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
    )
    def test_a_partition_that_is_not_here_has_no_leader(self, rig, kind, code):
        rig.directory.create_topic("u", 2, None, held=[0])
        for topics in (None, [("u", (1,))]):
            (found,) = self.elect(rig, kind, topics).topics
            assert [each[:2] for each in found.partitions] == [(1, code)]

    def test_a_wrong_type_and_a_denial(self, rig):
        found = self.elect(rig, 2, [("t", (0,))])
        assert (found.error_code, found.topics[0].partitions[0].error_code) == (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
        )
        rig.rights.deny(Operation.ALTER)
        assert self.elect(rig, 0, None).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        (old,) = self.elect(rig, 0, [("t", (0,))], version=0).topics
        assert old.partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


# Quotas


class TestQuotas:
    def alter(self, rig, entity, *operations, **fields):
        parts = tuple(alter_client_quotas.EntityPart(*each) for each in entity)
        ops = tuple(alter_client_quotas.Operation(*each) for each in operations)
        entries = (alter_client_quotas.Entry(parts, ops),)
        (found,) = rig.send(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries, **fields).entries
        assert found.entity == parts
        assert bool(found.error_message) is (found.error_code not in (NONE, 31))
        return found.error_code

    def described(self, rig, *components, strict=False):
        wanted = tuple(describe_client_quotas.Component(*each) for each in components)
        found = rig.send(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=wanted, strict=strict)
        if found.error_code:
            assert found.entries is None
            return found.error_code
        return {each.entity: dict(each.values) for each in found.entries}

    def test_what_is_set_is_described_until_it_is_removed(self, rig):
        alice, everybody = (("user", "alice"),), (("user", None), ("client-id", "app"))
        rate = "producer_byte_rate"
        assert self.alter(rig, alice, (rate, 1000.0), ("request_percentage", 12.5)) == NONE
        assert self.alter(rig, everybody, (rate, 5.0)) == NONE
        assert self.alter(rig, alice, (rate, 7.0), validate_only=True) == NONE
        every = {alice: {rate: 1000.0, "request_percentage": 12.5}, everybody: {rate: 5.0}}
        assert self.described(rig) == every
        assert self.described(rig, ("user", 0, "alice")) == {alice: every[alice]}
        assert self.described(rig, ("user", 1, None)) == {everybody: every[everybody]}
        assert self.described(rig, ("user", 2, None)) == every
        assert self.described(rig, ("user", 2, None), strict=True) == {alice: every[alice]}
        assert self.alter(rig, alice, (rate, 0.0, True), ("request_percentage", 0.0, True)) == NONE
        assert self.described(rig) == {everybody: every[everybody]}

    def test_what_is_refused_says_why(self, rig):
        wrong = ErrorCode.INVALID_REQUEST
        assert self.alter(rig, (("user", "a"),), ("no_such", 1.0)) == wrong
        assert self.alter(rig, (("user", "a"),), ("producer_byte_rate", float("nan"))) == wrong
        assert self.alter(rig, (("ip", "1.2.3.4"),), ("producer_byte_rate", 1.0)) == wrong
        assert self.alter(rig, (("user", "a"), ("user", "b")), ("producer_byte_rate", 1.0)) == wrong
        assert self.alter(rig, (), ("producer_byte_rate", 1.0)) == wrong
        assert self.described(rig, ("user", 3, None)) == wrong
        assert self.described(rig, ("user", 0, None)) == wrong
        assert self.described(rig, ("planet", 2, None)) == wrong
        assert self.described(rig, ("ip", 2, None), ("user", 2, None)) == wrong
        assert self.described(rig, ("ip", 3, None)) == wrong
        assert self.described(rig) == {}

    def test_of_addresses_there_are_none(self, rig):
        assert self.alter(rig, (("user", "a"),), ("producer_byte_rate", 1.0)) == NONE
        assert self.described(rig, ("ip", 2, None)) == {}
        assert self.described(rig, ("ip", 0, "127.0.0.1"), strict=True) == {}

    def test_denials(self, rig):
        rig.rights.deny(Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert self.alter(rig, (("user", "a"),), ("producer_byte_rate", 1.0)) == code
        assert self.described(rig) == code
