"""Members of the classic protocol in a group of the newer one, as while consumers change over one by one.

Such a member joins, syncs and beats as ever. Its epoch is the generation that it is told, and nobody leads:
the coordinator assigns. When it is to move on, its heartbeats are answered with REBALANCE_IN_PROGRESS, and it
joins again, naming what it has kept. An eager one has given up all by then, and has nothing to name.

Nothing waits: each request is answered at once. No clock, no storage.
"""

from __future__ import annotations

from typing import NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.advancing import Now, advance, check_room, move_on
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat, TopicIdPartition
from logstore.broker.consumer_groups.states import MemberState
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.groups.requests import (
    NO_MEMBER_ID,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from logstore.format.messages.consumer_protocol import (
    ASSIGNMENT,
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    by_topic,
    decode_subscription,
    encode_assignment,
    ungrouped,
)
from logstore.format.messages.message import version_of
from logstore.model import TopicPartition


class Joined(NamedTuple):
    """What a JoinGroup leads to."""

    group: Group
    """The same one if nothing has changed; else a copy, to be stored."""
    result: JoinGroupResult


class Beat(NamedTuple):
    """What a Heartbeat leads to."""

    group: Group
    error: ErrorCode
    member_id: str | None = None
    """Who was heard of."""


def join(before: Group, joins: JoinGroup, now: Now) -> Joined:
    """A member joins, or joins again. The group is the same if it is refused."""

    def refused(error: ErrorCode, member_id: str = NO_MEMBER_ID) -> Joined:
        return Joined(before, JoinGroupResult(error, member_id))

    no_room = check_room(before, joins.member_id, joins.instance_id, now.config)
    if no_room is not None:
        return refused(no_room.error)
    if not _is_supported(before, joins):
        return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member_id = joins.member_id or now.new_member_id()
    if joins.requires_member_id and not (joins.member_id or joins.instance_id):
        return refused(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    found = _find_joining(before, joins, member_id)
    if isinstance(found, ErrorCode):
        return refused(found)
    try:
        beat = _as_heartbeat(joins, now.topics)
    except (CorruptionError, UnsupportedVersionError):
        return refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if beat.owned and member_id not in before.members:
        return refused(ErrorCode.UNKNOWN_MEMBER_ID)  # it was removed, and does not know yet what it has lost
    after, member = advance(before, found, member_id, beat, now, metadata_of(joins))
    protocol = joins.protocols[0].name
    result = JoinGroupResult(ErrorCode.NONE, member_id, member.epoch, PROTOCOL_TYPE, protocol)
    return Joined(after, result)


def sync(group: Group, syncs: SyncGroup, topics: Topics) -> SyncGroupResult:
    """A member asks for what it has: with the answer, it has joined."""
    member = find_member(group, syncs.member_id, syncs.instance_id, syncs.generation)
    if isinstance(member, ErrorCode):
        return SyncGroupResult(member)
    assert member.classic is not None
    protocol = member.classic.supported_protocols[0]
    if syncs.protocol_type not in (None, PROTOCOL_TYPE) or syncs.protocol not in (None, protocol.name):
        return SyncGroupResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if member.epoch < group.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return SyncGroupResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assigned = encoded_assignment(frozenset(member.assigned), protocol.metadata, topics)
    return SyncGroupResult(ErrorCode.NONE, PROTOCOL_TYPE, protocol.name, assigned)


def beat(before: Group, beats: Heartbeat, now: Now) -> Beat:
    """A member is alive. REBALANCE_IN_PROGRESS if it is to join again: it is behind, has something to give
    up, or what it waited for is free."""
    found = find_member(before, beats.member_id, beats.instance_id, beats.generation)
    if isinstance(found, ErrorCode):
        return Beat(before, found)
    after = before
    if now.topics is not before.topics_seen:
        after = before.copy()
        move_on(after, now, is_news=False)
    error = ErrorCode.REBALANCE_IN_PROGRESS if _must_rejoin(after, found) else ErrorCode.NONE
    return Beat(after, error, found.member_id)


def _must_rejoin(group: Group, member: Member) -> bool:
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
        group.holders.get(each, member.member_id) != member.member_id
        for each in group.target_of(member.member_id)
    )


def find_member(group: Group, member_id: str, instance_id: str | None, generation: int) -> Member | ErrorCode:
    """A member of the classic protocol that is in this generation, or why it is none."""
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is not None and member.member_id != member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    if member is None or member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return member if member.epoch == generation else ErrorCode.ILLEGAL_GENERATION


def _find_joining(group: Group, joins: JoinGroup, member_id: str) -> Member | ErrorCode:
    """The member as it is known; a new one if it is not. A dynamic one may come with an id that it was given
    before: those are not kept."""
    if joins.instance_id is None:
        return group.members.get(member_id, Member(member_id))
    static = group.static_member(joins.instance_id)
    if joins.member_id == NO_MEMBER_ID:
        return static or Member(member_id)
    if static is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return static if static.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID


def _is_supported(group: Group, joins: JoinGroup) -> bool:
    """Whether it is a consumer, and all members of the classic protocol support one of its protocols, so that
    the group can become a classic one."""
    if joins.protocol_type != PROTOCOL_TYPE:
        return False
    classic = [each.classic for each in group.members.values() if each.classic is not None]
    supported = [{protocol.name for protocol in each.supported_protocols} for each in classic]
    return any(all(name in names for names in supported) for name, _ in joins.protocols)


def metadata_of(joins: JoinGroup) -> ClassicMemberMetadata:
    """What is kept of a request beside the subscription."""
    protocols = tuple(ClassicProtocol(name, bytes(metadata)) for name, metadata in joins.protocols)
    return ClassicMemberMetadata(joins.session_timeout_ms, protocols)


def _as_heartbeat(joins: JoinGroup, topics: Topics) -> ConsumerGroupHeartbeat:
    """The request of the newer protocol that says the same.

    Raises:
        CorruptionError, UnsupportedVersionError: its subscription cannot be read.
    """
    said = decode_subscription(joins.protocols[0].metadata)
    return ConsumerGroupHeartbeat(
        joins.group_id,
        joins.member_id,
        instance_id=joins.instance_id,
        rack_id=said.rack_id,
        rebalance_timeout_ms=joins.rebalance_timeout_ms,
        topics=said.topics,
        pattern="",
        owned=with_ids(ungrouped(said.owned_partitions), topics),
        client_id=joins.client_id,
        client_host=joins.client_host,
    )


def with_ids(partitions: tuple[TopicPartition, ...], topics: Topics) -> frozenset[TopicIdPartition]:
    """Partitions by the ids of their topics, without topics that are not there."""
    return frozenset(
        TopicIdPartition(topics[each.topic].topic_id, each.partition)
        for each in partitions
        if each.topic in topics
    )


def encoded_assignment(partitions: frozenset[TopicIdPartition], said: bytes, topics: Topics) -> bytes:
    """Partitions as a consumer reads them, in the version of what it has said itself."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    named = [
        TopicPartition(names[each.topic_id], each.partition) for each in partitions if each.topic_id in names
    ]
    version = min(version_of(said), ASSIGNMENT.last)
    return encode_assignment(ConsumerProtocolAssignment(by_topic(sorted(named))), version)
