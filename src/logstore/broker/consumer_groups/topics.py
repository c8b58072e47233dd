"""What the coordinator knows of topics: their ids and how many partitions they have, at one moment."""

from __future__ import annotations

import hashlib
import struct
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

_TOPIC: Final = struct.Struct(">16siH")


class Topic(Protocol):
    """A topic."""

    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def partition_count(self) -> int: ...


Topics = Mapping[str, Topic]
"""All topics by name. It is never changed: when a topic changes, another mapping takes its place."""


def hash_of(topics: Topics, names: Iterable[str]) -> int:
    """A number for what some topics are like, as a signed integer of 64 bits: another one when one of them
    comes, goes, is made again, or gets partitions. 0 if there is none of them.

    Kafka has a number of its own for this (xxh3). A broker that reads ours finds that it differs, and assigns
    once more, which moves nothing.
    """
    known = sorted(name for name in names if name in topics)
    if not known:
        return 0
    digest = hashlib.blake2b(digest_size=8)
    for name in known:
        encoded = name.encode()
        topic = topics[name]
        digest.update(_TOPIC.pack(topic.topic_id.bytes, topic.partition_count, len(encoded)) + encoded)
    return int.from_bytes(digest.digest(), "big", signed=True)
