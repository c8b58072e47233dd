"""The topic ``__consumer_offsets``: its settings, and which of its partitions has what of a group.

A group's offsets and metadata are all in one partition, so that a batch can hold a whole commit.
"""

from __future__ import annotations

from logstore.broker.internal_topic import InternalTopic
from logstore.format.names import OFFSETS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory

_INT32 = 1 << 32
_INT31 = 1 << 31


def java_hash(text: str) -> int:
    """What ``String.hashCode`` returns in Java: over UTF-16 units, from -2^31 to 2^31 - 1."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) % _INT32
    return found - _INT32 if found >= _INT31 else found


def partition_of(group: str, partition_count: int) -> int:
    """The partition of ``__consumer_offsets`` that has a group's records, as Kafka's clients and brokers find
    it: the absolute hash (0 for -2^31, which has none) modulo the number of partitions."""
    if partition_count == 1:
        return 0
    found = abs(java_hash(group))
    return 0 if found == _INT31 else found % partition_count


def offsets_topic(directory: LogDirectory | WatchedDirectory) -> InternalTopic:
    """The topic in one directory. It is made with the first commit."""
    return InternalTopic(directory, OFFSETS_TOPIC, directory.config.offsets_topic_num_partitions, "offsets")
