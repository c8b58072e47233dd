"""``backup.json``: which store a backup is of, and what is known about its segments.

A segment of the store need not be copied again if the file in the backup is the same file (a link), or a copy
of a file that has not changed since: its number, size and time of change are still those in the manifest. The
times of a file system are coarse, so no stamp is kept of a file that changed right before it was copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.files import Files, FileStamp, read_small_file
from logstore.logdir.identity import BACKUP_NAME
from logstore.model import TopicPartition

VERSION = 1
_MAX_BYTES = 256 * 1024 * 1024


class StoredSegment(NamedTuple):
    """A segment of a backup."""

    base_offset: int
    size_bytes: int
    is_linked: bool
    """Whether its file is also a file of the store."""
    is_sound: bool
    """Whether it was verified without a problem."""
    stamp: FileStamp | None = None
    """The stamp of the file it was copied from; None if a stamp could not show later changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPartition:
    """A partition of a backup."""

    topic_id: str
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    cleaner_offset: int | None
    segments: Mapping[int, StoredSegment] = field(default_factory=dict)
    """By base offset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The contents of ``backup.json``."""

    store: str
    """The identity of the store: the ids of its cluster and its directory."""
    source: str
    """The path of the store, for people."""
    made_ms: int
    partitions: Mapping[TopicPartition, StoredPartition]


def read_manifest(files: Files, path: str) -> Manifest | None:
    """The manifest of the backup in ``path``; None if there is none.

    Raises:
        CorruptionError: it is damaged.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    name = f"{path}/{BACKUP_NAME}"
    data = read_small_file(files, name, _MAX_BYTES)
    try:
        return None if data is None else decode_manifest(data)
    except CorruptionError as error:
        raise error.located(name) from None


def encode_manifest(manifest: Manifest) -> bytes:
    """The manifest as JSON."""
    import json  # as in the catalogue

    content = {
        "version": VERSION,
        "store": manifest.store,
        "source": manifest.source,
        "made_ms": manifest.made_ms,
        "partitions": [
            {
                "topic": name.topic,
                "partition": name.partition,
                "topic_id": each.topic_id,
                "start": each.log_start_offset,
                "end": each.log_end_offset,
                "high_watermark": each.high_watermark,
                "cleaner_offset": each.cleaner_offset,
                "segments": [
                    [*segment[:4], None if segment.stamp is None else list(segment.stamp)]
                    for segment in each.segments.values()
                ],
            }
            for name, each in sorted(manifest.partitions.items())
        ],
    }
    return json.dumps(content).encode() + b"\n"


def decode_manifest(data: bytes) -> Manifest:
    """
    Raises:
        CorruptionError: not what :func:`encode_manifest` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    import json

    try:
        content = json.loads(data)
        if content["version"] > VERSION:
            raise UnsupportedVersionError(
                f"{BACKUP_NAME} has version {content['version']}; only {VERSION} is known"
            )
        return Manifest(
            store=str(content["store"]),
            source=str(content["source"]),
            made_ms=int(content["made_ms"]),
            partitions=dict(map(_decode_partition, content["partitions"])),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise CorruptionError(
            f"was not written by a backup: {error!r}. Remove the backup, and make another one"
        ) from None


def _decode_partition(described: Any) -> tuple[TopicPartition, StoredPartition]:
    segments = [
        StoredSegment(
            int(base),
            int(size),
            bool(is_linked),
            bool(is_sound),
            None if stamp is None else FileStamp(*stamp),
        )
        for base, size, is_linked, is_sound, stamp in described["segments"]
    ]
    cleaner_offset = described["cleaner_offset"]
    return TopicPartition(str(described["topic"]), int(described["partition"])), StoredPartition(
        topic_id=str(described["topic_id"]),
        log_start_offset=int(described["start"]),
        log_end_offset=int(described["end"]),
        high_watermark=int(described["high_watermark"]),
        cleaner_offset=None if cleaner_offset is None else int(cleaner_offset),
        segments={segment.base_offset: segment for segment in segments},
    )
