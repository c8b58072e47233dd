"""The requests of administrators, from their bytes to a directory and back."""

from __future__ import annotations

import random
import uuid

import pytest

from logstore.broker.codes import ErrorCode
from logstore.config import TopicConfig
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.acls import Operation, ResourceType
from logstore.model import TopicPartition
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.cluster import (
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    metadata,
)
from logstore.wire.messages.quotas import alter_client_quotas, describe_client_quotas
from logstore.wire.messages.records import delete_records, offset_for_leader_epoch
from logstore.wire.messages.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from tests.rotation import seed_of_turn
from tests.wire.drawn import Case, Chance
from tests.wire.handlers.rig_admin import AdminRig, codes_in

TOPIC, BROKER = 2, 4
FROM_TOPIC, DEFAULT = 1, 5
SET, DELETE, APPEND = range(3)
NONE = ErrorCode.NONE


@pytest.fixture
def rig():
    return AdminRig()


def typical(rig, version):
    """A request of each kind that succeeds, and the codes of what it names besides."""
    t_id = rig.call.node.topics.id_of("t")
    resource = describe_configs.Resource
    return {
        ApiKey.CREATE_TOPICS: create_topics.CreateTopicsRequest(
            (
                create_topics.Topic("new", 2, 1, (), (create_topics.Config("flush.ms", "7"),)),
                create_topics.Topic("placed", -1, -1, (create_topics.Assignment(0, (0,)),)),
                create_topics.Topic("default", -1, -1),
            )
        ),
        ApiKey.DELETE_TOPICS: delete_topics.DeleteTopicsRequest(
            (delete_topics.Topic(None, t_id),) if version >= 6 else (), ("t",) if version < 6 else ()
        ),
        ApiKey.DELETE_RECORDS: delete_records.DeleteRecordsRequest(
            (delete_records.Topic("t", (delete_records.Partition(0, -1), delete_records.Partition(1, 0))),)
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=(offset_for_leader_epoch.Topic("t", (offset_for_leader_epoch.Partition(0, -1, 0),)),)
        ),
        ApiKey.DESCRIBE_CONFIGS: describe_configs.DescribeConfigsRequest(
            (resource(TOPIC, "t", None), resource(BROKER, "0", ()), resource(BROKER, "", None)),
            True,
            version >= 3,
        ),
        ApiKey.ALTER_CONFIGS: alter_configs.AlterConfigsRequest(
            (alter_configs.Resource(TOPIC, "t", (alter_configs.Config("flush.ms", "7"),)),)
        ),
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.DescribeLogDirsRequest(None),
        ApiKey.CREATE_PARTITIONS: create_partitions.CreatePartitionsRequest(
            (create_partitions.Topic("t", 3, None),)
        ),
        ApiKey.ELECT_LEADERS: elect_leaders.ElectLeadersRequest(topics=None),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.IncrementalAlterConfigsRequest(
            (
                incremental_alter_configs.Resource(
                    TOPIC,
                    "t",
                    (
                        incremental_alter_configs.Config("flush.ms", SET, "7"),
                        incremental_alter_configs.Config("retention.ms", DELETE, None),
                        incremental_alter_configs.Config("cleanup.policy", APPEND, "compact"),
                    ),
                ),
            )
        ),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.DescribeClientQuotasRequest(
            (describe_client_quotas.Component("user", 0, "alice"),)
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas.AlterClientQuotasRequest(
            (
                alter_client_quotas.Entry(
                    (alter_client_quotas.EntityPart("user", "alice"),),
                    (alter_client_quotas.Operation("producer_byte_rate", 1000.0),),
                ),
            )
        ),
        ApiKey.DESCRIBE_CLUSTER: APIS[ApiKey.DESCRIBE_CLUSTER].request.kind(True),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.DescribeTopicPartitionsRequest(),
    }


KEYS = tuple(typical(AdminRig(), 0))
VERSIONS = [
    Case(key, APIS[key].request, version)
    for key in KEYS
    for version in range(APIS[key].first, APIS[key].last + 1)
]


class AdminChance(Chance):
    """Draws requests of which some parts mean something."""

    TEXTS = (
        *("t", "t", "t", "u", "nowhere", "", "0", "größe", "x" * 300, "__consumer_offsets", "a.b", "a_b"),
        *("retention.ms", "cleanup.policy", "compact", "5", "user", "client-id", "producer_byte_rate"),
    )

    def text(self, field):
        return self.random.choice(self.TEXTS)

    def number(self, field, kind):
        if self.random.random() < 0.5:
            return self.random.choice((0, 1, 2, 3, 4))
        return super().number(field, kind)


@pytest.mark.parametrize("case", VERSIONS, ids=repr)
class TestEveryVersion:
    def test_a_typical_request_succeeds(self, rig, case):
        request = typical(rig, case.version)[case.key]
        response = rig.send_message(case.key, request, case.version)
        assert not any(codes_in(case, response)), response

    def test_whatever_is_asked_is_answered(self, rig, case):
        chance = AdminChance(random.Random(f"{seed_of_turn()} {case}"))
        for _ in range(40):
            rig.send_message(case.key, chance.message(case), case.version)
            rig.rights.denies_all = chance.random.random() < 0.2

    def test_every_request_can_be_refused(self, rig, case):
        """Of the whole, or of each thing that is named."""
        chance = AdminChance(random.Random(f"{seed_of_turn()} {case}"))
        typically = rig.refuse(
            case.key, typical(rig, case.version)[case.key], ErrorCode.REQUEST_TIMED_OUT, case.version
        )
        codes = codes_in(case, typically)
        assert set(codes) <= {ErrorCode.REQUEST_TIMED_OUT}
        has_place = (case.key, case.version) not in {
            (ApiKey.ELECT_LEADERS, 0),  # all partitions were meant
            (ApiKey.DESCRIBE_LOG_DIRS, 1),
            (ApiKey.DESCRIBE_LOG_DIRS, 2),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0),
        }
        assert bool(codes) is has_place
        for _ in range(20):
            request = case.message.decode(
                case.message.encode(chance.message(case), case.version), case.version
            )
            rig.refuse(case.key, request[0], ErrorCode.REQUEST_TIMED_OUT, case.version)

    def test_who_may_do_nothing_changes_and_sees_nothing(self, rig, case):
        entry = rig.directory.topic("t")
        rig.rights.denies_all = True
        response = rig.send_message(case.key, typical(rig, case.version)[case.key], case.version)
        denials = {
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        }
        codes = codes_in(case, response)
        if case.key is ApiKey.DESCRIBE_CLUSTER:  # where brokers are is no secret, as in Kafka
            assert response.cluster_authorized_operations == 0
        elif case.key is ApiKey.DESCRIBE_TOPIC_PARTITIONS:
            assert response.topics == ()
        elif codes:
            assert denials.issuperset(codes)
        else:
            assert not getattr(response, "topics", ())
            assert not getattr(response, "directories", ())
        assert rig.directory.topics() == [entry]


