"""Who owned which partition before a rebalance, when members may disagree.

A member that missed a rebalance still names what it had in an older generation. The newest claim on a
partition is right (KIP-341). Two claims of the same generation cannot both be: then none is, and both members
have to give the partition up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logstore.model import TopicPartition


class Claim(NamedTuple):
    """What a member says that it owned, and since which generation; -1 if it does not know."""

    partitions: Iterable[TopicPartition]
    generation: int


class Claims:
    """The claims of all members on partitions that exist."""

    def __init__(self, counts: Mapping[str, int], claims: Mapping[str, Claim]) -> None:
        newest: dict[TopicPartition, tuple[int, str | None]] = {}
        self._claimants: dict[TopicPartition, list[str]] = {}
        for member, (partitions, generation) in claims.items():
            for partition in partitions:
                if not 0 <= partition.partition < counts.get(partition.topic, 0):
                    continue
                best, owner = newest.get(partition, (None, None))
                if best is None or generation > best:
                    newest[partition] = generation, member
                elif generation == best and owner != member:
                    newest[partition] = generation, None
                self._claimants.setdefault(partition, []).append(member)
        self.owners: dict[TopicPartition, str] = {
            partition: owner for partition, (_, owner) in newest.items() if owner is not None
        }
        """The owner of each partition that one member has the newest claim on."""

    def is_claimed_by(self, partition: TopicPartition, member: str) -> bool:
        """Whether the member says that it owned the partition, rightly or not."""
        return member in self._claimants.get(partition, ())

    def may_be_held_besides(self, partition: TopicPartition, member: str) -> bool:
        """Whether another member may still work on the partition, so that this one must not begin to."""
        if self.owners.get(partition) == member:
            return False
        return any(claimant != member for claimant in self._claimants.get(partition, ()))
