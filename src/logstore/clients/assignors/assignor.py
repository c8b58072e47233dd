"""What an assignor is: it divides the partitions of the subscribed topics among the members of a group.

One member of the group, the leader, calls :meth:`Assignor.assign` with what all members sent. An assignor
does no I/O and reads no clock; the same arguments give the same assignment, in whatever order the members
come.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from logstore.format.messages.consumer_protocol import (
    NO_GENERATION,
    ConsumerProtocolSubscription,
    by_topic,
    decode_subscription,
    encode_subscription,
    ungrouped,
)
from logstore.model import Bytes, TopicPartition


class RebalanceProtocol(IntEnum):
    """How members pass partitions on, with Kafka's numbers (KIP-429)."""

    EAGER = 0
    """Each member revokes everything before it joins."""
    COOPERATIVE = 1
    """Members keep what they own while they join. A partition that changes its owner belongs to no member for
    one round, and the member that revoked it then joins again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscription:
    """What the leader knows of a member."""

    topics: frozenset[str]
    owned: tuple[TopicPartition, ...] = ()
    """What the member keeps while it joins; empty in the eager protocol."""
    generation: int = NO_GENERATION
    """The generation in which it got what it owns, or -1."""
    user_data: bytes | None = None
    """What :meth:`Assignor.subscription_user_data` of the member gave."""
    instance_id: str | None = None
    """The group instance id of a static member (KIP-345). The coordinator tells it, not the metadata."""
    rack: str | None = None
    """Where the member runs (KIP-881). The assignors of this package do not use it."""

    @classmethod
    def decode(cls, metadata: Bytes, *, instance_id: str | None = None) -> Subscription:
        """The subscription that a member sent as its metadata.

        Raises:
            UnsupportedVersionError: its version is negative.
            CorruptionError: the bytes are no subscription.
        """
        sent = decode_subscription(metadata)
        return cls(
            topics=frozenset(sent.topics),
            owned=ungrouped(sent.owned_partitions),
            generation=max(sent.generation_id, NO_GENERATION),
            user_data=sent.user_data,
            instance_id=instance_id,
            rack=sent.rack_id or None,
        )

    def encode(self, version: int = 3) -> bytes:
        """The metadata to join with, byte for byte as Kafka's Java client writes it.

        Raises:
            UnsupportedVersionError: versions are 0 to 3.
            UsageError: a field does not fit, such as a topic's name of more than 32,767 bytes.
        """
        sent = ConsumerProtocolSubscription(
            topics=tuple(sorted(self.topics)),
            user_data=self.user_data,
            owned_partitions=by_topic(sorted(self.owned)),
            generation_id=self.generation,
            rack_id=self.rack,
        )
        return encode_subscription(sent, version)


class Assignor(Protocol):
    """Divides partitions among members. Write your own by giving a class these members."""

    @property
    def name(self) -> str:
        """What members call it when they join. All members of a group need one assignor in common."""

    @property
    def protocols(self) -> Collection[RebalanceProtocol]:
        """The rebalance protocols that its assignments are right for."""

    def subscription_user_data(
        self, topics: Collection[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """What a member adds to its subscription, for the leader's assignor.

        Args:
            topics: what it subscribes.
            owned: its last assignment, even if it has revoked that since.
            generation: the generation of that assignment, -1 if there was none.
        """

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """The partitions of each member.

        Args:
            partition_counts: the number of partitions of each topic; a subscribed topic that is missing has
                none.
            members: the subscriptions, by member id.

        Returns:
            Each member id with its partitions; a member may have none.
        """
