"""Settings that clients give groups: kept in the store, and listed among all that has settings. 1 s."""

from __future__ import annotations

import json

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.storing.group_settings import StoredGroupSettings, share_times
from logstore.config import StoreConfig
from logstore.errors import CorruptionError, InvalidConfigError
from logstore.logdir.acls import Operation
from logstore.logdir.directory import LogDirectory
from logstore.logdir.group_settings import decode_group_settings, encode_group_settings
from logstore.model import Isolation
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.apis import ApiKey
from logstore.wire.messages.topics import describe_configs, incremental_alter_configs
from tests.broker.rig import Rig
from tests.wire.handlers.rig_admin import AdminRig
from tests.wire.raw_client import RawClient

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1
DEFAULT_SOURCE, GROUP_SOURCE = 5, 8


def altering(group, **settings):
    """None deletes one."""
    configs = tuple(
        incremental_alter_configs.Config(name.replace("_", "."), DELETE if value is None else SET, value)
        for name, value in settings.items()
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        (incremental_alter_configs.Resource(GROUP, group, configs),)
    )


def describing(*groups):
    return describe_configs.DescribeConfigsRequest(
        tuple(describe_configs.Resource(GROUP, each, None) for each in groups), True
    )


def own(response):
    """Those that are not the defaults."""
    return {
        each.resource_name: {one.name: one.value for one in each.configs if one.config_source == GROUP_SOURCE}
        for each in response.resources
    }


def test_they_survive_a_restart(tmp_path):
    with (
        logstore.open(tmp_path / "store") as store,
        store.listen() as listener,
        RawClient(listener.address) as client,
    ):
        request = altering("g", share_auto_offset_reset="EARLIEST", share_delivery_count_limit="7")
        (done,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).resources
        assert done.error_code == ErrorCode.NONE
        client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, altering("h", share_isolation_level="read_committed"))
        client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, altering("h", share_isolation_level=None))
    expected = {
        "g": {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": "7"},
        "h": {},
    }
    with logstore.open(tmp_path / "store") as store:
        with store.listen() as listener, RawClient(listener.address) as client:
            assert own(client.ask(ApiKey.DESCRIBE_CONFIGS, describing("g", "h"))) == expected
        with store.listen() as other, RawClient(other.address) as client:  # they are the store's
            assert own(client.ask(ApiKey.DESCRIBE_CONFIGS, describing("g", "h"))) == expected
        assert store.verify()
        store.backup(tmp_path / "copy")
    with (
        logstore.open(tmp_path / "copy") as copy,
        copy.listen() as listener,
        RawClient(listener.address) as client,
    ):
        assert own(client.ask(ApiKey.DESCRIBE_CONFIGS, describing("g", "h"))) == expected


def test_what_is_described():
    rig = AdminRig()
    rig.send_message(ApiKey.INCREMENTAL_ALTER_CONFIGS, altering("g", share_isolation_level="read_committed"))
    (found,) = rig.send_message(ApiKey.DESCRIBE_CONFIGS, describing("g")).resources
    described = {each.name: (each.value, each.config_source) for each in found.configs}
    assert described == {
        "consumer.heartbeat.interval.ms": ("5000", DEFAULT_SOURCE),
        "consumer.session.timeout.ms": ("45000", DEFAULT_SOURCE),
        "errors.deadletterqueue.copy.record.enable": ("true", DEFAULT_SOURCE),
        "errors.deadletterqueue.topic.name": ("", DEFAULT_SOURCE),
        "share.auto.offset.reset": ("latest", DEFAULT_SOURCE),
        "share.delivery.count.limit": ("5", DEFAULT_SOURCE),
        "share.heartbeat.interval.ms": ("5000", DEFAULT_SOURCE),
        "share.isolation.level": ("read_committed", GROUP_SOURCE),
        "share.partition.max.record.locks": ("2000", DEFAULT_SOURCE),
        "share.record.lock.duration.ms": ("30000", DEFAULT_SOURCE),
        "share.session.timeout.ms": ("45000", DEFAULT_SOURCE),
    }
    assert rig.broker.group_settings.config_of("g").isolation is Isolation.COMMITTED
    assert rig.broker.group_settings.config_of("other").isolation is Isolation.HIGH_WATERMARK


def test_what_there_is_not_can_be_deleted():
    rig = AdminRig()
    asked = altering("g", streams_num_standby_replicas=None, share_isolation_level="read_committed")
    (answer,) = rig.send_message(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked).resources
    assert (answer.error_code, answer.error_message) == (0, None)
    assert rig.broker.group_settings.config_of("g").isolation is Isolation.COMMITTED
    asked = altering("g", streams_num_standby_replicas="1")
    (answer,) = rig.send_message(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked).resources
    assert answer.error_code == ErrorCode.INVALID_CONFIG


def test_times_of_consumers_may_not_contradict_each_other():
    rig = AdminRig()
    for settings in (
        {"consumer_session_timeout_ms": "5000"},
        {"consumer_heartbeat_interval_ms": "45000"},
        {"consumer_session_timeout_ms": "9", "consumer_heartbeat_interval_ms": "9"},
        {"consumer_session_timeout_ms": "0"},
    ):
        (answer,) = rig.send_message(ApiKey.INCREMENTAL_ALTER_CONFIGS, altering("g", **settings)).resources
        assert answer.error_code == ErrorCode.INVALID_CONFIG
        assert "heartbeat" in answer.error_message or "from 2 to" in answer.error_message
    assert rig.broker.group_settings.own("g") == {}


def test_times_that_contradict_each_other_since_the_store_was_opened_otherwise(tmp_path):
    """Other settings can be given, as a worker of a queue gives them; and members hear of times that fit."""
    with logstore.open(tmp_path / "s") as store, store.listen() as listener:
        store.create_topic("jobs").append(b"old")
        with RawClient(listener.address) as client:
            asked = altering("g", share_heartbeat_interval_ms="20000", consumer_heartbeat_interval_ms="20000")
            assert client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked).resources[0].error_code == 0
    config = StoreConfig(group_share_session_timeout_ms=10_000, group_consumer_session_timeout_ms=10_000)
    with logstore.open(tmp_path / "s", config=config) as store, store.listen() as listener:
        assert share_times(store_settings(store).own("g"), store.directory.config) == (10_000, 3_333)
        with logstore.connect(listener.address) as remote, remote.queue("jobs", group="g") as queue:
            assert [job.value for job in queue.poll(timeout=5)] == [b"old"]
        with RawClient(listener.address) as client:
            asked = altering("g", share_heartbeat_interval_ms="15000")
            found = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, asked).resources[0]
            assert found.error_code == ErrorCode.INVALID_CONFIG


