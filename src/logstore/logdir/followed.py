"""The topics of a store that are copies of a cluster's, and the file that keeps of which.

A small JSON file, ``followed.json``. It is replaced whole, so a crash leaves the old file or the new one, and
it exists only once a topic was followed. Kafka ignores it.

How far a copy has come is not in it: that is the end of each log.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.files import Files
from logstore.format.metadata import decode_base64_uuid, encode_base64_uuid
from logstore.logdir.small_json import decode_json, encode_json, read_json_file, write_json_file
from logstore.partition.state.home import FOLLOWED_NAME

VERSION: Final = 1
MAX_FOLLOWED_BYTES: Final = 64 * 1024 * 1024
_WHAT_TO_DO: Final = (
    "Restore the file, or move it away: topics that were followed are then known as the store's own, and can "
    "be followed again when they were deleted"
)

_changing: Final = threading.Lock()
"""Held while the file is read and replaced: several bridges of a store may do so."""


class Followed(NamedTuple):
    """What a topic is a copy of."""

    cluster_id: str
    topic_id: uuid.UUID | None
    """The topic's id there; None if the cluster has no ids."""
    leader: tuple[str, ...] = ()
    """The addresses that a standby was given of its leader; none if a bridge pulls the topic."""
    is_promoted: bool = False
    """Whether the standby was promoted: the topic is the store's own, or is about to be as long as a leader
    is noted."""


def read_followed(files: Files, directory: str) -> dict[str, Followed]:
    """The followed topics of a directory, by name; none if it has no such file.

    Raises:
        CorruptionError: the file is damaged; says what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    path = f"{directory}/{FOLLOWED_NAME}"
    return read_json_file(files, path, MAX_FOLLOWED_BYTES, decode_followed, _WHAT_TO_DO) or {}


def write_followed(files: Files, directory: str, followed: Mapping[str, Followed]) -> None:
    """Replace the file, durably and atomically.

    Raises:
        UsageError: they are too many. The file is as it was.
    """
    write_json_file(files, f"{directory}/{FOLLOWED_NAME}", encode_followed(followed), MAX_FOLLOWED_BYTES)


@contextmanager
def change_followed(files: Files, directory: str) -> Iterator[dict[str, Followed]]:
    """The followed topics, to be changed in the block: what it leaves is stored, all at once, unless it
    raises.

    Raises:
        CorruptionError, UnsupportedVersionError, UsageError: as reading and writing do.
    """
    with _changing:
        before = read_followed(files, directory)
        followed = dict(before)
        yield followed
        if followed != before:
            write_followed(files, directory, followed)


def encode_followed(followed: Mapping[str, Followed]) -> bytes:
    topics = {name: _encode_topic(each) for name, each in sorted(followed.items())}
    return encode_json(VERSION, topics=topics)


def _encode_topic(followed: Followed) -> dict[str, Any]:
    topic_id = None if followed.topic_id is None else encode_base64_uuid(followed.topic_id)
    described: dict[str, Any] = {"cluster": followed.cluster_id, "id": topic_id}
    if followed.leader:
        described["leader"] = list(followed.leader)
    if followed.is_promoted:
        described["promoted"] = True
    return described


def decode_followed(data: bytes) -> dict[str, Followed]:
    """
    Raises:
        CorruptionError: not of the form that :func:`encode_followed` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    content = decode_json(data, FOLLOWED_NAME, VERSION, "topics", dict, "topics")
    return {name: _decode_topic(name, described) for name, described in content["topics"].items()}


def _decode_topic(name: str, described: Any) -> Followed:
    if isinstance(described, dict):
        cluster_id, topic_id = described.get("cluster"), described.get("id")
        leader, is_promoted = described.get("leader", []), described.get("promoted", False)
        is_known = type(leader) is list and all(type(each) is str for each in leader)
        if type(cluster_id) is str and is_known and type(is_promoted) is bool:
            if topic_id is None:
                return Followed(cluster_id, None, tuple(leader), is_promoted)
            if type(topic_id) is str:
                return Followed(cluster_id, decode_base64_uuid(topic_id), tuple(leader), is_promoted)
    raise CorruptionError(f"topic {name!r} has no cluster, no id, or a leader that is none")
