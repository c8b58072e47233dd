"""What requests say of the records of a share group that a member has (KIP-932)."""

from __future__ import annotations

from typing import NamedTuple

from logstore.format.messages.fields import NO_UUID, Int8, Int32, Int64, Uuid


class Acknowledgements(NamedTuple):
    """What became of offsets that are side by side: one type for all, or one for each."""

    first_offset: Int64 = 0
    last_offset: Int64 = 0
    acknowledge_types: tuple[Int8, ...] = ()
    """0: a gap. 1: accept. 2: release. 3: reject. 4: renew the lock (KIP-1222)."""


class Partition(NamedTuple):
    """A partition, with acknowledgements."""

    partition: Int32 = 0
    acknowledgements: tuple[Acknowledgements, ...] = ()


class Topic(NamedTuple):
    """The partitions of one topic."""

    topic_id: Uuid = NO_UUID
    partitions: tuple[Partition, ...] = ()