def store_settings(store):
    return StoredGroupSettings(store.directory)


def listed(rig, *kinds, version=1):
    found = rig.send(ApiKey.LIST_CONFIG_RESOURCES, version, **({"resource_types": kinds} if version else {}))
    return found.error_code, [(each.resource_type, each.resource_name) for each in found.config_resources]


def test_what_has_settings():
    rig = AdminRig()
    rig.send_message(ApiKey.INCREMENTAL_ALTER_CONFIGS, altering("g", share_isolation_level="read_committed"))
    topics, broker, group = (TOPIC, "t"), (BROKER, "0"), (GROUP, "g")
    assert listed(rig) == (0, [topics, broker, group])
    assert listed(rig, GROUP) == (0, [group])
    assert listed(rig, TOPIC, METRICS, LOGGER) == (0, [topics])
    assert listed(rig, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert listed(rig, version=0) == (0, [])
    assert rig.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None).topics == ()
    rig.rights.deny(Operation.DESCRIBE_CONFIGS, Operation.DESCRIBE)
    assert listed(rig)[0] == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    moving = rig.send(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None)
    assert moving.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_disk_that_refuses_changes_nothing():
    disk = FaultyFiles(MemoryFiles())
    settings = Rig(files=disk).broker.group_settings
    settings.alter("g", {"share.delivery.count.limit": "7"})
    disk.fail(FAULTS["ENOSPC"], kinds=["write"], path="groups.json", times=None)
    with pytest.raises(logstore.StorageError):
        settings.alter("g", {"share.delivery.count.limit": "8"})
    disk.heal()
    again = LocalBroker(LogDirectory("/data", files=MemoryFiles(disk.files.now()))).group_settings
    for each in (settings, again):
        assert each.config_of("g").delivery_count_limit == 7


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"version": 1, "groups": []}',
        b'{"version": 1, "groups": {"g": {}}}',
        b'{"version": 1, "groups": {"": {"share.delivery.count.limit": "7"}}}',
        b'{"version": 1, "groups": {"g": {"share.delivery.count.limit": 7}}}',
        b'{"version": 1, "groups": {"g": {"other": "7"}}}',
    ],
)
def test_a_damaged_file_leaves_the_defaults_and_is_not_replaced(tmp_path, content, caplog):
    with pytest.raises(CorruptionError):
        decode_group_settings(content)
    logstore.open(tmp_path).close()
    (tmp_path / "groups.json").write_bytes(content)
    with logstore.open(tmp_path) as store:
        with store.listen() as listener, RawClient(listener.address) as client:
            assert own(client.ask(ApiKey.DESCRIBE_CONFIGS, describing("g"))) == {"g": {}}
            request = altering("g", share_delivery_count_limit="7")
            (done,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).resources
            assert done.error_code == ErrorCode.CORRUPT_MESSAGE
            assert str(tmp_path) not in done.error_message
        assert "groups.json" in caplog.text
        assert not store.verify()
    assert (tmp_path / "groups.json").read_bytes() == content


