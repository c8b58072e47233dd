"""The small files of a partition's directory: leader epochs, producer snapshots, the topic's id, the role.

Each file is replaced whole and durably. Snapshots and epochs can be rebuilt from the log's batches.
"""

from __future__ import annotations

import uuid
from collections.abc import Container, Sequence
from typing import NamedTuple

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.files import (
    Files,
    read_small_file,
    read_small_files,
    replace_small_files,
    write_new_file,
    write_small_file,
)
from logstore.format.checkpoint import EpochEntry, decode_epoch_checkpoint, encode_epoch_checkpoint
from logstore.format.metadata import (
    decode_partition_metadata,
    decode_role,
    encode_partition_metadata,
    encode_role,
)
from logstore.format.names import SNAPSHOT_SUFFIX, segment_file_name
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot
from logstore.model import Role
from logstore.partition.state.leader_epochs import LeaderEpochs
from logstore.warning import warn

EPOCHS_NAME = "leader-epoch-checkpoint"
METADATA_NAME = "partition.metadata"
ROLE_NAME = ".role"
CUTS_NAME = ".cuts"

MAX_EPOCHS_BYTES = 16 * 1024 * 1024
MAX_SNAPSHOT_BYTES = 256 * 1024 * 1024
_MAX_METADATA_BYTES = 4096


class Stored(NamedTuple):
    """What the small files say of a log that is opened."""

    role: Role
    epochs: tuple[EpochEntry, ...] | None
    """None if there is no file, or a damaged one: they can be rebuilt from the batches."""
    cuts: tuple[tuple[int, int], ...]


def read_stored(files: Files, directory: str, names: Container[str]) -> Stored:
    """Like :func:`read_role`, :func:`read_epochs` and :func:`read_cuts`, for a directory with files of these
    names: most logs have none of the three, and nothing is opened to find that out."""
    wanted = [name for name in (ROLE_NAME, EPOCHS_NAME, CUTS_NAME) if name in names]
    found = read_small_files(files, directory, wanted, MAX_EPOCHS_BYTES) if wanted else {}
    return Stored(
        _role_in(found.get(ROLE_NAME), directory),
        _epochs_in(found.get(EPOCHS_NAME), directory),
        _cuts_in(found.get(CUTS_NAME), directory),
    )


def read_epochs(files: Files, directory: str) -> LeaderEpochs | None:
    """The stored history; None if there is none or it is damaged: it can be rebuilt from the batches.

    Raises:
        UnsupportedVersionError: the file is from a newer version.
    """
    data = read_small_file(files, f"{directory}/{EPOCHS_NAME}", MAX_EPOCHS_BYTES)
    entries = _epochs_in(data, directory)
    return None if entries is None else LeaderEpochs(entries)


def _epochs_in(data: bytes | None, directory: str) -> tuple[EpochEntry, ...] | None:
    path = f"{directory}/{EPOCHS_NAME}"
    try:
        return tuple(decode_epoch_checkpoint(data)) if data else None
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error} ({path})") from None
    except (CorruptionError, UsageError) as error:
        warn("ignoring damaged leader epochs: %s (%s)", error, path)
        return None


def write_epochs(files: Files, directory: str, epochs: LeaderEpochs) -> None:
    write_small_file(files, f"{directory}/{EPOCHS_NAME}", encode_epoch_checkpoint(epochs.entries))


def read_cuts(files: Files, directory: str) -> tuple[tuple[int, int], ...]:
    """Where the log was truncated: the number and the offset of each truncation below which no later one
    went, oldest first. Nothing without the file, or if it is damaged: only followers that are under way need
    it."""
    return _cuts_in(read_small_file(files, f"{directory}/{CUTS_NAME}", MAX_EPOCHS_BYTES), directory)


def _cuts_in(data: bytes | None, directory: str) -> tuple[tuple[int, int], ...]:
    if not data:
        return ()
    try:
        return tuple((number, offset) for number, offset in decode_epoch_checkpoint(data))
    except (CorruptionError, UnsupportedVersionError) as error:
        warn("ignoring damaged truncations: %s (%s)", error, f"{directory}/{CUTS_NAME}")
        return ()


def write_cuts(files: Files, directory: str, cuts: Sequence[tuple[int, int]]) -> None:
    """In the same text as leader epochs: both numbers rise from line to line."""
    data = encode_epoch_checkpoint([EpochEntry(*cut) for cut in cuts])
    write_small_file(files, f"{directory}/{CUTS_NAME}", data)


def snapshot_path(directory: str, offset: int) -> str:
    """The path of a snapshot; ``offset`` is the one after the last record in it."""
    return f"{directory}/{segment_file_name(offset, SNAPSHOT_SUFFIX)}"


def read_snapshot(files: Files, directory: str, offset: int) -> list[ProducerSnapshotEntry] | None:
    """The entries, or None if the snapshot is missing or damaged: an older one will do, with more replay. Its
    version is not covered by its checksum, so an unknown version counts as damage too."""
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
    """The id in ``partition.metadata``; None if there is no such file.

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


def begin_directory(files: Files, directory: str, topic_id: uuid.UUID, role: Role) -> None:
    """Write what a partition's directory has before its log begins. The names become durable with those of
    the log's first files."""
    contents = {METADATA_NAME: encode_partition_metadata(topic_id)}
    if role is not Role.ALONE:
        contents[ROLE_NAME] = encode_role(role)
    replace_small_files(files, directory, contents)


def read_role(files: Files, directory: str) -> Role:
    """The log's role among replicas. Without a file the log is alone, even if a broker wrote the directory. A
    damaged file must belong to a log with other replicas and counts as a follower's: records that may not be
    replicated are then neither shown nor removed.

    Raises:
        UnsupportedVersionError: the file is from a newer version.
    """
    return _role_in(read_small_file(files, f"{directory}/{ROLE_NAME}", MAX_EPOCHS_BYTES), directory)


def _role_in(data: bytes | None, directory: str) -> Role:
    path = f"{directory}/{ROLE_NAME}"
    try:
        return Role.ALONE if data is None else decode_role(data)
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(f"{error} ({path})") from None
    except CorruptionError as error:
        warn("taking a log whose role is damaged for a follower: %s", error.located(path))
        return Role.FOLLOWER


def prepare_role(files: Files, directory: str, role: Role) -> None:
    """Write a role aside, for :func:`put_role`: what needs room. Nothing has changed if it fails. A log that
    is alone has no file."""
    if role is not Role.ALONE:
        write_new_file(files, f"{directory}/{ROLE_NAME}.tmp", encode_role(role))


def put_role(files: Files, directory: str, role: Role) -> None:
    """Store the role that was prepared, durably. A crash leaves the old or the new one."""
    path = f"{directory}/{ROLE_NAME}"
    if role is not Role.ALONE:
        files.rename(f"{path}.tmp", path)
    elif files.is_file(path):
        files.remove(path)
    else:
        return
    files.flush_directory(directory)


def replicated_below(role: Role, stored: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """The high watermark of an opened log: its end if it is alone, otherwise the stored one, kept within the
    log; the log start if none is stored."""
    if role is Role.ALONE:
        return log_end_offset
    return max(min(stored or 0, log_end_offset), log_start_offset)
