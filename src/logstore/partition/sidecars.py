"""The small files of a partition's directory: leader epochs, producer snapshots, the topic's id.

Each is replaced whole and durably. Snapshots and epochs can be built again from the log's batches.
"""

from __future__ import annotations

import uuid

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.files import Files, read_small_file, write_small_file
from logstore.format.checkpoint import decode_epoch_checkpoint, encode_epoch_checkpoint
from logstore.format.metadata import decode_partition_metadata, encode_partition_metadata
from logstore.format.names import SNAPSHOT_SUFFIX, segment_file_name
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from logstore.partition.leader_epochs import LeaderEpochs
from logstore.warning import warn

EPOCHS_NAME = "leader-epoch-checkpoint"
METADATA_NAME = "partition.metadata"

MAX_EPOCHS_BYTES = 16 * 1024 * 1024
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
_MAX_METADATA_BYTES = 4096


def read_epochs(files: Files, directory: str) -> LeaderEpochs | None:
    """The stored history; None if there is none, or if it is damaged: the batches tell it again.

    Raises:
        UnsupportedVersionError: the file is from a newer version.
    """
    path = f"{directory}/{EPOCHS_NAME}"
    data = read_small_file(files, path, MAX_EPOCHS_BYTES)
    try:
        return LeaderEpochs(decode_epoch_checkpoint(data)) if data else None
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error} ({path})") from None
    except (CorruptionError, UsageError) as error:
        warn("ignoring damaged leader epochs: %s (%s)", error, path)
        return None


def write_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    write_small_file(files, f"{directory}/{EPOCHS_NAME}", encode_epoch_checkpoint(epochs.entries))


def snapshot_path(directory: str, offset: int) -> str:
    """``offset`` is the one after the last record that the snapshot reflects."""
    return f"{directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"


def read_snapshot(files: Files, directory: str, offset: int) -> list[ProducerSnapshotEntry] | None:
    """The entries, or None if the snapshot is missing or damaged: an older one serves, with more replay. Its
    version is not covered by its checksum, so an unknown one counts as damage too."""
    path = snapshot_path(directory, offset)
    try:
        data = read_small_file(files, path, MAX_SNAPSHOT_BYTES)
        return decode_snapshot(data) if data is not None else None
    except (CorruptionError, UnsupportedVersionError) as error:
        warn("ignoring a damaged producer snapshot: %s (%s)", error, path)
        return None


def write_snapshot(files: Files, directory: str, offset: int, entries: list[ProducerSnapshotEntry]) -> None:
    write_small_file(files, snapshot_path(directory, offset), encode_snapshot(entries))


def read_topic_id(files: Files, directory: str) -> uuid.UUID | None:
    """The id in ``partition.metadata``, or None without that file.

    Raises:
        CorruptionError: the file does not parse.
    """
    path = f"{directory}/{METADATA_NAME}"
    data = read_small_file(files, path, _MAX_METADATA_BYTES)
    try:
        return decode_partition_metadata(data) if data else None
    except CorruptionError as error:
        raise error.located(path) from None


def write_topic_id(files: Files, directory: str, topic_id: uuid.UUID) -> None:
    write_small_file(files, f"{directory}/{METADATA_NAME}", encode_partition_metadata(topic_id))
