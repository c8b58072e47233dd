"""Where the log of a follower has parted from its leader's."""

from __future__ import annotations

from typing import Protocol

from logstore.broker.requests import NO_EPOCH, DivergingEpoch


class EpochFacts(Protocol):
    """What is asked of a log."""

    def end_offset_for_epoch(self, epoch: int, /) -> tuple[int, int]:
        """See :meth:`.LeaderEpochs.end_offset_for`."""
        ...


def find_divergence(log: EpochFacts, offset: int, last_fetched_epoch: int) -> DivergingEpoch | None:
    """At the leader: where the log of a follower that asks so has parted from this one; None if it is a
    beginning of this one (KIP-101, KIP-279, KIP-595).

    Args:
        offset: up to where the follower has a log.
        last_fetched_epoch: its newest epoch.
    """
    if last_fetched_epoch == NO_EPOCH:
        return None  # it has no batches
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == last_fetched_epoch and end_offset >= offset:
        return None
    return DivergingEpoch(epoch, end_offset)
