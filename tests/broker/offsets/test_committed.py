"""What is committed is there: all of a commit, again after an open, and until it is deleted or expires."""

from __future__ import annotations

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.internal_topic import SEGMENT_BYTES
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    ReadOnlyError,
    RecordTooLargeError,
    UnsupportedVersionError,
    UsageError,
)
from logstore.format.messages.group_records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_offset_key,
    encode_offset_value,
)
from logstore.model import OffsetAndMetadata, ProducerIdentity, TopicPartition
from tests.broker.offsets.helpers import BILLS, DAY_MS, MINUTE_MS, ORDERS, OTHER, World


@pytest.fixture
def world():
    world = World()
    yield world
    world.store.close()


# Committing -------------------------------------------------------------------------------------------------


def test_offsets_come_back(world):
    note = OffsetAndMetadata(5, "up to the 5th", 3)
    world.committed.commit("billing", {ORDERS: note, BILLS: OffsetAndMetadata(0)})
    world.commit("other", {ORDERS: 9})
    for _ in range(2):
        assert world.committed.fetch("billing") == {
            ORDERS: OffsetCommitValue(5, 3, "up to the 5th", world.clock.now_ms()),
            BILLS: OffsetCommitValue(0, -1, "", world.clock.now_ms()),
        }
        assert world.committed.fetch("billing", [ORDERS, OTHER]).keys() == {ORDERS}
        assert world.offsets("nobody") == {}
        assert world.committed.groups() == {"billing", "other"}
        world.reopen()


def test_the_first_commit_makes_the_topic_with_kafkas_settings(world):
    assert world.offsets("billing") == {}
    assert world.committed.delete("billing") == ()
    assert "__consumer_offsets" not in world.store
    world.commit("billing", {ORDERS: 1})
    topic = world.store["__consumer_offsets"]
    assert len(topic) == 1
    assert topic.config == TopicConfig(cleanup_policy="compact", segment_bytes=SEGMENT_BYTES)
    assert SEGMENT_BYTES == 104_857_600


def test_a_topic_that_is_there_keeps_its_partitions():
    world = World(offsets_topic_num_partitions=3)
    world.store.create_topic(
        "__consumer_offsets", partitions=50, config=TopicConfig(cleanup_policy="compact")
    )
    world.commit("billing", {ORDERS: 1})
    assert world.committed.partition_of("billing") == 9
    assert [log.log_end_offset for log in world.store["__consumer_offsets"]] == [0] * 9 + [1] + [0] * 40
    assert world.offsets("billing") == {ORDERS: 1}
    assert world.committed.groups() == {"billing"}


def test_the_number_of_partitions_is_a_setting():
    world = World(offsets_topic_num_partitions=7)
    for number in range(20):
        world.commit(f"group-{number}", {ORDERS: number})
    assert len(world.store["__consumer_offsets"]) == 7
    world.reopen()
    assert [world.offsets(f"group-{number}") for number in range(20)] == [{ORDERS: n} for n in range(20)]


def test_a_commit_is_one_batch(world):
    offsets = {TopicPartition("orders", number): number for number in range(5_000)}
    world.commit("billing", offsets)
    fetched = world.log().fetch(0)
    assert fetched.next_offset == 5_000
    assert int.from_bytes(fetched.data[57:61]) == 5_000  # the record count of the first batch
    world.reopen()
    assert world.offsets("billing") == offsets


def test_a_commit_that_fits_no_batch_is_refused_whole(world):
    offsets = {TopicPartition("orders", number): number for number in range(30_000)}
    with pytest.raises(RecordTooLargeError, match=r"30000 offsets of group 'billing' .* fewer partitions"):
        world.commit("billing", offsets)
    assert world.offsets("billing") == {}
    assert world.log().log_end_offset == 0


def test_metadata_is_bounded(world):
    world.committed.commit("billing", {ORDERS: OffsetAndMetadata(1, "é" * 2_048)})
    assert not world.committed.is_metadata_too_large("x" * 4_096)
    assert world.committed.is_metadata_too_large("x" * 4_097)
    with pytest.raises(
        UsageError, match="orders-1 has 2049 characters; offset_metadata_max_bytes allows 4096"
    ):
        world.committed.commit(
            "billing", {ORDERS: OffsetAndMetadata(2), OTHER: OffsetAndMetadata(1, "é" * 2_049)}
        )
    assert world.offsets("billing") == {ORDERS: 1}


