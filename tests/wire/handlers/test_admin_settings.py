"""Requests on settings, from their bytes to a directory and back."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import DescribeConfigsRequest as Described
from logstore.broker.settings import settings_of
from logstore.config import StoreConfig, TopicConfig
from logstore.logdir.acls import Operation
from logstore.wire.apis import ApiKey
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.messages.cluster import elect_leaders
from logstore.wire.messages.topics import (
    alter_configs,
    create_partitions,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
)
from tests.wire.handlers.rig_admin import AdminRig

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
FROM_TOPIC, STATIC, DEFAULT = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
NONE = ErrorCode.NONE


@pytest.fixture
def rig():
    return AdminRig()


class TestDescribeConfigs:
    def describe(self, rig, *resources, synonyms=False, documentation=False):
        found = rig.send(
            ApiKey.DESCRIBE_CONFIGS,
            resources=tuple(describe_configs.Resource(*each) for each in resources),
            include_synonyms=synonyms,
            include_documentation=documentation,
        ).resources
        assert [each[2:4] for each in found] == [each[:2] for each in resources]
        return found

    def test_a_topic_s_settings(self):
        rig = AdminRig(retention_ms=5)
        (found,) = self.describe(rig, (TOPIC, "t", None))
        asked = Described(("t",))
        (known,) = rig.now(rig.broker.describe_configs(asked)).topics
        assert [(each.name, each.value, each.config_type) for each in found.configs] == [
            (each.name, each.value, each.kind) for each in known.settings
        ]
        assert [each.name for each in found.configs if each.config_source != DEFAULT] == ["retention.ms"]
        for each in found.configs:
            assert (each.read_only, each.is_sensitive, each.synonyms) == (False, False, ())
            assert each.documentation is None

    def test_what_is_asked_for_besides(self):
        rig = AdminRig(retention_ms=5)
        keys = ("retention.ms", "preallocate", "no.such")
        (found,) = self.describe(rig, (TOPIC, "t", keys), synonyms=True, documentation=True)
        assert {each.name: each.synonyms for each in found.configs} == {
            "retention.ms": (
                ("retention.ms", "5", FROM_TOPIC),
                ("log.retention.ms", "5", STATIC),
                ("log.retention.ms", "-1", DEFAULT),
            ),
            "preallocate": (("log.preallocate", "false", DEFAULT),),
        }
        assert all(each.documentation for each in found.configs)

    def test_what_a_topic_has_without_its_own_value_is_told(self):
        """That is what it gets when the value is deleted: what the store was opened with, not the default."""
        rig = AdminRig(retention_ms=5)
        rig.directory.configure("t", TopicConfig())
        (found,) = self.describe(rig, (TOPIC, "t", ("retention.ms",)), synonyms=True)
        (config,) = found.configs
        assert (config.value, config.config_source) == ("-1", FROM_TOPIC)
        assert [(each.value, each.source) for each in config.synonyms] == [
            ("-1", FROM_TOPIC),
            ("5", STATIC),
            ("-1", DEFAULT),
        ]

    def test_the_broker_s_settings(self):
        rig = AdminRig(listener=ListenerConfig(num_partitions=7))
        all_brokers, this = self.describe(rig, (BROKER, "", None), (BROKER, "0", None))
        (some,) = self.describe(rig, (BROKER, "0", ("num.partitions", "broker.id")))
        assert all_brokers.configs == ()
        names = [each.name for each in this.configs]
        assert len(names) == len(set(names))
        for config in (ListenerConfig(), StoreConfig()):
            assert {each.name for each in settings_of(config)} <= set(names)
        assert all(each.read_only and each.config_source in (STATIC, DEFAULT) for each in this.configs)
        assert {each.name: (each.value, each.config_source) for each in some.configs} == {
            "num.partitions": ("7", STATIC),
            "broker.id": ("0", STATIC),
        }

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
            (BROKER, "1", ErrorCode.INVALID_REQUEST),
            (LOGGER, "0", ErrorCode.INVALID_REQUEST),
            (METRICS, "m", ErrorCode.INVALID_REQUEST),
            (GROUP, "", ErrorCode.INVALID_REQUEST),
            (3, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_what_is_refused_says_why(self, rig, kind, name, code):
        bad, good = self.describe(rig, (kind, name, None), (TOPIC, "t", None))
        assert (bad.error_code, bad.configs, good.error_code) == (code, (), NONE)
        assert bad.error_message
        assert good.error_message is None

    def test_what_is_asked_for_twice_is_answered_once(self, rig):
        resource = describe_configs.Resource
        asked = (resource(BROKER, "0", ("node.id",)), resource(TOPIC, "t", ()), resource(BROKER, "0", None))
        found = rig.send(ApiKey.DESCRIBE_CONFIGS, resources=asked).resources
        assert [(each.resource_type, each.resource_name) for each in found] == [(BROKER, "0"), (TOPIC, "t")]
        assert len(found[0].configs) == 1

    def test_denials(self, rig):
        rig.directory.create_topic("u", 1, None)
        rig.rights.deny(Operation.DESCRIBE_CONFIGS)
        rig.rights.deny(Operation.DESCRIBE_CONFIGS, topic="t")
        rig.rights.deny(Operation.DESCRIBE_CONFIGS, group="g")
        found = self.describe(
            rig, (TOPIC, "t", None), (TOPIC, "u", None), (BROKER, "0", None), (GROUP, "g", None)
        )
        assert [(each.error_code, bool(each.configs)) for each in found] == [
            (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
            (NONE, True),
            (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, False),
            (ErrorCode.GROUP_AUTHORIZATION_FAILED, False),
        ]


class TestChangingSettings:
    def replace(self, rig, settings, kind=TOPIC, name="t", **fields):
        configs = tuple(alter_configs.Config(*each) for each in settings)
        resources = (alter_configs.Resource(kind, name, configs),)
        (found,) = rig.send(ApiKey.ALTER_CONFIGS, resources=resources, **fields).resources
        assert found[2:] == (kind, name)
        return found

    def change(self, rig, *changes, kind=TOPIC, name="t", **fields):
        configs = tuple(incremental_alter_configs.Config(*each) for each in changes)
        resources = (incremental_alter_configs.Resource(kind, name, configs),)
        (found,) = rig.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=resources, **fields).resources
        assert found[2:] == (kind, name)
        return found

    def config(self, rig):
        return rig.directory.config_of("t")

    def test_some_are_changed(self, rig):
        policy = "cleanup.policy"
        first = self.change(rig, ("flush.ms", SET, "7"), (policy, APPEND, "compact"))
        assert first[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(flush_ms=7, cleanup_policy="delete,compact")
        second = self.change(rig, ("flush.ms", DELETE, None), (policy, SUBTRACT, "delete"))
        assert second[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(cleanup_policy="compact")

    def test_all_are_replaced(self, rig):
        self.change(rig, ("flush.ms", SET, "7"))
        assert self.replace(rig, [("segment.ms", "9")])[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(segment_ms=9)

    def test_what_there_is_not_can_be_deleted(self, rig):
        """MirrorMaker deletes all settings of the copy that have their defaults in the original."""
        changes = (("flush.ms", SET, "7"), ("remote.copy.lag.bytes", DELETE, None), ("flsh.ms", DELETE, ""))
        assert self.change(rig, *changes)[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(flush_ms=7)

    def test_what_asks_for_nothing_may_be_said(self, rig):
        """By tools that give a topic all the settings of another, defaults too."""
        idle = {"remote.storage.enable": "FALSE", "local.retention.ms": " -2", "remote.copy.lag.ms": "0"}
        idle["leader.replication.throttled.replicas"] = ""
        changes = [("flush.ms", SET, "7"), *((name, SET, value) for name, value in idle.items())]
        assert self.change(rig, *changes)[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(flush_ms=7)
        assert self.replace(rig, [("segment.ms", "9"), *idle.items()])[:2] == (NONE, None)
        assert self.config(rig) == TopicConfig(segment_ms=9)

    def test_a_trial_changes_nothing(self, rig):
        assert self.change(rig, ("flush.ms", SET, "7"), validate_only=True).error_code == NONE
        assert self.replace(rig, [("flush.ms", "7")], validate_only=True).error_code == NONE
        bad = self.change(rig, ("flush.ms", SET, "x"), validate_only=True)
        assert bad.error_code == ErrorCode.INVALID_CONFIG
        assert self.config(rig) == TopicConfig()

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ([("flush.ms", SET, None)], ErrorCode.INVALID_REQUEST),
            ([("cleanup.policy", APPEND, None)], ErrorCode.INVALID_REQUEST),
            ([("flush.ms", 4, "7")], ErrorCode.INVALID_REQUEST),
            ([("flush.ms", SET, "7"), ("flush.ms", DELETE, None)], ErrorCode.INVALID_REQUEST),
            ([("flush.ms", APPEND, "7")], ErrorCode.INVALID_CONFIG),
            ([("flsh.ms", SET, "7")], ErrorCode.INVALID_CONFIG),
            ([("remote.storage.enable", SET, "true")], ErrorCode.INVALID_CONFIG),
            ([("local.retention.ms", APPEND, "-2")], ErrorCode.INVALID_CONFIG),
        ],
    )
    def test_what_is_refused_says_why(self, rig, changes, code):
        found = self.change(rig, *changes)
        assert found.error_code == code
        assert changes[0][0] in found.error_message
        assert self.config(rig) == TopicConfig()

    def test_a_value_is_needed_to_replace(self, rig):
        assert self.replace(rig, [("flush.ms", None)]).error_code == ErrorCode.INVALID_REQUEST
        found = self.replace(rig, [("flush.ms", "7"), ("flush.ms", "8")])
        assert found.error_code == ErrorCode.INVALID_REQUEST

    @pytest.mark.parametrize(
        ("kind", "name", "code"),
        [
            (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (BROKER, "0", ErrorCode.INVALID_REQUEST),
            (BROKER, "", ErrorCode.INVALID_REQUEST),
            (LOGGER, "0", ErrorCode.INVALID_REQUEST),
            (METRICS, "m", ErrorCode.INVALID_REQUEST),
            (0, "x", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_only_topics_have_settings_that_change(self, rig, kind, name, code):
        for found in (
            self.change(rig, ("flush.ms", SET, "7"), kind=kind, name=name),
            self.replace(rig, [("flush.ms", "7")], kind=kind, name=name),
        ):
            assert found.error_code == code
            assert found.error_message

    def test_no_resource_is_changed_twice(self, rig):
        resource = alter_configs.Resource(TOPIC, "t", (alter_configs.Config("flush.ms", "7"),))
        found = rig.send(ApiKey.ALTER_CONFIGS, resources=(resource, resource)).resources
        assert [each.error_code for each in found] == [ErrorCode.INVALID_REQUEST] * 2
        assert self.config(rig) == TopicConfig()

    def test_denials(self, rig):
        rig.rights.deny(Operation.ALTER_CONFIGS, topic="t")
        rig.rights.deny(Operation.ALTER_CONFIGS)
        assert self.replace(rig, []).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert self.change(rig).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = self.change(rig, kind=BROKER, name="0")
        assert found.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_no_answer_names_other_topics(rig):
    """Of a topic that is not there, errors of this package suggest those that are."""
    asked = {
        ApiKey.DELETE_TOPICS: (delete_topics.Topic("tt"),),
        ApiKey.CREATE_PARTITIONS: (create_partitions.Topic("tt", 9, None),),
        ApiKey.ELECT_LEADERS: (elect_leaders.Topic("tt", (0,)),),
    }
    for key, topics in asked.items():
        (found,) = rig.send(key, topics=topics).topics
        assert "there is no topic 'tt'" in str(found)
        assert "'t'" not in str(found)
        assert rig.directory.path not in str(found)
    for key, kind in (
        (ApiKey.DESCRIBE_CONFIGS, describe_configs.Resource),
        (ApiKey.ALTER_CONFIGS, alter_configs.Resource),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.Resource),
    ):
        (found,) = rig.send(key, resources=(kind(TOPIC, "tt", ()),)).resources
        assert found.error_message == "there is no topic 'tt'"
