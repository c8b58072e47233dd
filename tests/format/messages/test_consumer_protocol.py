"""The metadata of consumers, byte for byte as Kafka's Java client 4.4 writes it, in all versions."""

from __future__ import annotations

import struct
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyAssignorUserData,
    StickyAssignorUserData,
    TopicPartitions,
    by_topic,
    decode_assignment,
    decode_cooperative_sticky_user_data,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_cooperative_sticky_user_data,
    encode_sticky_user_data,
    encode_subscription,
    ungrouped,
)
from logstore.model import TopicPartition

with warnings.catch_warnings():  # the package warns while it is imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.sticky.user_data import StickyAssignorUserData as TheirUserData
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as TheirAssignment
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription

FULL = ConsumerProtocolSubscription(
    topics=("orders", "payments"),
    user_data=b"\1\2",
    owned_partitions=(TopicPartitions("orders", (0, 2)), TopicPartitions("payments", (0,))),
    generation_id=7,
    rack_id="r1",
)
ASSIGNED = ConsumerProtocolAssignment(
    assigned_partitions=(TopicPartitions("orders", (2, 0)), TopicPartitions("payments", (0,))),
    user_data=b"\1\2",
)
TOPICS = "0000000200066f726465727300087061796d656e7473000000020102"
OWNED = "0000000200066f726465727300000002000000000000000200087061796d656e74730000000100000000"

JAVAS_SUBSCRIPTIONS = [
    (
        FULL,
        [
            "0000" + TOPICS,
            "0001" + TOPICS + OWNED,
            "0002" + TOPICS + OWNED + "00000007",
            "0003" + TOPICS + OWNED + "00000007" + "00027231",
        ],
    ),
    (
        ConsumerProtocolSubscription(),
        [
            "000000000000ffffffff",
            "000100000000ffffffff00000000",
            "000200000000ffffffff00000000ffffffff",
            "000300000000ffffffff00000000ffffffffffff",
        ],
    ),
]
JAVAS_ASSIGNMENTS = [
    (
        ASSIGNED,
        "0000000200066f726465727300000002000000020000000000087061796d656e74730000000100000000000000020102",
    ),
    (ConsumerProtocolAssignment(), "00000000ffffffff"),
]
JAVAS_STICKY = (
    (TopicPartition("payments", 0), TopicPartition("orders", 2), TopicPartition("orders", 0)),
    "0000000200087061796d656e7473000000010000000000066f726465727300000002000000020000000000000007",
)


def _as_of(subscription: ConsumerProtocolSubscription, version: int) -> ConsumerProtocolSubscription:
    """What a version keeps of a subscription."""
    fields_by_version = {1: {"owned_partitions": ()}, 2: {"generation_id": -1}, 3: {"rack_id": None}}
    for since, fields in fields_by_version.items():
        if version < since:
            subscription = subscription._replace(**fields)
    return subscription


@pytest.mark.parametrize(
    ("subscription", "version", "encoded"),
    [
        (subscription, version, encoded)
        for subscription, versions in JAVAS_SUBSCRIPTIONS
        for version, encoded in enumerate(versions)
    ],
)
def test_subscriptions_as_java_writes_them(subscription, version, encoded):
    assert encode_subscription(subscription, version).hex() == encoded
    assert decode_subscription(bytes.fromhex(encoded)) == _as_of(subscription, version)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(("assignment", "encoded"), JAVAS_ASSIGNMENTS)
def test_assignments_as_java_writes_them(assignment, encoded, version):
    encoded = f"{version:04x}{encoded}"
    assert encode_assignment(assignment, version).hex() == encoded
    assert decode_assignment(bytes.fromhex(encoded)) == assignment


def test_user_data_as_java_writes_it():
    previous, encoded = JAVAS_STICKY
    assert encode_sticky_user_data(previous, 7).hex() == encoded
    assert decode_sticky_user_data(bytes.fromhex(encoded)) == (by_topic(previous), 7)
    assert encode_cooperative_sticky_user_data(7) == bytes.fromhex("00000007")
    assert encode_cooperative_sticky_user_data(-1) == bytes.fromhex("ffffffff")
    assert decode_cooperative_sticky_user_data(bytes.fromhex("00000007")).generation == 7


