"""A group as records of ``__consumer_offsets``, and back (KIP-848).

A change of a group is stored as the records that differ. They may take several batches, of which a crash may
leave the first ones. So the group's epoch comes first: a group whose epoch is above that of its target
assignment makes another one at the next heartbeat, whatever is in the rest. What a member has comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import groupby
from typing import Any, Final

from logstore.broker.consumer_groups.group import Group, Matches, Target
from logstore.broker.consumer_groups.member import Epochs, Member
from logstore.broker.consumer_groups.requests import PAUSING, TopicIdPartition
from logstore.broker.consumer_groups.states import MemberState
from logstore.format.messages.consumer_group_records import (
    CURRENT_OF_MEMBER_KIND,
    CURRENT_OF_MEMBER_VALUE,
    GROUP_KIND,
    GROUP_VALUE,
    MEMBER_KIND,
    MEMBER_VALUE,
    PATTERN_KIND,
    PATTERN_VALUE,
    TARGET_KIND,
    TARGET_OF_MEMBER_KIND,
    TARGET_OF_MEMBER_VALUE,
    TARGET_VALUE,
    VALUE_VERSION,
    AboutConsumerGroup,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    CurrentPartitions,
    TargetPartitions,
    encode_consumer_group_key,
)
from logstore.format.messages.message import Message

Row = tuple[bytes, bytes | None]
"""Key and value of a record."""

Rows = Mapping[AboutConsumerGroup, bytes]
"""All records of a group."""

_STORED_STATES: Final = {state.value: state for state in MemberState if state.value < MemberState.AWAY.value}
_OF_MEMBER: Final = (CURRENT_OF_MEMBER_KIND, TARGET_OF_MEMBER_KIND, MEMBER_KIND)


# Writing


def rows_between(before: Group, after: Group) -> list[Row]:
    """The records that make the one group of the other. Cost: a look at each member, and 10 µs for each
    record."""
    return list(_rows_between(before, after))


def _rows_between(before: Group, after: Group) -> Iterator[Row]:
    row, gone = _Rows(after.group_id).row, _Rows(after.group_id).gone
    if (before.epoch, before.topics_hash) != (after.epoch, after.topics_hash):
        yield row(GROUP_KIND, GROUP_VALUE, ConsumerGroupMetadataValue(after.epoch, after.topics_hash))
    for member_id in before.members.keys() - after.members.keys():
        yield from (gone(kind, member_id) for kind in _OF_MEMBER)
    for member_id, member in after.members.items():
        described = _described(member)
        known = before.members.get(member_id)
        if known is not member and (known is None or _described(known) != described):
            yield row(MEMBER_KIND, MEMBER_VALUE, described, member_id)
    for text in before.matches.keys() - after.matches.keys():
        yield gone(PATTERN_KIND, text)
    for text, matches in after.matches.items():
        if before.matches.get(text) != matches:
            found = tuple(sorted(matches.topics))
            value = ConsumerGroupRegularExpressionValue(found, 0, matches.timestamp_ms)
            yield row(PATTERN_KIND, PATTERN_VALUE, value, text)
    yield from _rows_of_targets(before, after)
    for member_id, member in after.members.items():
        known = before.members.get(member_id)
        if known is not member and (known is None or _current(known) != _current(member)):
            yield row(CURRENT_OF_MEMBER_KIND, CURRENT_OF_MEMBER_VALUE, _current(member), member_id)


def _rows_of_targets(before: Group, after: Group) -> Iterator[Row]:
    row = _Rows(after.group_id).row
    for member_id in after.members:
        target = after.target_of(member_id)
        if target != before.target_of(member_id) or (member_id in after.targets) != (
            member_id in before.targets
        ):
            value = ConsumerGroupTargetAssignmentMemberValue(tuple(_by_topic(target)))
            yield row(TARGET_OF_MEMBER_KIND, TARGET_OF_MEMBER_VALUE, value, member_id)
    made = after.assignment_epoch, after.assigned_at_ms
    if (before.assignment_epoch, before.assigned_at_ms) != made:
        yield row(TARGET_KIND, TARGET_VALUE, ConsumerGroupTargetAssignmentMetadataValue(*made))


class _Rows:
    """The records of one group."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id

    def row(self, kind: int, message: Message[Any], value: Any, name: str = "") -> Row:
        key = encode_consumer_group_key(AboutConsumerGroup(kind, self._group_id, name))
        return key, message.encode_versioned(value, VALUE_VERSION)

    def gone(self, kind: int, name: str) -> Row:
        return encode_consumer_group_key(AboutConsumerGroup(kind, self._group_id, name)), None


