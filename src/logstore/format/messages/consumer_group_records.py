"""The records of ``__consumer_offsets`` about groups of the newer protocol, KIP-848: the coordinator assigns.

A group has one record that says its epoch (key 3) and one that says for which epoch its target assignment is
(6). A member has one that says what it wants (5), one that says what it shall have (7), and one that says
what it has (8). A regular expression that members subscribe to has the topics that it matched (16). Kafka 4.0
and before also wrote what the topics were like (4); later ones keep a hash of that in the group's record.

A key begins with its number, a value with the version of its own message. A null value is a tombstone.

Source: Kafka's ``group-coordinator/src/main/resources/common/message``, 4.0 to 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

from logstore.format.messages.fields import NO_UUID, Data, Int8, Int32, Int64, String, Uuid, tagged
from logstore.format.messages.message import Message, version_of
from logstore.model import Bytes

GROUP_KIND: Final = 3
TOPICS_KIND: Final = 4
MEMBER_KIND: Final = 5
TARGET_KIND: Final = 6
TARGET_OF_MEMBER_KIND: Final = 7
CURRENT_OF_MEMBER_KIND: Final = 8
PATTERN_KIND: Final = 16

VALUE_VERSION: Final = 0


class ConsumerGroupKey(NamedTuple):
    """Which group."""

    group: String = ""


class ConsumerGroupMemberKey(NamedTuple):
    """Which member of which group."""

    group: String = ""
    member_id: String = ""


class ConsumerGroupRegularExpressionKey(NamedTuple):
    """Which regular expression of which group."""

    group: String = ""
    regular_expression: String = ""


class ConsumerGroupMetadataValue(NamedTuple):
    """A group."""

    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, tagged(0)] = 0
    """Of the topics that it subscribes to; 0 if that is not known, as in records of Kafka 4.0."""


class ClassicProtocol(NamedTuple):
    """A protocol that a member of the classic protocol supports."""

    name: String = ""
    metadata: Data = b""


class ClassicMemberMetadata(NamedTuple):
    """Of a member that speaks the classic protocol in a group of the newer one."""

    session_timeout_ms: Int32 = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


class ConsumerGroupMemberMetadataValue(NamedTuple):
    """What a member says of itself, and what it subscribes to."""

    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: tuple[String, ...] = ()
    """Kafka sorts them."""
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, tagged(0)] = ClassicMemberMetadata()
    """None of a member of the newer protocol, which therefore has to be said: the default is another."""


class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    """The target assignment as a whole."""

    assignment_epoch: Int32 = 0
    """The group's epoch for which it was made."""
    assignment_timestamp_ms: Annotated[Int64, tagged(0)] = 0
    """When it was made, in milliseconds since the epoch; 0 in records of Kafka 4.3 and before."""


class TargetPartitions(NamedTuple):
    """Partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    """What a member shall have."""

    topic_partitions: tuple[TargetPartitions, ...] = ()


class CurrentPartitions(NamedTuple):
    """Partitions of one topic, and since when the member has them."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Int32, ...] = ()
    assignment_epochs: Annotated[tuple[Int32, ...] | None, tagged(0)] = ()
    """The member's epoch in which it got each of them (KIP-1251). Empty or None if that is not known, as in
    records of earlier versions of Kafka."""


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    """What a member has."""

    member_epoch: Int32 = 0
    """-2 of a static member that is away."""
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    """A :class:`~logstore.broker.consumer_groups.states.MemberState`, by its number."""
    assigned_partitions: tuple[CurrentPartitions, ...] = ()
    partitions_pending_revocation: tuple[CurrentPartitions, ...] = ()


class ConsumerGroupRegularExpressionValue(NamedTuple):
    """The topics that a regular expression matched."""

    topics: tuple[String, ...] = ()
    version: Int64 = 0
    """Of the cluster's metadata in which they were looked for."""
    timestamp_ms: Int64 = 0


CONSUMER_GROUP_KEY: Final = Message(ConsumerGroupKey, GROUP_KIND, TARGET_KIND)
CONSUMER_GROUP_MEMBER_KEY: Final = Message(ConsumerGroupMemberKey, MEMBER_KIND, CURRENT_OF_MEMBER_KIND)
CONSUMER_GROUP_REGEX_KEY: Final = Message(ConsumerGroupRegularExpressionKey, PATTERN_KIND, PATTERN_KIND)

GROUP_VALUE: Final = Message(ConsumerGroupMetadataValue, 0, 0, flexible=0)
MEMBER_VALUE: Final = Message(ConsumerGroupMemberMetadataValue, 0, 0, flexible=0)
TARGET_VALUE: Final = Message(ConsumerGroupTargetAssignmentMetadataValue, 0, 0, flexible=0)
TARGET_OF_MEMBER_VALUE: Final = Message(ConsumerGroupTargetAssignmentMemberValue, 0, 0, flexible=0)
CURRENT_OF_MEMBER_VALUE: Final = Message(ConsumerGroupCurrentMemberAssignmentValue, 0, 0, flexible=0)
PATTERN_VALUE: Final = Message(ConsumerGroupRegularExpressionValue, 0, 0, flexible=0)

_REMOVED_IN_ORDER: Final = (
    CURRENT_OF_MEMBER_KIND,
    TARGET_OF_MEMBER_KIND,
    TARGET_KIND,
    MEMBER_KIND,
    PATTERN_KIND,
    TOPICS_KIND,
    GROUP_KIND,
)
_OF_GROUP: Final = frozenset({GROUP_KIND, TOPICS_KIND, TARGET_KIND})
_OF_MEMBER: Final = frozenset({MEMBER_KIND, TARGET_OF_MEMBER_KIND, CURRENT_OF_MEMBER_KIND})


class AboutConsumerGroup(NamedTuple):
    """What a record is about."""

    kind: int
    """The number of its key."""
    group: str
    name: str = ""
    """The member's id, or the regular expression."""


def encode_consumer_group_key(about: AboutConsumerGroup) -> bytes:
    """The key of such a record.

    Raises:
        UsageError: a name has more than 32,767 bytes, or is no text.
    """
    if about.kind == PATTERN_KIND:
        key = ConsumerGroupRegularExpressionKey(about.group, about.name)
        return CONSUMER_GROUP_REGEX_KEY.encode_versioned(key, about.kind)
    if about.kind in _OF_MEMBER:
        of_member = ConsumerGroupMemberKey(about.group, about.name)
        return CONSUMER_GROUP_MEMBER_KEY.encode_versioned(of_member, about.kind)
    return CONSUMER_GROUP_KEY.encode_versioned(ConsumerGroupKey(about.group), about.kind)


def decode_consumer_group_key(data: Bytes) -> AboutConsumerGroup | None:
    """What a record is about; None if it is about something else.

    Raises:
        CorruptionError: it is cut short, or has text that is not UTF-8.
    """
    kind = version_of(data)
    if kind in _OF_MEMBER:
        return AboutConsumerGroup(kind, *CONSUMER_GROUP_MEMBER_KEY.decode_versioned(data))
    if kind in _OF_GROUP:
        return AboutConsumerGroup(kind, *CONSUMER_GROUP_KEY.decode_versioned(data))
    if kind == PATTERN_KIND:
        return AboutConsumerGroup(kind, *CONSUMER_GROUP_REGEX_KEY.decode_versioned(data))
    return None


def in_order_of_removal(known: Iterable[AboutConsumerGroup]) -> list[AboutConsumerGroup]:
    """Records of a group in the order in which Kafka removes them: of members first, and the group last."""
    return sorted(known, key=lambda about: (_REMOVED_IN_ORDER.index(about.kind), about.name))