def test_a_flush_makes_it_durable(world):
    world.commit("billing", {ORDERS: 1}, flush=True)
    assert world.log().durable_offset == 1
    world.commit("billing", {ORDERS: 2})
    assert world.log().durable_offset == 1


def test_a_read_only_store_follows_its_writer(world):
    reader = logstore.open("/store", files=world.files, clock=world.clock, read_only=True)
    committed = CommittedOffsets(reader._directory)
    assert committed.fetch("billing") == {}
    for number in range(3):
        world.commit("billing", {ORDERS: number})
        assert committed.fetch("billing")[ORDERS].offset == number
    world.committed.delete("billing")
    assert committed.fetch("billing") == {}
    for change in (
        lambda: committed.commit("billing", {ORDERS: OffsetAndMetadata(1)}),
        lambda: committed.delete("billing"),
        lambda: committed.forget_topic("orders"),
        lambda: committed.store_group("billing", None),
    ):
        with pytest.raises(ReadOnlyError, match="opened read-only"):
            change()
    reader.close()


def test_a_reader_that_was_away_while_tombstones_went_reads_anew(world):
    world.commit("billing", {ORDERS: 1})
    reader = logstore.open("/store", files=world.files, clock=world.clock, read_only=True)
    committed = CommittedOffsets(reader._directory)
    assert committed.fetch("billing")
    world.committed.delete("billing")
    for _ in range(2):
        world.log().compact(now=True)
        world.clock.advance(2 * DAY_MS)
    world.log().compact(now=True)
    assert [record for record in world.log().read() if record.value is None] == []
    world.commit("another", {ORDERS: 1})
    assert committed.fetch("billing") == {}
    reader.close()


def test_what_others_append_counts(world):
    """A coordinator beside this one, a topic that is made anew, a log that is opened again."""
    world.commit("billing", {ORDERS: 1})
    world.log().extend([(encode_offset_key("billing", ORDERS), encode_offset_value(OffsetCommitValue(7)))])
    assert world.offsets("billing") == {ORDERS: 7}
    CommittedOffsets(world.store._directory).commit("billing", {OTHER: OffsetAndMetadata(3)})
    world.commit("billing", {BILLS: 1})
    assert world.offsets("billing") == {ORDERS: 7, OTHER: 3, BILLS: 1}
    world.log().truncate_to(1)
    assert world.offsets("billing") == {ORDERS: 1}
    world.store.delete_topic("__consumer_offsets")
    assert world.offsets("billing") == {}
    world.commit("billing", {BILLS: 2})
    assert world.offsets("billing") == {BILLS: 2}


# Loading ----------------------------------------------------------------------------------------------------


def test_who_does_not_wait_is_told_that_it_loads(world):
    assert world.committed.load_state("billing") is ErrorCode.NONE
    world.commit("billing", {ORDERS: 1})
    world.reopen()
    for _ in range(2):
        assert world.committed.load_state("billing") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.store.run_background()
    assert world.committed.load_state("billing") is ErrorCode.NONE
    assert world.offsets("billing") == {ORDERS: 1}


@pytest.mark.damaged
def test_a_log_that_cannot_be_loaded_is_tried_again(world):
    world.commit("billing", {ORDERS: 1})
    good = world.log().log_end_offset
    world.log().extend([(encode_offset_key("billing", ORDERS), b"\0\x63 from the future")])
    world.reopen()
    assert world.committed.load_state("billing") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.store.run_background()
    assert world.committed.load_state("billing") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.committed.load_state("billing") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(UnsupportedVersionError, match="OffsetCommitValue of version 99; 0 to 4 are known"):
        world.committed.fetch("billing")
    world.log().truncate_to(good)
    world.store.run_background()
    assert world.committed.load_state("billing") is ErrorCode.NONE
    assert world.offsets("billing") == {ORDERS: 1}