def _described(member: Member) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topics)),
        member.pattern,
        member.rebalance_timeout_ms,
        member.assignor,
        member.classic,
    )


def _current(member: Member) -> ConsumerGroupCurrentMemberAssignmentValue:
    state = MemberState.STABLE if member.state is MemberState.AWAY else member.state
    return ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        state.value,
        tuple(_current_by_topic(member.assigned)),
        tuple(_current_by_topic(member.revoking)),
    )


def _by_topic(partitions: Set[TopicIdPartition]) -> Iterator[TargetPartitions]:
    for topic_id, found in groupby(sorted(partitions), key=lambda each: each.topic_id):
        yield TargetPartitions(topic_id, tuple(each.partition for each in found))


def _current_by_topic(epochs: Epochs) -> Iterator[CurrentPartitions]:
    for topic_id, found in groupby(sorted(epochs), key=lambda each: each.topic_id):
        held = list(found)
        numbers = tuple(each.partition for each in held)
        yield CurrentPartitions(topic_id, numbers, tuple(epochs[each] for each in held))


# Reading


def group_of(group_id: str, rows: Rows) -> Group:
    """The group that its records say.

    Raises:
        CorruptionError, UnsupportedVersionError: a value cannot be read.
    """
    group = Group(group_id)
    described: dict[str, ConsumerGroupMemberMetadataValue] = {}
    current: dict[str, ConsumerGroupCurrentMemberAssignmentValue] = {}
    for (kind, _, name), data in rows.items():
        if kind == GROUP_KIND:
            group.epoch, group.topics_hash = GROUP_VALUE.decode_versioned(data)
        elif kind == TARGET_KIND:
            group.assignment_epoch, group.assigned_at_ms = TARGET_VALUE.decode_versioned(data)
        elif kind == TARGET_OF_MEMBER_KIND:
            group.targets[name] = _target_of(TARGET_OF_MEMBER_VALUE.decode_versioned(data).topic_partitions)
        elif kind == MEMBER_KIND:
            described[name] = MEMBER_VALUE.decode_versioned(data)
        elif kind == CURRENT_OF_MEMBER_KIND:
            current[name] = CURRENT_OF_MEMBER_VALUE.decode_versioned(data)
        elif kind == PATTERN_KIND:
            topics, _, timestamp_ms = PATTERN_VALUE.decode_versioned(data)
            group.matches[name] = Matches(frozenset(topics), timestamp_ms)
    for member_id in sorted(described):
        classic = described[member_id].classic_member_metadata
        if classic is None or classic.supported_protocols:
            group.put(_member_of(member_id, described[member_id], current.get(member_id)))
    _leave_out_others(group)
    return group


def _leave_out_others(group: Group) -> None:
    """What is stored of those that are no members. The next heartbeat shares what they were to have."""
    others = group.targets.keys() - group.members.keys()
    for member_id in others:
        del group.targets[member_id]
    if others and group.members:
        group.epoch += 1


def _target_of(topics: Iterable[TargetPartitions]) -> Target:
    return frozenset(TopicIdPartition(topic_id, number) for topic_id, numbers in topics for number in numbers)


def _member_of(
    member_id: str,
    described: ConsumerGroupMemberMetadataValue,
    current: ConsumerGroupCurrentMemberAssignmentValue | None,
) -> Member:
    member = Member(
        member_id,
        described.instance_id,
        described.rack_id,
        described.client_id,
        described.client_host,
        frozenset(described.subscribed_topic_names),
        described.subscribed_topic_regex or None,
        described.rebalance_timeout_ms,
        described.server_assignor,
        described.classic_member_metadata,
    )
    if current is None:
        return member
    epoch = current.member_epoch
    known = _STORED_STATES.get(current.state, MemberState.STABLE)
    return member._replace(
        state=MemberState.AWAY if epoch == PAUSING else known,
        epoch=epoch,
        previous_epoch=current.previous_member_epoch,
        assigned=_epochs_of(current.assigned_partitions, epoch),
        revoking=_epochs_of(current.partitions_pending_revocation, epoch),
    )


def _epochs_of(topics: Iterable[CurrentPartitions], member_epoch: int) -> dict[TopicIdPartition, int]:
    found: dict[TopicIdPartition, int] = {}
    for topic_id, numbers, epochs in topics:
        known = epochs if epochs and len(epochs) == len(numbers) else (member_epoch,) * len(numbers)
        found.update(
            (TopicIdPartition(topic_id, number), since) for number, since in zip(numbers, known, strict=True)
        )
    return found