def test_the_file():
    settings = {"b": {"share.delivery.count.limit": "7"}, "a": {"share.auto.offset.reset": "latest"}}
    data = encode_group_settings(settings)
    assert list(json.loads(data)["groups"]) == ["a", "b"]
    assert decode_group_settings(data) == settings


def test_names_that_are_none():
    settings = Rig().broker.group_settings
    with pytest.raises(InvalidConfigError, match=r"did you mean 'share.delivery.count.limit'"):
        settings.alter("g", {"share.delivery.count.limits": "7"})
    with pytest.raises(InvalidConfigError, match="from 1 to 32767"):
        settings.alter("g", {"share.delivery.count.limit": "0"})


# The dead-letter topic (KIP-1191)

TOPIC_NAME, COPIES = "errors.deadletterqueue.topic.name", "errors.deadletterqueue.copy.record.enable"


@pytest.fixture
def dead(tmp_path):
    """A store with a topic for dead letters, and others that are none; and a client."""
    with logstore.open(tmp_path / "store") as store:
        takes = logstore.TopicConfig(errors_deadletterqueue_group_enable=True)
        store.create_topic("dead", config=takes)
        store.create_topic("latest", config=takes.with_settings(cleanup_policy="compact"))
        store.create_topic("jobs")
        store["jobs"].extend([(b"k", b"0"), (b"k", b"1"), (b"k", b"2")])
        with store.listen() as listener, RawClient(listener.address) as client:
            yield store, listener.address, client


def give(client, name, value):
    configs = (incremental_alter_configs.Config(name, SET, value),)
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        (incremental_alter_configs.Resource(GROUP, "g", configs),)
    )
    (done,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).resources
    return done.error_code, done.error_message


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none", "there is no topic 'none' for dead letters; create it first"),
        ("jobs", "topic 'jobs' does not take dead letters; set its errors.deadletterqueue.group.enable"),
        ("latest", "topic 'latest' is compacted"),
        ("__consumer_offsets", "the name of a topic that is not an internal one"),
        ("no/name", "the name of a topic that is not an internal one"),
    ],
)
def test_a_topic_that_takes_no_dead_letters_is_refused(dead, name, why):
    _, _, client = dead
    code, message = give(client, TOPIC_NAME, name)
    assert code == ErrorCode.INVALID_CONFIG
    assert why in message


def reject_all(address, **settings):
    with logstore.connect(address) as connected, connected.queue("jobs", group="g", **settings) as queue:
        for job in queue.poll(timeout=5):
            job.reject()


@pytest.mark.parametrize("copies", [None, "true", "false"])
def test_failed_jobs_go_where_an_administrator_has_said(dead, copies):
    store, address, client = dead
    assert give(client, TOPIC_NAME, "dead") == (ErrorCode.NONE, None)
    if copies is not None:
        assert give(client, COPIES, copies) == (ErrorCode.NONE, None)
    reject_all(address)
    found = [(each.key, each.value, dict(each.headers)["logstore.offset"]) for each in store["dead"].read()]
    whole = copies != "false"
    assert found == [(b"k" if whole else None, b"%d" % n if whole else None, b"%d" % n) for n in range(3)]
    described = client.ask(ApiKey.DESCRIBE_CONFIGS, describing("g"))
    assert own(described)["g"][TOPIC_NAME] == "dead"


def test_a_worker_elsewhere_names_the_topic(dead):
    store, address, client = dead
    with pytest.raises(InvalidConfigError, match="'latest' is compacted"):
        reject_all(address, dead_letter_topic="latest")
    assert give(client, TOPIC_NAME, "") == (ErrorCode.NONE, None)
    reject_all(address, dead_letter_topic="dead")
    assert [each.value for each in store["dead"].read()] == [b"0", b"1", b"2"]


def test_failed_jobs_of_the_topic_itself_do_not_go_round_and_round(dead, caplog):
    store, address, client = dead
    store["jobs"].configure(errors_deadletterqueue_group_enable=True)
    give(client, TOPIC_NAME, "jobs")
    reject_all(address)
    assert store["jobs"][0].log_end_offset == 3
    assert "passed over, as there is no dead_letter_topic" in caplog.text
