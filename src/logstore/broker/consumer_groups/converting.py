"""A group with its members from the classic protocol to the newer one, and back. No clock, no storage.

To the newer one a group goes with the first member that comes with it, and back when the last one has gone.
In both directions each member keeps what it has until it joins again.
"""

from __future__ import annotations

from typing import Final

from logstore.broker.consumer_groups.classic import encoded_assignment, metadata_of, with_ids
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.member import Member
from logstore.broker.consumer_groups.requests import TopicIdPartition
from logstore.broker.consumer_groups.states import Event, next_state
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.groups.requests import GroupProtocol, JoinGroup
from logstore.broker.groups.snapshots import GroupSnapshot, HandedGroup, MemberSnapshot
from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    ungrouped,
)

_OF_KAFKA: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors whose members read nothing but partitions in an assignment, whatever else is in it: librdkafka's
sticky one repeats there what each member has said."""


def to_newer(handed: HandedGroup, topics: Topics) -> Group:
    """A classic group as one of the newer protocol, in the epoch of its generation.

    Raises:
        UsageError: its members are no consumers, or an assignor of their own says more in assignments than
            partitions, which the coordinator cannot.
    """
    snapshot = handed.snapshot
    if snapshot.protocol_type != PROTOCOL_TYPE:
        raise UsageError(f"its members are of the type {snapshot.protocol_type!r}, not {PROTOCOL_TYPE!r}")
    group = Group(snapshot.group_id)
    group.epoch = group.assignment_epoch = snapshot.generation
    owned: dict[str, frozenset[TopicIdPartition]] = {}
    for stored, joins, epoch in zip(snapshot.members, handed.joins, handed.generations, strict=True):
        try:
            said = decode_subscription(stored.subscription or joins.protocols[0].metadata)
            member = _member_of(stored, joins, said, epoch)
            assigned = _assigned(stored, snapshot.protocol, topics) - group.holders.keys()
        except (CorruptionError, UnsupportedVersionError) as error:
            raise UsageError(f"what its member {stored.member_id!r} says cannot be read: {error}") from error
        group.put(member._replace(assigned=dict.fromkeys(assigned, epoch)))
        group.targets[member.member_id] = assigned
        owned[member.member_id] = with_ids(ungrouped(said.owned_partitions), topics)
    for member_id, had in owned.items():
        _let_give_up(group, group.members[member_id], had - group.holders.keys())
    if group.holders.keys() >= _all_partitions(group, topics):
        group.look_at(topics)  # else the first heartbeat finds that there are more to assign
    return group


def _all_partitions(group: Group, topics: Topics) -> set[TopicIdPartition]:
    return {
        TopicIdPartition(topics[name].topic_id, number)
        for name in group.subscribed_topics()
        if name in topics
        for number in range(topics[name].partition_count)
    }


def _let_give_up(group: Group, member: Member, partitions: frozenset[TopicIdPartition]) -> None:
    """A cooperative member gives up what its assignment lacks, and joins again. Until then no other member
    gets that."""
    if partitions:
        state = next_state(member.state, Event.MUST_REVOKE)
        group.put(member._replace(state=state, revoking=dict.fromkeys(partitions, member.epoch)))


def _member_of(
    stored: MemberSnapshot, joins: JoinGroup, said: ConsumerProtocolSubscription, epoch: int
) -> Member:
    return Member(
        stored.member_id,
        stored.instance_id,
        said.rack_id,
        stored.client_id,
        stored.client_host,
        frozenset(said.topics),
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        classic=metadata_of(joins),
        epoch=epoch,
        previous_epoch=epoch,
    )


def _assigned(stored: MemberSnapshot, assignor: str | None, topics: Topics) -> frozenset[TopicIdPartition]:
    if not stored.assignment:
        return frozenset()
    assignment = decode_assignment(stored.assignment)
    if assignment.user_data and assignor not in _OF_KAFKA:
        raise UsageError(
            f"its assignor tells member {stored.member_id!r} more than partitions: choose range, roundrobin "
            "or a sticky one first"
        )
    return with_ids(ungrouped(assignment.assigned_partitions), topics)


def has_only_classic(group: Group) -> bool:
    """Whether it has members, and none of the newer protocol. Cost: a look at the members up to the first of
    the newer protocol."""
    return bool(group.members) and all(each.classic is not None for each in group.members.values())


def to_classic(group: Group, topics: Topics, now_ms: int) -> HandedGroup:
    """A group that has only members of the classic protocol as a classic one. They keep what they have until
    they join again; its generation is the highest epoch that one has reached."""
    joins = tuple(_joins_of(group, member) for member in group.members.values())
    protocol = _common_protocol(joins)
    members = tuple(
        MemberSnapshot(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            joined.session_timeout_ms,
            joined.metadata(protocol),
            encoded_assignment(frozenset(member.assigned), joined.metadata(protocol), topics),
        )
        for member, joined in zip(group.members.values(), joins, strict=True)
    )
    epochs = tuple(member.epoch for member in group.members.values())
    return HandedGroup(
        GroupSnapshot(
            group.group_id, PROTOCOL_TYPE, max(epochs), protocol, joins[0].member_id, now_ms, members
        ),
        joins,
        epochs,
    )


def _joins_of(group: Group, member: Member) -> JoinGroup:
    """The request with which a member could have joined."""
    assert member.classic is not None
    return JoinGroup(
        group.group_id,
        PROTOCOL_TYPE,
        tuple(GroupProtocol(*each) for each in member.classic.supported_protocols),
        member.classic.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
    )


def _common_protocol(joins: tuple[JoinGroup, ...]) -> str:
    """One that all support: each has joined with such a one."""
    names = [{name for name, _ in each.protocols} for each in joins]
    return next(name for name, _ in joins[0].protocols if all(name in others for others in names))