# Topics


class TestCreateTopics:
    def create(self, rig, *topics, version=None, **fields):
        wanted = tuple(create_topics.Topic(*each) for each in topics)
        return rig.send(ApiKey.CREATE_TOPICS, version, topics=wanted, **fields).topics

    def test_the_answer_describes_the_topic(self, rig):
        configs = (create_topics.Config("cleanup.policy", "compact"),)
        (made,) = self.create(rig, ("new", -1, 1, (), configs))
        entry = rig.directory.topic("new")
        assert (made.error_code, made.error_message, made.topic_id) == (NONE, None, entry.topic_id)
        assert (made.partition_count, made.replication_factor) == (3, 1) == (entry.partition_count, 1)
        assert {each.name for each in made.configs} == TopicConfig.setting_names()
        assert [each[:2] for each in made.configs if each.config_source == FROM_TOPIC] == [
            ("cleanup.policy", "compact")
        ]
        assert {each.config_source for each in made.configs} == {FROM_TOPIC, DEFAULT}
        (old,) = self.create(rig, ("older", 1, 1), version=4)
        assert (old.configs, old.partition_count, old.topic_id) == ((), -1, NO_UUID)

    def test_a_trial_creates_nothing(self, rig):
        (tried,) = self.create(rig, ("new", 2, -1), validate_only=True)
        assert (tried.error_code, tried.partition_count, tried.topic_id) == (NONE, 2, NO_UUID)
        assert tried.configs
        assert rig.directory.topic_names() == ["t"]

    @pytest.mark.parametrize(
        ("topic", "code"),
        [
            (("n", 0, 1), ErrorCode.INVALID_PARTITIONS),
            (("n", -2, 1), ErrorCode.INVALID_PARTITIONS),
            (("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
            (("n", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
            (("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
            (("a b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("t", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
            (("t", 1, 3), ErrorCode.TOPIC_ALREADY_EXISTS),
            (("t", 1, 1, (), (("retension.ms", "1"),)), ErrorCode.TOPIC_ALREADY_EXISTS),
            (("a b", 1, 1, (), (("retension.ms", "1"),)), ErrorCode.INVALID_TOPIC_EXCEPTION),
            (("n", 1, 1, (), (("retension.ms", "1"),)), ErrorCode.INVALID_CONFIG),
            (("n", 1, 1, (), (("retention.ms", "x"),)), ErrorCode.INVALID_CONFIG),
            (("n", 1, 1, (), (("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
            (("n", 1, -1, ((0, (0,)),)), ErrorCode.INVALID_REQUEST),
            (("n", -1, 1, ((0, (0,)),)), ErrorCode.INVALID_REQUEST),
            (("n", -1, -1, ((1, (0,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (("n", -1, -1, ((0, (0,)), (0, (0,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (("n", -1, -1, ((0, (0,)), (1, (1,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (("n", -1, -1, ((0, (0, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (("n", -1, -1, ((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    @pytest.mark.parametrize("validate_only", [False, True])
    def test_what_is_refused_says_why(self, rig, topic, code, validate_only):
        name, count, factor, assignments, configs = (*topic, (), ())[:5]
        wanted = (
            name,
            count,
            factor,
            tuple(create_topics.Assignment(*each) for each in assignments),
            tuple(create_topics.Config(*each) for each in configs),
        )
        good, bad = self.create(rig, ("good", 1, 1), wanted, validate_only=validate_only)
        assert (good.error_code, bad.error_code) == (NONE, code)
        assert bad.error_message
        assert rig.directory.topic_names() == (["t"] if validate_only else ["good", "t"])

    def test_what_asks_for_nothing_may_be_said(self, rig):
        """By tools that make a topic with all the settings of another, defaults too."""
        idle = (("remote.storage.enable", "false"), ("local.retention.bytes", "-2"), ("flush.ms", "7"))
        (made,) = self.create(rig, ("n", 1, 1, (), tuple(create_topics.Config(*each) for each in idle)))
        assert (made.error_code, made.error_message) == (NONE, None)
        assert {each.name for each in made.configs} == TopicConfig.setting_names()
        (made,) = self.create(rig, ("m", 1, 1, (), (create_topics.Config("remote.storage.enable", "true"),)))
        assert made.error_code == ErrorCode.INVALID_CONFIG

    def test_an_unknown_setting_is_named(self, rig):
        (made,) = self.create(rig, ("n", 1, 1, (), (create_topics.Config("retension.ms", "1"),)))
        assert "retension.ms" in made.error_message
        assert "retention.ms" in made.error_message

    @pytest.mark.parametrize(("counts", "is_refused"), [((9_999, 1), False), ((9_999, 2), True)])
    def test_a_request_creates_so_many_partitions_at_most(self, rig, counts, is_refused):
        wanted = [(f"n{number}", count, 1) for number, count in enumerate(counts)]
        found = self.create(rig, *wanted, validate_only=True)
        code = ErrorCode.POLICY_VIOLATION if is_refused else NONE
        assert [each.error_code for each in found] == [code, code]

    def test_names_that_look_alike_are_refused(self, rig):
        assert self.create(rig, ("a.b", 1, 1))[0].error_code == NONE
        for validate_only in (True, False):
            (refused,) = self.create(rig, ("a_b", 1, 1), validate_only=validate_only)
            assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_nothing_is_created_twice(self, rig):
        outcomes = self.create(rig, ("n", 1, 1), ("good", 1, 1), ("n", 2, 1))
        assert [each.error_code for each in outcomes] == [
            ErrorCode.INVALID_REQUEST,
            NONE,
            ErrorCode.INVALID_REQUEST,
        ]
        assert rig.directory.topic_names() == ["good", "t"]

    def test_the_right_is_of_the_cluster_or_of_the_topic(self, rig):
        rig.rights.deny(Operation.CREATE, topic="a")
        assert self.create(rig, ("a", 1, 1))[0].error_code == NONE
        rig.rights.deny(Operation.CREATE)
        rig.rights.deny(Operation.CREATE, topic="b")
        rig.rights.deny(Operation.DESCRIBE_CONFIGS, topic="c")
        denied, made = self.create(rig, ("b", 1, 1), ("c", 1, 1))
        assert (denied.error_code, made.error_code) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NONE)
        assert made.config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (made.partition_count, made.replication_factor, made.configs) == (-1, -1, ())
        assert made.topic_id == rig.directory.topic("c").topic_id


def test_what_a_right_of_the_topic_allows_is_not_noted_as_refused(rig):
    """Where a right of the cluster would do as well, as in Kafka."""
    rig.rights.deny(Operation.CREATE, Operation.DELETE, Operation.CLUSTER_ACTION)
    epochs = offset_for_leader_epoch.Topic("t", (offset_for_leader_epoch.Partition(0),))
    (made,) = rig.send(ApiKey.CREATE_TOPICS, topics=(create_topics.Topic("a", 1, 1),)).topics
    (gone,) = rig.send(ApiKey.DELETE_TOPICS, topics=(delete_topics.Topic("a"),)).topics
    (found,) = rig.send(ApiKey.METADATA, topics=(metadata.TopicWanted(name="b"),)).topics
    (told,) = rig.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, topics=(epochs,)).topics
    codes = [made.error_code, gone.error_code, found.error_code, told.partitions[0].error_code]
    assert codes == [NONE] * 4
    assert rig.rights.noted == []
    rig.rights.deny(Operation.CREATE, topic="c")
    rig.send(ApiKey.CREATE_TOPICS, topics=(create_topics.Topic("c", 1, 1),))
    assert rig.rights.noted == [(Operation.CREATE, ResourceType.TOPIC, "c")]


class TestDeleteTopics:
    def delete(self, rig, *topics):
        wanted = tuple(delete_topics.Topic(*each) for each in topics)
        return rig.send(ApiKey.DELETE_TOPICS, topics=wanted).topics

    def id_of(self, rig, name):
        return rig.directory.topic(name).topic_id

    def test_by_name_and_by_id(self, rig):
        for name in ("a", "b"):
            rig.directory.create_topic(name, 1, None)
        ids = {name: self.id_of(rig, name) for name in ("a", "b")}
        found = self.delete(rig, ("a", NO_UUID), (None, ids["b"]))
        assert [each[:3] for each in found] == [("a", ids["a"], NONE), ("b", ids["b"], NONE)]
        assert rig.directory.topic_names() == ["t"]

    def test_what_is_refused_says_why(self, rig):
        lost = uuid.UUID(int=7)
        found = self.delete(rig, ("x", NO_UUID), (None, lost), (None, NO_UUID), ("t", lost))
        assert [each[:3] for each in found] == [
            ("x", NO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (None, lost, ErrorCode.UNKNOWN_TOPIC_ID),
            (None, NO_UUID, ErrorCode.INVALID_REQUEST),
            ("t", lost, ErrorCode.INVALID_REQUEST),
        ]
        assert all(each.error_message for each in found)
        assert rig.directory.topic_names() == ["t"]

    def test_nothing_is_deleted_twice(self, rig):
        found = self.delete(rig, ("t", NO_UUID), (None, self.id_of(rig, "t")))
        assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2
        assert rig.directory.topic_names() == ["t"]

    def test_a_denial_tells_no_names(self, rig):
        topic_id = self.id_of(rig, "t")
        rig.rights.deny(Operation.DELETE)
        assert self.delete(rig, (None, self.id_of(rig, "t")))[0].error_code == NONE
        rig = AdminRig()
        topic_id = self.id_of(rig, "t")
        rig.rights.deny(Operation.DELETE)
        rig.rights.deny(Operation.DELETE, topic="t")
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert self.delete(rig, (None, topic_id))[0][:3] == ("t", topic_id, code)
        rig.rights.deny(Operation.DELETE, topic="x")
        assert self.delete(rig, ("x", NO_UUID))[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rig.rights.deny(Operation.DESCRIBE, topic="x")
        assert self.delete(rig, ("x", NO_UUID))[0].error_code == code
        rig.rights.deny(Operation.DESCRIBE, topic="t")
        assert self.delete(rig, (None, topic_id))[0][:3] == (None, topic_id, code)
        assert self.delete(rig, ("t", NO_UUID))[0][:3] == ("t", NO_UUID, code)
        assert rig.directory.topic_names() == ["t"]

    def test_an_internal_topic_goes_like_any_other(self, rig):
        rig.directory.create_topic("__consumer_offsets", 1, None)
        assert self.delete(rig, ("__consumer_offsets", NO_UUID))[0].error_code == NONE
        assert rig.directory.topic_names() == ["t"]


class TestCreatePartitions:
    def grow(self, rig, *topics, **fields):
        wanted = tuple(create_partitions.Topic(*each) for each in topics)
        return rig.send(ApiKey.CREATE_PARTITIONS, topics=wanted, **fields).topics

    def test_each_topic_has_its_own_outcome(self, rig):
        rig.directory.create_topic("u", 1, None)
        on = create_partitions.Assignment
        found = self.grow(rig, ("t", 4, (on((0,)), on((0,)))), ("u", 1, None), ("x", 3, None))
        assert [each.error_code for each in found] == [
            NONE,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert [bool(each.error_message) for each in found] == [False, True, True]
        assert [rig.directory.topic(each).partition_count for each in ("t", "u")] == [4, 1]

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__share_group_state"])
    def test_an_internal_topic_keeps_its_partitions(self, rig, name):
        """With another number of them, no group and no transactional id would be found any more."""
        rig.directory.create_topic(name, 1, None)
        (found,) = self.grow(rig, (name, 20, None))
        assert found.error_code == ErrorCode.INVALID_PARTITIONS
        assert "num_partitions of a store" in found.error_message
        assert rig.directory.topic(name).partition_count == 1

    def test_wrong_places_and_trials_change_nothing(self, rig):
        (found,) = self.grow(rig, ("t", 4, (create_partitions.Assignment((1,)),)))
        assert found.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert self.grow(rig, ("t", 4, None), validate_only=True)[0].error_code == NONE
        found = self.grow(rig, ("t", 4, None), ("t", 5, None))
        assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2
        rig.rights.deny(Operation.ALTER, topic="t")
        (found,) = self.grow(rig, ("t", 4, None))
        assert found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert rig.directory.topic("t").partition_count == 2


# Records


class TestRecords:
    def delete(self, rig, topic, *offsets):
        parts = tuple(delete_records.Partition(*each) for each in offsets)
        topics = (delete_records.Topic(topic, parts),)
        (found,) = rig.send(ApiKey.DELETE_RECORDS, topics=topics).topics
        return [each[1:] for each in found.partitions]

    def test_the_beginning_is_deleted(self, rig):
        rig.produce(b"a", b"b", b"c")
        assert self.delete(rig, "t", (0, 1), (1, -1), (9, 0)) == [
            (1, NONE),
            (0, NONE),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert self.delete(rig, "t", (0, 4), (0, -2)) == [(-1, ErrorCode.OFFSET_OUT_OF_RANGE)] * 2
        assert self.delete(rig, "t", (0, -1)) == [(3, NONE)]
        assert rig.directory.log(TopicPartition("t", 0)).log_start_offset == 3

    def test_internal_topics_and_denied_ones_keep_theirs(self, rig):
        rig.directory.create_topic("__consumer_offsets", 1, None)
        assert self.delete(rig, "__consumer_offsets", (0, -1)) == [(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
        rig.rights.deny(Operation.DELETE, topic="t")
        assert self.delete(rig, "t", (0, 0)) == [(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]

    def ends(self, rig, *wanted):
        parts = tuple(offset_for_leader_epoch.Partition(*each) for each in wanted)
        topics = (offset_for_leader_epoch.Topic("t", parts),)
        (found,) = rig.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, topics=topics).topics
        return [tuple(each) for each in found.partitions]

    def test_where_an_epoch_ends(self, rig):
        assert self.ends(rig, (0, -1, 0), (0, -1, 1)) == [(NONE, 0, 0, 0), (NONE, 0, -1, -1)]
        rig.produce(b"a", b"b")
        assert self.ends(rig, (0, -1, 0), (0, 0, 0), (0, 7, 0), (5, -1, 0)) == [
            (NONE, 0, 0, 2),
            (NONE, 0, 0, 2),
            (ErrorCode.UNKNOWN_LEADER_EPOCH, 0, -1, -1),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5, -1, -1),
        ]

    def test_where_it_ends_once_all_records_are_deleted(self, rig):
        rig.produce(b"a", b"b")
        assert self.delete(rig, "t", (0, -1)) == [(2, NONE)]
        assert self.ends(rig, (0, -1, 0)) == [(NONE, 0, 0, 2)]

    def test_who_may_know_it(self, rig):
        rig.rights.deny(Operation.DESCRIBE, topic="t")
        assert self.ends(rig, (0, -1, 0))[0][0] == NONE  # it may be a follower
        rig.rights.deny(Operation.CLUSTER_ACTION)
        assert self.ends(rig, (0, -1, 0)) == [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, -1, -1)]
