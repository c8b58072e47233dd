"""The names of directories and files in a log directory.

Knows how topics, partition directories and segment files are spelled, and parses their names. Does not know
what is in them, or whether they exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from logstore.arguments import check_least, plain_text, shown
from logstore.errors import InvalidTopicError, OffsetOutOfRangeError, UsageError
from logstore.model import TopicPartition

MAX_TOPIC_LENGTH = 249
"""Characters in a topic name. With ``-`` and a partition number, the name still fits into 255 characters."""

MAX_DIRECTORY_NAME_LENGTH = 255
"""Characters in a directory name, the limit of common file systems. Topics in marked names are cut to fit."""

MAX_PARTITION = 2**31 - 1
MAX_OFFSET = 2**63 - 1

CLUSTER_METADATA_NAME = "__cluster_metadata-0"
"""The directory of a KRaft cluster's metadata log. It lies beside the topics, unless ``metadata.log.dir``
says otherwise. No checkpoint names it, and a clean stop does not close it."""
SHARED_NAME = ".socket"
"""The socket at which a store's process lets others in."""
HANDOVER_MARK_NAME = "handover.json"
"""This file marks a partition directory that a handover has created and not finished."""
INTERNAL_PREFIX = "__"
"""The prefix of the topics in which a broker keeps its own state."""
OFFSETS_TOPIC = "__consumer_offsets"
"""The topic of committed offsets."""
TRANSACTIONS_TOPIC = "__transaction_state"
"""The topic of transactions."""
SHARE_STATE_TOPIC = "__share_group_state"
"""The topic of share groups."""

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"

DELETED_SUFFIX = ".deleted"
"""Scheduled for removal."""
CLEANED_SUFFIX = ".cleaned"
"""Unfinished output of the cleaner."""
SWAP_SUFFIX = ".swap"
"""Finished output of the cleaner that is about to replace the old files."""
TEMPORARY_SUFFIX = ".tmp"
"""A file that is still being written. A crash may leave it; the next open removes it."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
match_topic_name: Final = re.compile(rf"(?!\.\.?\Z)[a-zA-Z0-9._-]{{1,{MAX_TOPIC_LENGTH}}}").fullmatch
"""A match for each name that :func:`check_topic_name` takes, and None for others; a third of its time."""
_UNIQUE = re.compile(r"[0-9a-f]{32}")
_PARTITION_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})", re.DOTALL)
_MARKED_NAME = re.compile(r"(?P<name>\S+-\S+)\.[^\s.]+")
_SEGMENT_NAME = re.compile(
    r"(?P<offset>[0-9]{20})(?P<suffix>\.(?:log|index|timeindex|txnindex|snapshot))"
    r"(?P<state>\.(?:deleted|cleaned|swap))?"
)


_INT32_MAX = 2**31 - 1


class DirectoryKind(Enum):
    """The purpose of a partition directory; the value is the marker at the end of its name."""

    LIVE = ""
    DELETED = "-delete"
    """Renamed by the deletion of its topic; removed after a delay."""
    STRAY = "-stray"
    """Set aside by a broker that does not own the partition."""
    FUTURE = "-future"
    """An unfinished copy for a move to this log directory."""


class DirectoryName(NamedTuple):
    """A parsed partition directory name. The topic of a DELETED or STRAY one may be cut."""

    topic: str
    partition: int
    kind: DirectoryKind


class SegmentFileName(NamedTuple):
    """A parsed segment file name. ``suffix`` is one of the five kinds; ``state`` is "" for a file in use."""

    base_offset: int
    suffix: str
    state: str = ""


def check_topic_name(name: str) -> None:
    """Refuse what Kafka would refuse: 1 to 249 ASCII letters, digits, ``.``, ``_`` and ``-``; not ``.`` or
    ``..``.

    Raises:
        InvalidTopicError: names the topic and the rule.
    """
    if type(name) is str and match_topic_name(name):
        return
    if not isinstance(name, str):
        raise InvalidTopicError(f"a topic name is a str, not {type(name).__name__}")
    if type(name) is not str:
        name = plain_text(name)
    if name in (".", ".."):
        raise InvalidTopicError(f"topic name {name!r} is not allowed: it stands for another directory")
    if len(name) > MAX_TOPIC_LENGTH:
        raise InvalidTopicError(f"topic name has {len(name)} characters; the limit is {MAX_TOPIC_LENGTH}")
    if not _TOPIC.fullmatch(name):
        raise InvalidTopicError(f"topic name {name!r}: use letters, digits, '.', '_' and '-', at least one")


def check_new_topics(topics: Mapping[str, int], most: int = _INT32_MAX) -> dict[str, int]:
    """The same as a dict of plain names.

    Raises:
        UsageError: it is no mapping of names and numbers of partitions, each from 1 to ``most``.
        InvalidTopicError: Kafka would refuse a name.
    """
    if not isinstance(topics, Mapping):
        raise UsageError(f'topics is {shown(topics)}; it must be a mapping such as {{"orders": 3}}')
    for name, count in topics.items():
        check_topic_name(name)
        check_least(f"the number of partitions of {name!r}", count, 1)
        if count > most:
            raise UsageError(f"the number of partitions of {name!r} is {count}; at most {most}")
    return {plain_text(name): count for name, count in topics.items()}


def check_new_topic_name(name: str) -> None:
    """As :func:`check_topic_name`, and refuse the one legal name whose directory would be something else: a
    cluster's metadata log. Every other name gives directories of its own, since a partition's directory ends
    in a dash and a number, and no file of a store does.

    Raises:
        InvalidTopicError: names the topic and the rule.
    """
    check_topic_name(name)
    if partition_directory_name(name, 0) == CLUSTER_METADATA_NAME:
        raise InvalidTopicError(
            f"topic name {name!r} is taken: {CLUSTER_METADATA_NAME} is the metadata log of a Kafka cluster, "
            "and a directory with one is a broker's. Use another name"
        )


def has_name_clash(first: str, second: str) -> bool:
    """Whether two topics differ at most by ``.`` and ``_``, which look the same in Kafka's metric names."""
    return first.replace(".", "_") == second.replace(".", "_")