@pytest.mark.parametrize("row", [(b"\0", b""), (b"\0\1\0\x09short", b""), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0")])
def test_damaged_records_are_refused(world, row):
    world.commit("billing", {ORDERS: 1})
    world.log().extend([row])
    with pytest.raises(CorruptionError):
        world.offsets("billing")


def test_records_of_other_kinds_are_passed_over_and_kept(world):
    """KIP-848's groups have keys from version 3 on."""
    newer = (b"\0\3\0\7billing", b"\0\0whatever")
    world.commit("billing", {ORDERS: 1})
    world.log().extend([newer])
    world.commit("billing", {ORDERS: 2})
    world.log().compact(now=True)
    assert newer in [(record.key, record.value) for record in world.log().read()]
    world.reopen()
    assert world.offsets("billing") == {ORDERS: 2}
    assert world.committed.load_groups() == {}


# Transactions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_what_a_transaction_commits_counts_with_its_marker(world, reopens, is_committed):
    world.commit("billing", {ORDERS: 1, OTHER: 1})
    world.commit("billing", {ORDERS: 5, BILLS: 6}, producer=ProducerIdentity(8, 0, -1, True))
    world.commit("else", {ORDERS: 4}, producer=ProducerIdentity(9, 0, -1, True))
    world.commit("billing", {OTHER: 2})
    if reopens:
        world.reopen()
    assert world.offsets("billing") == {ORDERS: 1, OTHER: 2}
    assert world.committed.unstable("billing") == {ORDERS, BILLS}
    world.log().append_end_marker(8, 0, committed=is_committed)
    if reopens:
        world.reopen()
    expected = {ORDERS: 5, OTHER: 2, BILLS: 6} if is_committed else {ORDERS: 1, OTHER: 2}
    assert world.offsets("billing") == expected
    assert world.committed.unstable("billing") == frozenset()
    assert world.committed.unstable("else") == {ORDERS}
    assert world.offsets("else") == {}


@pytest.mark.parametrize("reopens", [False, True])
def test_the_later_record_counts_not_the_later_marker(world, reopens):
    """As in Kafka; and a compaction keeps that one."""
    world.commit("billing", {ORDERS: 5, OTHER: 5}, producer=ProducerIdentity(8, 0, -1, True))
    assert world.offsets("billing") == {}
    world.commit("billing", {ORDERS: 6})
    world.log().append_end_marker(8, 0, committed=True)
    if reopens:
        world.reopen()
    assert world.offsets("billing") == {ORDERS: 6, OTHER: 5}
    world.log().compact(now=True)
    world.reopen()
    assert world.offsets("billing") == {ORDERS: 6, OTHER: 5}


def test_what_comes_while_it_is_read_counts_once(world, monkeypatch):
    """The next transaction of a producer must not be taken for the one whose marker is read again."""
    transaction = ProducerIdentity(8, 0, -1, True)
    world.commit("billing", {ORDERS: 5}, producer=transaction)
    world.reopen()
    log = world.log()
    fetch = log.fetch
    beside = CommittedOffsets(world.store._directory)

    def fetch_late(*arguments, **options):
        monkeypatch.setattr(log, "fetch", fetch)
        log.append_end_marker(8, 0, committed=True)
        beside.commit("billing", {ORDERS: OffsetAndMetadata(6)}, producer=transaction)
        return fetch(*arguments, **options)

    monkeypatch.setattr(log, "fetch", fetch_late)
    for number in range(3):
        log.extend([(encode_offset_key("other", BILLS), encode_offset_value(OffsetCommitValue(number)))])
        assert world.offsets("billing") == {ORDERS: 5}
        assert world.committed.unstable("billing") == {ORDERS}


# Removing ---------------------------------------------------------------------------------------------------


def test_deleted_offsets_are_gone_after_an_open_too(world):
    world.commit("billing", {ORDERS: 1, OTHER: 2, BILLS: 3})
    assert world.committed.delete("billing", [OTHER, TopicPartition("gone", 9)]) == (OTHER,)
    world.reopen()
    assert world.offsets("billing") == {ORDERS: 1, BILLS: 3}
    assert set(world.committed.delete("billing", flush=True)) == {ORDERS, BILLS}
    assert world.log().durable_offset == world.log().log_end_offset
    assert world.committed.groups() == frozenset()
    world.reopen()
    assert world.offsets("billing") == {}


def test_more_than_a_batch_can_be_deleted(world):
    offsets = {TopicPartition("x" * 200, number): number for number in range(3_000)}
    world.commit("a", offsets)
    world.commit("b", offsets)
    world.committed.forget_topic("x" * 200)
    world.reopen()
    assert world.committed.groups() == frozenset()


def test_a_deleted_topic_takes_its_offsets_along(world):
    world.store.create_topic("orders")
    world.store["orders"].append(b"1", flush=True)
    world.store.offsets("billing").commit({ORDERS: 1})
    world.commit("billing", {BILLS: 3})
    world.store.delete_topic("orders")
    world.store.create_topic("orders")
    assert world.store.offsets("billing").get(ORDERS) is None
    assert world.offsets("billing") == {BILLS: 3}


# Expiry (KIP-211) -------------------------------------------------------------------------------------------


def test_offsets_without_a_group_expire_one_by_one(world):
    world.commit("billing", {ORDERS: 1, OTHER: 1})
    world.clock.advance(DAY_MS)
    world.commit("billing", {ORDERS: 2})
    world.clock.advance(6 * DAY_MS - 1)
    assert world.committed.expire() == {}
    world.clock.advance(1)
    assert world.committed.expire() == {"billing": (OTHER,)}
    world.reopen()
    assert world.offsets("billing") == {ORDERS: 2}
    world.clock.advance(DAY_MS)
    assert world.committed.expire() == {"billing": (ORDERS,)}


def test_those_of_a_group_expire_together_after_its_last_member_left():
    world = World(offsets_retention_minutes=10)
    since = {"with members": None, "empty": world.clock.now_ms() + 5 * MINUTE_MS, "no group": -1}
    world.empty_since = since.__getitem__
    world.reopen()
    for group in since:
        world.commit(group, {ORDERS: 1})
    world.clock.advance(12 * MINUTE_MS)
    world.commit("empty", {OTHER: 1})
    assert world.committed.expire() == {"no group": (ORDERS,)}
    world.clock.advance(3 * MINUTE_MS)
    assert world.committed.expire() == {"empty": (ORDERS, OTHER)}
    world.clock.advance(1_000 * DAY_MS)
    assert world.committed.expire() == {}
    assert world.offsets("with members") == {ORDERS: 1}


def test_without_a_coordinator_stored_metadata_say_whether_there_are_members():
    world = World(offsets_retention_minutes=10)
    now_ms = world.clock.now_ms()
    world.committed.store_group("full", GroupMetadataValue("consumer", 1, members=(MemberMetadata("m"),)))
    world.committed.store_group("left", GroupMetadataValue("consumer", 1, current_state_timestamp_ms=now_ms))
    world.committed.store_group("old", GroupMetadataValue("consumer", 1))
    for group in ("full", "left", "old"):
        world.clock.advance(MINUTE_MS)
        world.commit(group, {ORDERS: 1})
    world.clock.advance(7 * MINUTE_MS)
    assert world.committed.expire() == {"left": (ORDERS,)}
    world.clock.advance(3 * MINUTE_MS)
    assert world.committed.expire() == {"old": (ORDERS,)}
    assert world.offsets("full") == {ORDERS: 1}


def test_an_offset_with_a_time_of_its_own_expires_then(world):
    world.commit("billing", {OTHER: 1})
    value = OffsetCommitValue(1, expire_timestamp_ms=world.clock.now_ms() + MINUTE_MS)
    world.log().extend([(encode_offset_key("billing", ORDERS), encode_offset_value(value))])
    assert world.committed.expire() == {}
    world.clock.advance(MINUTE_MS)
    assert world.committed.expire() == {"billing": (ORDERS,)}


def test_what_a_transaction_is_about_to_replace_does_not_expire(world):
    world.commit("billing", {ORDERS: 1, OTHER: 1})
    world.commit("billing", {ORDERS: 2}, producer=ProducerIdentity(8, 0, -1, True))
    world.clock.advance(8 * DAY_MS)
    assert world.committed.expire() == {"billing": (OTHER,)}


def test_nothing_expires_where_the_setting_says_so():
    world = World(offsets_retention_minutes=-1)
    world.commit("billing", {ORDERS: 1})
    world.clock.advance(10_000 * DAY_MS)
    assert world.committed.expire() == {}


def test_the_background_expires_them(world):
    world.commit("billing", {ORDERS: 1})
    world.clock.advance(7 * DAY_MS)
    world.store.run_background()
    assert world.offsets("billing") == {}


# Groups -----------------------------------------------------------------------------------------------------


def test_group_metadata_come_back(world):
    assert world.committed.load_group("billing") is None
    group = GroupMetadataValue("consumer", 3, "range", "m", 5, (MemberMetadata("m", None, "c", "/h"),))
    world.committed.store_group("billing", group, flush=True)
    world.committed.store_group("other", group._replace(generation=4))
    world.commit("billing", {ORDERS: 1})
    for _ in range(2):
        assert world.committed.load_groups() == {"billing": group, "other": group._replace(generation=4)}
        assert world.committed.load_group("billing") == group
        world.reopen()
    world.committed.store_group("other", None)
    assert world.committed.load_groups() == {"billing": group}
    world.reopen()
    assert world.committed.load_groups() == {"billing": group}
    assert world.committed.groups() == {"billing"}
