"""The sizes of partitions on disk (KIP-113, KIP-827)."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int16, Int32, Int64, String, since


class TopicWanted(NamedTuple):
    """Partitions of one topic."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(NamedTuple):
    """Ask for some partitions, or for all (null)."""

    topics: tuple[TopicWanted, ...] | None = ()


class Partition(NamedTuple):
    """The size of a partition."""

    partition: Int32 = 0
    size_bytes: Int64 = 0
    offset_lag: Int64 = 0
    """How far a future copy is behind, or the log behind the high watermark."""
    is_future_key: Bool = False
    """Whether it is a copy that will replace the partition in another directory."""


class Topic(NamedTuple):
    """The partitions of one topic in it."""

    name: String = ""
    partitions: tuple[Partition, ...] = ()


class LogDirectory(NamedTuple):
    """One directory, and what is in it."""

    error_code: Int16 = 0
    path: String = ""
    topics: tuple[Topic, ...] = ()
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1


class DescribeLogDirsResponse(NamedTuple):
    """The directories of the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    directories: tuple[LogDirectory, ...] = ()
