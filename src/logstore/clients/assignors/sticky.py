"""The sticky assignors: even first, and then near to what members had (KIP-54, KIP-341, KIP-429)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from logstore.broker.assigning.claims import Claim, Claims
from logstore.broker.assigning.evenly import assign_evenly
from logstore.broker.assigning.order import known_counts
from logstore.clients.assignors.assignor import RebalanceProtocol, Subscription
from logstore.format.messages.consumer_protocol import (
    NO_GENERATION,
    decode_cooperative_sticky_user_data,
    decode_sticky_user_data,
    encode_cooperative_sticky_user_data,
    encode_sticky_user_data,
    ungrouped,
)
from logstore.model import TopicPartition


class StickyAssignor:
    """Changes as little as an even assignment allows, in the eager protocol.

    Members revoke everything before they join, so what they had travels in the user data.
    """

    name: Final = "sticky"
    protocols: Final = (RebalanceProtocol.EAGER,)

    def subscription_user_data(
        self, topics: Collection[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes | None:
        """The last assignment and its generation; None before the first."""
        if not owned and generation == NO_GENERATION:
            return None
        return encode_sticky_user_data(owned, generation)

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See :meth:`Assignor.assign`.

        The assignment is the most even that there is: with equal subscriptions the loads differ by one at
        most. No other that is as even keeps more. Cost for 1,000 members and 10,000 partitions: 0.1 s with
        equal subscriptions; with different ones 1 s, and some seconds if all of them change at once.
        """
        counts = known_counts(partition_counts, members)
        claims = Claims(counts, {member: _claim_in_user_data(members[member]) for member in members})
        return assign_evenly(counts, members, claims)


class CooperativeStickyAssignor:
    """As "sticky", while members keep what they own: a partition that changes its owner is assigned to no
    member until the one that has it has revoked it and joined again.

    It is right for the eager protocol too, so that a group can change over: members first offer this
    assignor beside their old one, and then this one alone.
    """

    name: Final = "cooperative-sticky"
    protocols: Final = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def subscription_user_data(
        self, topics: Collection[str], owned: Sequence[TopicPartition], generation: int
    ) -> bytes:
        """The generation, for leaders that know no version of subscriptions with it."""
        return encode_cooperative_sticky_user_data(generation)

    def assign(
        self, partition_counts: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """See :meth:`Assignor.assign`. After a round in which no member has to revoke anything, all
        partitions are assigned, as "sticky" does it."""
        counts = known_counts(partition_counts, members)
        claims = Claims(counts, {member: _claim_of_owned(members[member]) for member in members})
        return {
            member: [each for each in partitions if not claims.may_be_held_besides(each, member)]
            for member, partitions in assign_evenly(counts, members, claims).items()
        }


def _claim_in_user_data(subscription: Subscription) -> Claim:
    previous, generation = decode_sticky_user_data(subscription.user_data or b"")
    return Claim(ungrouped(previous), max(generation, NO_GENERATION))


def _claim_of_owned(subscription: Subscription) -> Claim:
    generation = subscription.generation
    if generation == NO_GENERATION and subscription.user_data is not None:
        generation = decode_cooperative_sticky_user_data(subscription.user_data).generation
    return Claim(subscription.owned, max(generation, NO_GENERATION))
