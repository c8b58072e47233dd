"""What administrators ask of a broker that another end of a socket has."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.requests import (
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    MorePartitions,
    SettingKind,
)
from logstore.config import TopicConfig
from logstore.model import TopicPartition
from tests.broker.rig import T0, T1
from tests.wire.remote.test_listening import ListeningRig


@pytest.fixture
def rig():
    made = ListeningRig("127.0.0.1:0")
    yield made
    made.close()


def test_sizes_on_disk(rig):
    rig.produce(b"a" * 500)
    u0 = TopicPartition("u", 0)
    size = rig.directory.log(T0).written_bytes
    for wanted, sizes in ((None, {T0: size, T1: 0, u0: 0}), ((T0, TopicPartition("x", 0)), {T0: size})):
        found = rig.now(rig.broker.describe_log_dirs(DescribeLogDirsRequest(wanted)))
        assert found.error is ErrorCode.NONE
        (directory,) = found.directories
        assert (directory.path, directory.error, directory.sizes) == ("/data", ErrorCode.NONE, sizes)
        assert directory.total_bytes > directory.usable_bytes > 0


def change(rig, settings, **how):
    request = AlterConfigsRequest((ConfigChange("t", settings, **how),))
    (outcome,) = rig.now(rig.broker.alter_configs(request)).topics
    return outcome.error


def test_settings_of_each_kind_of_change(rig):
    policy = "cleanup.policy"
    assert change(rig, {"flush.ms": "7"}, appended={policy: "compact"}) is ErrorCode.NONE
    assert rig.directory.config_of("t") == TopicConfig(flush_ms=7, cleanup_policy="delete,compact")
    assert change(rig, {}, subtracted={policy: "delete"}) is ErrorCode.NONE
    assert change(rig, {"segment.ms": "9"}, replaces=True) is ErrorCode.NONE
    assert rig.directory.config_of("t") == TopicConfig(segment_ms=9)


def test_settings_are_described(rig):
    assert change(rig, {"segment.ms": "9"}) is ErrorCode.NONE
    for explains in (False, True):
        request = DescribeConfigsRequest(("t",), with_documentation=explains)
        (here,) = rig.now(LocalBroker(rig.directory).describe_configs(request)).topics
        (there,) = rig.now(rig.broker.describe_configs(request)).topics
        assert there == here
    assert SettingKind.LIST in {each.kind for each in there.settings}


def test_new_partitions_are_where_they_are_wanted(rig):
    for node, code in ((1, ErrorCode.INVALID_REPLICA_ASSIGNMENT), (0, ErrorCode.NONE)):
        request = CreatePartitionsRequest((MorePartitions("t", 3, ((node,),)),))
        (outcome,) = rig.now(rig.broker.create_partitions(request)).topics
        assert outcome.error is code
