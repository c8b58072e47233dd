"""What is known of a consumer group: who is in it, what each reads, and how far it is. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from logstore.broker.consumer_groups.requests import DescribedConsumer, DescribedConsumerGroup
from logstore.broker.groups.requests import CLASSIC, CONSUMER, DescribedGroup, DescribedMember
from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.consumer_protocol import PROTOCOL_TYPE, decode_assignment, ungrouped
from logstore.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from logstore.showing import Table


class GroupMember(NamedTuple):
    """A consumer of a group."""

    member_id: str
    instance_id: str | None
    """The ``group_instance_id`` of a static member; None of others."""
    client_id: str
    client_host: str
    """Where it runs: ``in-process`` in the process that has the store open, else as a broker has noted it."""
    partitions: tuple[TopicPartition, ...]
    """What it reads, in order. Empty while the group divides its partitions."""


class GroupStatus(NamedTuple):
    """A consumer group at one moment."""

    name: str
    state: str
    """Kafka's name of it: ``Empty``, ``PreparingRebalance``, ``CompletingRebalance`` or ``Stable``; with the
    newer protocol ``Empty``, ``Assigning``, ``Reconciling`` or ``Stable``."""
    protocol_type: str
    """``consumer``; or what else its members are, such as ``connect``; or empty, if it never had any."""
    assignor: str
    """How it divides partitions, such as ``cooperative-sticky``. Empty unless the group is ``Stable`` or of
    the newer protocol."""
    members: tuple[GroupMember, ...]
    """In the order of their ids."""
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    """What the group has committed, in the order of the partitions."""
    lag: Mapping[TopicPartition, int]
    """How many offsets each of them is behind the high watermark, as in ``store.metrics()``; at least 0.
    Without partitions that are not in this directory, or cannot be read."""
    group_type: str = CLASSIC
    """Kafka's name of its protocol: ``classic``, or ``consumer`` if the coordinator assigns (KIP-848)."""

    def _repr_html_(self) -> str:
        """What a notebook shows: the members, the offsets and the lag."""
        from logstore.showing import show  # few programs get here

        with_assignor = f", {self.assignor}" if self.assignor else ""
        return show(f"Group {self.name}: {self.state}{with_assignor}", self._parts_to_show())

    def _parts_to_show(self) -> Iterator[Table]:
        from logstore.showing import Table

        if self.members:
            members = [
                (each.member_id, each.instance_id, each.client_id, each.client_host, each.partitions)
                for each in self.members
            ]
            headings = ("member", "instance", "client", "host", "partitions")
            yield Table(headings, members, len(members))
        offsets = [
            (each, value.offset, self.lag.get(each), value.metadata) for each, value in self.offsets.items()
        ]
        yield Table(("partition", "committed", "lag", "metadata"), offsets, len(offsets))


Described = DescribedGroup | DescribedConsumerGroup
"""What a coordinator says of a group, whichever protocol it has."""


def status_of(
    described: Described,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    high_watermarks: Mapping[TopicPartition, int | None],
) -> GroupStatus:
    """What a coordinator says of a group, with its committed offsets and the ends of their logs."""
    ends = {each: high_watermarks.get(each) for each in offsets}
    lag = {each: max(end - offsets[each].offset, 0) for each, end in ends.items() if end is not None}
    if isinstance(described, DescribedConsumerGroup):
        consumers = tuple(sorted(map(_consumer_of, described.members)))
        what = described.group_id, described.state, PROTOCOL_TYPE, described.assignor
        return GroupStatus(*what, consumers, offsets, lag, CONSUMER)
    is_consumers = described.protocol_type == PROTOCOL_TYPE
    members = tuple(sorted(_member_of(each, is_consumers) for each in described.members))
    what = described.group_id, described.state, described.protocol_type, described.protocol
    return GroupStatus(*what, members, offsets, lag)


def _consumer_of(member: DescribedConsumer) -> GroupMember:
    partitions = tuple(sorted(TopicPartition(each.topic, each.partition) for each in member.assignment))
    return GroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, partitions)


def _member_of(member: DescribedMember, is_consumer: bool) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions_of(member.assignment) if is_consumer else (),
    )


def _partitions_of(assignment: bytes) -> tuple[TopicPartition, ...]:
    """None, of bytes that are no assignment: what members tell each other is their own affair."""
    if not assignment:
        return ()
    try:
        return tuple(sorted(ungrouped(decode_assignment(assignment).assigned_partitions)))
    except (CorruptionError, UnsupportedVersionError):
        return ()