_topic = st.text(st.characters(codec="utf-8"), max_size=20)
_partitions = st.lists(st.builds(TopicPartition, _topic, st.integers(0, 2**31 - 1)), max_size=9, unique=True)
_grouped = _partitions.map(by_topic)
_user_data = st.none() | st.binary(max_size=20)
_int32 = st.integers(-(2**31), 2**31 - 1)
_subscriptions = st.builds(
    ConsumerProtocolSubscription,
    topics=st.lists(_topic, max_size=5).map(tuple),
    user_data=_user_data,
    owned_partitions=_grouped,
    generation_id=_int32,
    rack_id=st.none() | _topic,
)


@given(_subscriptions, st.integers(0, 3))
def test_subscriptions_are_those_of_kafka_python(subscription, version):
    theirs = TheirSubscription(
        version=version,
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            TheirSubscription.TopicPartition(topic=topic, partitions=list(partitions))
            for topic, partitions in subscription.owned_partitions
        ],
        generation_id=subscription.generation_id,
        rack_id=subscription.rack_id,
    )
    encoded = encode_subscription(subscription, version)
    assert encoded == theirs.encode(version=version)
    assert decode_subscription(encoded) == _as_of(subscription, version)


@given(_grouped, _user_data, st.integers(0, 3))
def test_assignments_are_those_of_kafka_python(grouped, user_data, version):
    theirs = TheirAssignment(
        version=version,
        assigned_partitions=[
            TheirAssignment.TopicPartition(topic=topic, partitions=list(partitions))
            for topic, partitions in grouped
        ],
        user_data=user_data,
    )
    encoded = encode_assignment(ConsumerProtocolAssignment(grouped, user_data), version)
    assert encoded == theirs.encode(version=version)
    assert decode_assignment(encoded) == (grouped, user_data)


@given(_partitions, _int32)
def test_sticky_user_data_is_that_of_kafka_python(partitions, generation):
    encoded = encode_sticky_user_data(partitions, generation)
    theirs = TheirUserData.decode(encoded, version=1, header=False)
    assert theirs.generation == generation
    assert [(each.topic, tuple(each.partitions)) for each in theirs.previous_assignment] == [
        tuple(each) for each in by_topic(partitions)
    ]
    assert decode_sticky_user_data(encoded) == (by_topic(partitions), generation)
    assert decode_sticky_user_data(encoded[:-4]) == (by_topic(partitions), -1)  # version 0


@given(_partitions)
def test_partitions_are_grouped_and_ungrouped(partitions):
    assert sorted(ungrouped(by_topic(partitions))) == sorted(partitions)
    assert len(by_topic(partitions)) == len({topic for topic, _ in partitions})


@pytest.mark.parametrize("version", [4, 32_767])
def test_a_newer_version_is_read_as_the_newest_known(version):
    added = b"fields of a later version"
    head = struct.pack(">h", version)
    assert decode_subscription(head + encode_subscription(FULL)[2:] + added) == FULL
    assert decode_assignment(head + encode_assignment(ASSIGNED)[2:] + added) == ASSIGNED


@pytest.mark.parametrize("decode", [decode_subscription, decode_assignment])
def test_what_is_no_metadata_is_refused(decode):
    with pytest.raises(UnsupportedVersionError, match="version -1; 0 is the first"):
        decode(b"\xff\xff\0\0\0\0\xff\xff\xff\xff")
    for short in (b"", b"\0"):
        with pytest.raises(CorruptionError, match="its version takes 2"):
            decode(short)
    with pytest.raises(CorruptionError, match=r"ends early|has \d+ "):
        decode(b"\0\3\0\0\0\1\0\5abc")


def test_versions_that_are_not_known_are_not_written():
    for version in (-1, 4):
        with pytest.raises(UnsupportedVersionError, match="0 to 3 are known"):
            encode_subscription(FULL, version)
        with pytest.raises(UnsupportedVersionError, match="0 to 3 are known"):
            encode_assignment(ASSIGNED, version)


@given(st.binary(max_size=30))
def test_user_data_of_others_counts_as_none_at_most(data):
    """What a member of another assignor sends is nothing, or happens to be user data; it is no error."""
    decoded = decode_sticky_user_data(data)
    assert decoded == StickyAssignorUserData() or decoded.previous_assignment == () or len(data) > 4
    generation = decode_cooperative_sticky_user_data(data)
    assert (generation == CooperativeStickyAssignorUserData()) or len(data) >= 4
