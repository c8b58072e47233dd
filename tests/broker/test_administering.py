"""What administrators ask of a broker: settings and what they mean, where partitions are, and their sizes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    MorePartitions,
    NewTopic,
    SettingKind,
)
from logstore.broker.settings import BROKER_NAMES, LISTS, documentation_of, settings_of
from logstore.config import StoreConfig, TopicConfig
from logstore.model import TopicPartition
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.handlers.settings import ListenerConfig
from tests.broker.rig import T0, T1, Rig


@pytest.fixture
def rig():
    return Rig()


class TestDescribed:
    @pytest.mark.parametrize("kind", [TopicConfig, StoreConfig, ListenerConfig])
    def test_every_setting_has_a_name_a_type_and_a_meaning(self, kind):
        found = settings_of(kind(), with_documentation=True)
        names = [each.name for each in found]
        assert len(names) == len(set(names))
        assert all(each.is_default and each.value == each.default for each in found)
        assert all(each.kind is not SettingKind.UNKNOWN for each in found)
        assert [each.name for each in found if not each.documentation] == []
        assert not any("`" in each.documentation for each in found)
        assert len(documentation_of(kind)) == len(fields(kind))

    def test_values_are_texts_that_are_read_back(self):
        config = TopicConfig(
            cleanup_policy="compact",
            min_cleanable_dirty_ratio=0.25,
            preallocate=True,
            retention_ms=5,
            compression_type="zstd",
        )
        found = settings_of(config)
        assert TopicConfig.from_properties({each.name: each.value for each in found}) == config
        assert {each.name for each in found if not each.is_default} == config.to_properties().keys()
        assert {each.name: each.kind for each in found if not each.is_default} == {
            "cleanup.policy": SettingKind.LIST,
            "min.cleanable.dirty.ratio": SettingKind.DOUBLE,
            "preallocate": SettingKind.BOOLEAN,
            "retention.ms": SettingKind.LONG,
            "compression.type": SettingKind.STRING,
        }

    def test_a_store_has_the_names_of_a_broker(self):
        found = {each.name: each for each in settings_of(StoreConfig(topic=TopicConfig(retention_ms=9)))}
        assert found["log.retention.ms"][1:3] == ("9", False)
        assert found["log.retention.ms"].default == "-1"
        assert found["transaction.max.timeout.ms"].kind is SettingKind.INT
        assert "topic" not in found
        assert set(BROKER_NAMES.values()) <= found.keys()
        assert BROKER_NAMES.keys() <= TopicConfig.setting_names()
        assert TopicConfig.setting_names() >= {each for each in LISTS if not each.startswith("log.")}

    def test_the_store_s_settings_and_meanings_come_only_if_they_are_wanted(self, rig):
        plain = rig.now(rig.broker.describe_configs(DescribeConfigsRequest(("t",))))
        assert plain.store == ()
        assert {each.documentation for each in plain.topics[0].settings} == {None}
        every = rig.now(
            rig.broker.describe_configs(
                DescribeConfigsRequest(("t",), with_store=True, with_documentation=True)
            )
        )
        assert every.store == settings_of(rig.directory.config, with_documentation=True)
        assert all(each.documentation for each in every.topics[0].settings)


class TestChanges:
    def change(self, rig, settings=(), *, validate_only=False, **how):
        request = AlterConfigsRequest((ConfigChange("t", dict(settings), **how),), validate_only)
        return rig.now(rig.broker.alter_configs(request)).topics[0]

    def test_lists_grow_and_shrink(self, rig):
        policy = {"cleanup.policy": "compact"}
        assert self.change(rig, appended=policy).error is ErrorCode.NONE
        assert rig.directory.config_of("t").cleanup_policy == "delete,compact"
        assert self.change(rig, appended=policy).error is ErrorCode.NONE
        assert rig.directory.config_of("t").cleanup_policy == "delete,compact"
        assert self.change(rig, subtracted={"cleanup.policy": "delete, nothing"}).error is ErrorCode.NONE
        assert rig.directory.config_of("t").cleanup_policy == "compact"
        assert self.change(rig, subtracted=policy).error is ErrorCode.NONE
        assert rig.directory.config_of("t").cleanup_policy == ""

    @pytest.mark.parametrize("how", ["appended", "subtracted"])
    @pytest.mark.parametrize("name", ["retention.ms", "no.such", "log.cleanup.policy"])
    def test_other_settings_are_no_lists(self, rig, name, how):
        outcome = self.change(rig, {"flush.ms": "7"}, **{how: {name: "1"}})
        assert outcome.error is ErrorCode.INVALID_CONFIG
        assert name in outcome.message
        assert rig.directory.config_of("t").flush_ms != 7

    def test_all_settings_are_replaced(self):
        rig = Rig(retention_ms=1000)
        assert self.change(rig, {"flush.ms": "7", "retention.ms": "5"}).error is ErrorCode.NONE
        assert self.change(rig, {"segment.ms": "9"}, replaces=True).error is ErrorCode.NONE
        assert rig.directory.config_of("t") == TopicConfig(retention_ms=1000, segment_ms=9)

    def test_nothing_changes_in_a_trial(self, rig):
        before = rig.directory.config_of("t")
        how = {"appended": {"cleanup.policy": "compact"}, "replaces": True}
        assert self.change(rig, {"flush.ms": "7"}, validate_only=True, **how).error is ErrorCode.NONE
        assert self.change(rig, {"flush.ms": "x"}, validate_only=True).error is ErrorCode.INVALID_CONFIG
        assert rig.directory.config_of("t") == before


class TestTopics:
    @pytest.mark.parametrize("validate_only", [False, True])
    def test_a_new_topic_is_described(self, rig, validate_only):
        topics = (NewTopic("new", 3, {"flush.ms": "7"}), NewTopic("t"))
        made, refused = rig.now(
            rig.broker.create_topics(CreateTopicsRequest(topics, validate_only=validate_only))
        ).topics
        assert (made.error, made.partition_count) == (ErrorCode.NONE, 3)
        assert {each.name for each in made.settings if not each.is_default} == {"flush.ms"}
        assert (refused.partition_count, refused.settings, refused.topic_id) == (-1, (), None)
        if validate_only:
            assert made.topic_id is None
        else:
            assert made.topic_id == rig.directory.topic("new").topic_id

    def test_a_trial_sees_names_that_clash(self, rig):
        for name in ("a.b", "a_b"):
            request = CreateTopicsRequest((NewTopic(name),), validate_only=name == "a_b")
            (outcome,) = rig.now(rig.broker.create_topics(request)).topics
        assert outcome.error is ErrorCode.TOPIC_ALREADY_EXISTS

    @pytest.mark.parametrize(
        ("assignments", "error"),
        [
            (((0,), (0,)), ErrorCode.NONE),
            (((0,),), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (((0,), (1,)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (((0,), (0, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (((0,), ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ],
    )
    def test_new_partitions_are_on_the_one_node(self, rig, assignments, error):
        for validate_only in (True, False):
            request = CreatePartitionsRequest((MorePartitions("t", 4, assignments),), validate_only)
            (outcome,) = rig.now(rig.broker.create_partitions(request)).topics
            assert outcome.error is error
        assert rig.directory.topic("t").partition_count == (2 if error else 4)

    @pytest.mark.parametrize("count", [-1, 0, 1, 2, 2**31 - 1])
    def test_a_topic_gets_more_partitions_only(self, rig, count):
        for validate_only in (True, False):
            request = CreatePartitionsRequest((MorePartitions("t", count),), validate_only)
            (outcome,) = rig.now(rig.broker.create_partitions(request)).topics
            assert outcome.error is ErrorCode.INVALID_PARTITIONS
            assert str(count) in outcome.message

    def test_a_compacted_topic_keeps_its_records(self):
        rig = Rig(cleanup_policy="compact")
        request = DeleteRecordsRequest((DeleteRecordsPartition(T0, 0),))
        assert rig.now(rig.broker.delete_records(request)).partitions[0].error is ErrorCode.POLICY_VIOLATION

    def test_the_answers_come_in_the_order_of_the_request(self, rig, monkeypatch):
        monkeypatch.setattr("logstore.broker.administering.flushed_at_a_time", lambda files: 4)
        parts = tuple(DeleteRecordsPartition(TopicPartition("t", number), 0) for number in (1, 7, 0))
        answers = rig.now(rig.broker.delete_records(DeleteRecordsRequest(parts))).partitions
        assert [each.partition.partition for each in answers] == [1, 7, 0]
        assert answers[1].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestSizes:
    def sizes(self, rig, partitions=None):
        result = rig.now(rig.broker.describe_log_dirs(DescribeLogDirsRequest(partitions)))
        assert result.error is ErrorCode.NONE
        (directory,) = result.directories
        assert directory.path == rig.directory.path
        return directory

    def test_of_all_partitions_and_of_some(self, rig):
        rig.produce(b"a" * 1000)
        every = self.sizes(rig)
        assert every.sizes == {T0: rig.directory.log(T0).written_bytes, T1: 0}
        assert every.sizes[T0] > 1000
        assert every.total_bytes > every.usable_bytes > 0
        assert self.sizes(rig, (T1, TopicPartition("nowhere", 0), TopicPartition("t", 9))).sizes == {T1: 0}

    def test_a_disk_that_does_not_answer(self):
        files = FaultyFiles(MemoryFiles())
        rig = Rig(files=files)
        files.fail(FAULTS["EIO"], kinds=["stat"])
        directory = self.sizes(rig)
        assert (directory.error, directory.total_bytes) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert directory.sizes.keys() == {T0, T1}

    def test_a_closed_directory(self, rig):
        rig.directory.close()
        result = rig.now(rig.broker.describe_log_dirs(DescribeLogDirsRequest()))
        assert (result.error, result.directories) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
