"""What clients of a coordinator are told when its disk refuses: other people's ask again, ours say why."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers import coordinated
from logstore.wire.messages.cluster.api_versions import SOFTWARE, ApiVersionsRequest
from logstore.wire.messages.groups import consumer_group_heartbeat, offset_commit
from logstore.wire.messages.shares.share_group_heartbeat import ShareGroupHeartbeatRequest
from logstore.wire.messages.transactions.init_producer_id import InitProducerIdRequest
from tests.broker.rig import T0, T1, Rig, Transactional
from tests.wire.handlers.asking import Asking
from tests.wire.handlers.test_groups import commit, join, sync
from tests.wire.handlers.test_transactions import add, add_offsets, commit_offset, end

OK = ErrorCode.NONE
AGAIN = ErrorCode.NOT_COORDINATOR
FULL = ErrorCode.KAFKA_STORAGE_ERROR


@pytest.fixture
def disk():
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def asking(disk):
    return Asking(Rig(files=disk))


@pytest.fixture(params=["librdkafka", SOFTWARE])
def told(asking, request):
    """What this client hears of the disk."""
    asking.ask(ApiKey.API_VERSIONS, ApiVersionsRequest(request.param, "1"))
    return FULL if request.param == SOFTWARE else AGAIN


def versions_of(key, last=99):
    return range(APIS[key].first, min(APIS[key].last, last) + 1)


def fill(disk, topic):
    disk.fail(FAULTS["ENOSPC"], kinds=["write"], path=topic, times=None)


class TestTransactions:
    def test_those_that_begin(self, asking, disk, told):
        fill(disk, TRANSACTIONS_TOPIC)
        request = InitProducerIdRequest("shop", 60_000)
        for version in versions_of(ApiKey.INIT_PRODUCER_ID):
            assert asking.ask(ApiKey.INIT_PRODUCER_ID, request, version).error_code == told
        disk.heal()
        assert asking.ask(ApiKey.INIT_PRODUCER_ID, request).error_code == OK

    def test_those_that_are_open(self, asking, disk, told):
        producer = Transactional(asking.rig)
        assert producer.start() is OK
        assert producer.send(b"v") is OK
        fill(disk, TRANSACTIONS_TOPIC)
        for version in versions_of(ApiKey.ADD_PARTITIONS_TO_TXN, last=3):
            assert add(asking, producer.me, version, T1) == [told]
        for version in versions_of(ApiKey.ADD_OFFSETS_TO_TXN):
            assert add_offsets(asking, producer.me, version) == told
        assert commit_offset(asking, producer.me, 5) == [told]
        for version in versions_of(ApiKey.END_TXN, last=4):
            assert end(asking, producer.me, version).error_code == told
        disk.heal()
        assert end(asking, producer.me, 4).error_code == OK

    def test_their_offsets(self, asking, disk, told):
        producer = Transactional(asking.rig)
        assert producer.start() is OK
        assert add_offsets(asking, producer.me, 3) == OK
        fill(disk, OFFSETS_TOPIC)
        for version in versions_of(ApiKey.TXN_OFFSET_COMMIT):
            assert commit_offset(asking, producer.me, version) == [told]
        disk.heal()
        assert commit_offset(asking, producer.me, 4) == [OK]


class TestGroups:
    def test_offsets(self, asking, disk, told):
        fill(disk, OFFSETS_TOPIC)
        for version in versions_of(ApiKey.OFFSET_COMMIT):
            assert commit(asking, version, offset_commit.Partition(0, 1)) == [told]
        disk.heal()
        assert commit(asking, 9, offset_commit.Partition(0, 1)) == [OK]

    def test_members(self, asking, disk, told):
        fill(disk, OFFSETS_TOPIC)
        for version in versions_of(ApiKey.SYNC_GROUP):
            group = f"g{version}"
            assert sync(asking, join(asking, group=group), version, group).error_code == told
        disk.heal()
        assert sync(asking, join(asking)).error_code == OK

    def test_members_of_the_newer_protocol(self, asking, disk, told):
        beat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            "g", "me", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), topic_partitions=()
        )
        fill(disk, OFFSETS_TOPIC)
        for version in versions_of(ApiKey.CONSUMER_GROUP_HEARTBEAT):
            found = asking.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat, version)
            assert found.error_code == told
            if told is AGAIN:  # what the disk has said is not for strangers
                assert found.error_message == "NOT_COORDINATOR"
        disk.heal()
        assert asking.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, beat).error_code == OK

    def test_members_of_share_groups(self, asking, disk, told):
        beat = ShareGroupHeartbeatRequest("g", "me", 0, None, ("t",))
        fill(disk, SHARE_STATE_TOPIC)
        found = asking.ask(ApiKey.SHARE_GROUP_HEARTBEAT, beat)
        assert found.error_code == told
        if told is AGAIN:
            assert found.error_message == "NOT_COORDINATOR"
        disk.heal()
        assert asking.ask(ApiKey.SHARE_GROUP_HEARTBEAT, beat).error_code == OK

    def test_the_log_hears_of_the_disk_once_a_minute(self, asking, disk, caplog, monkeypatch):
        monkeypatch.setattr(coordinated, "_told_at", {})
        fill(disk, OFFSETS_TOPIC)
        for _ in range(5):
            assert commit(asking, 9, offset_commit.Partition(0, 1)) == [AGAIN]
        (said,) = [each.message for each in caplog.records if each.name == coordinated.__name__]
        assert said.startswith("members of groups are told to ask again: [Errno 28]")


def test_a_warning_a_minute(asking, disk, caplog):
    """Producers that try again several times a second do not fill the program's log."""
    producer = Transactional(asking.rig)
    assert producer.start() is OK
    fill(disk, TRANSACTIONS_TOPIC)
    for _ in range(5):
        assert producer.add(T0) is FULL
    (said,) = [each.message for each in caplog.records]
    assert said.startswith("transactional id 'shop': storing state Ongoing: [Errno 28]")


@pytest.mark.parametrize("topic", [TRANSACTIONS_TOPIC, "t-0"])
def test_what_is_tried_again_by_itself_warns_once_a_minute(asking, disk, caplog, topic):
    """That transactions are over, and their markers."""
    producer = Transactional(asking.rig, takes_epoch=True)
    assert producer.start() is OK
    assert producer.send(b"v") is OK
    if topic == TRANSACTIONS_TOPIC:  # the decision is stored, and its end is not
        assert producer.end() is OK
    fill(disk, topic)
    if topic != TRANSACTIONS_TOPIC:
        assert producer.end() is OK
    for _ in range(20):
        asking.rig.pass_time(1_000)
    assert len(disk.failures) > 1
    (said,) = [each.message for each in caplog.records if "transaction" in each.name]
    assert "[Errno 28]" in said