def partition_directory_name(topic: str, partition: int) -> str:
    """``<topic>-<partition>``.

    Raises:
        InvalidTopicError: an illegal topic name, or a partition outside 0 to 2^31 - 1.
    """
    check_topic_name(topic)
    _check_partition(partition)
    return f"{topic}-{partition}"


def deleted_directory_name(topic: str, partition: int, unique: str) -> str:
    """``<topic>-<partition>.<unique>-delete``; the topic is cut so that the name has at most 255 characters.

    ``unique`` is 32 hex digits, in lower case. It distinguishes deleted topics of the same name.

    Raises:
        InvalidTopicError: an illegal topic name or partition.
        UsageError: ``unique`` is something else.
    """
    return _marked_directory_name(topic, partition, unique, DirectoryKind.DELETED)


def stray_directory_name(topic: str, partition: int, unique: str) -> str:
    """``<topic>-<partition>.<unique>-stray``; like :func:`deleted_directory_name`."""
    return _marked_directory_name(topic, partition, unique, DirectoryKind.STRAY)


def _marked_directory_name(topic: str, partition: int, unique: str, kind: DirectoryKind) -> str:
    check_topic_name(topic)
    _check_partition(partition)
    if not _UNIQUE.fullmatch(unique):
        raise UsageError(f"unique part of a directory name is {unique!r}; it must be 32 hex digits")
    tail = f"-{partition}.{unique}{kind.value}"
    return topic[: MAX_DIRECTORY_NAME_LENGTH - len(tail)] + tail


def parse_directory_name(name: str) -> DirectoryName:
    """Parse a partition directory's name: the partition follows the last dash.

    Stricter than Kafka in two points: the topic must be legal, and a partition has only one spelling (no
    ``+``, no leading zeros), so that two directories are never the same partition.

    Raises:
        InvalidTopicError: not the name of a partition directory.
    """
    kind = _kind_of(name)
    plain = name
    if kind is not DirectoryKind.LIVE:
        marked = _MARKED_NAME.fullmatch(name.removesuffix(kind.value))
        if marked is None:
            raise InvalidTopicError(
                f"directory {name!r} ends in {kind.value} but has no unique part before it"
            )
        plain = marked["name"]
    topic, partition = _split_partition_name(name, plain)
    return DirectoryName(topic, partition, kind)


def _kind_of(name: str) -> DirectoryKind:
    for kind in (DirectoryKind.DELETED, DirectoryKind.STRAY, DirectoryKind.FUTURE):
        if name.endswith(kind.value):
            return kind
    return DirectoryKind.LIVE


def _split_partition_name(name: str, plain: str) -> TopicPartition:
    parts = _PARTITION_NAME.fullmatch(plain)
    if parts is None:
        raise InvalidTopicError(f"directory {name!r} is not named <topic>-<partition>")
    check_topic_name(parts["topic"])
    partition = int(parts["partition"])
    _check_partition(partition)
    return TopicPartition(parts["topic"], partition)


def _check_partition(partition: int) -> None:
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition <= MAX_PARTITION:
        raise InvalidTopicError(
            f"partition is {shown(partition)}; it must be a number from 0 to {MAX_PARTITION}"
        )


def segment_file_name(base_offset: int, suffix: str) -> str:
    """The offset as 20 digits, then ``suffix`` (append a state suffix yourself if there is one).

    Raises:
        OffsetOutOfRangeError: the offset is below 0 or above 2^63 - 1.
    """
    if not 0 <= base_offset <= MAX_OFFSET:
        raise OffsetOutOfRangeError(f"no file can be named after offset {base_offset}")
    return f"{base_offset:020d}{suffix}"


def parse_segment_file_names(names: Iterable[str]) -> dict[str, SegmentFileName]:
    """Those of the names that are segment files', in their order."""
    found = {}
    for name in names:
        parsed = parse_segment_file_name(name)
        if parsed is not None:
            found[name] = parsed
    return found


def parse_segment_file_name(name: str) -> SegmentFileName | None:
    """Parse a segment file's name; None for every other file. Source: Kafka's LogFileUtils."""
    parts = _SEGMENT_NAME.fullmatch(name)
    if parts is None:
        return None
    base_offset = int(parts["offset"])
    if base_offset > MAX_OFFSET:
        return None
    return SegmentFileName(base_offset, parts["suffix"], parts["state"] or "")
