"""Who this directory is: ``meta.properties``, and whether a path is a store at all."""

from __future__ import annotations

import uuid

from logstore.errors import CorruptionError, InvalidTopicError, UsageError
from logstore.files import Files, parent_of, read_small_file, write_small_file
from logstore.format.metadata import (
    MetaProperties,
    decode_meta_properties,
    encode_base64_uuid,
    encode_meta_properties,
)
from logstore.format.names import LOG_SUFFIX, DirectoryKind, DirectoryName, parse_directory_name
from logstore.logdir.catalogue import CATALOGUE_NAME
from logstore.partition.home import LOCK_NAME

META_PROPERTIES_NAME = "meta.properties"
_MAX_META_BYTES = 64 * 1024
_STORE_FILES = (META_PROPERTIES_NAME, CATALOGUE_NAME, LOCK_NAME)


def prepare_directory(files: Files, path: str, *, create: bool) -> None:
    """Make sure that ``path`` is a store, or can become one.

    Raises:
        UsageError: it does not exist and ``create`` is false; it is a file, one partition's directory, or a
            directory of something else.
    """
    if files.is_file(path):
        raise UsageError(f"{path} is a file; a store is a directory")
    if not files.is_directory(path):
        if not create:
            raise UsageError(f"{path} does not exist")
        files.make_directory(path)
        files.flush_directory(parent_of(path))
        return
    entries = files.list_directory(path)
    names = {entry.name for entry in entries}
    if (
        not names
        or names & set(_STORE_FILES)
        or any(_is_partition(e.name) for e in entries if e.is_directory)
    ):
        return
    if any(name.endswith(LOG_SUFFIX) for name in names):
        raise UsageError(f"{path} is the directory of one partition; open its parent, or use Log.open()")
    raise UsageError(f"{path} holds other files and no topics; give a store a directory of its own")


def _is_partition(name: str) -> bool:
    parsed = parse_name(name)
    return parsed is not None


def parse_name(name: str) -> DirectoryName | None:
    """What a directory in a store is, or None if it is none of ours."""
    try:
        return parse_directory_name(name)
    except InvalidTopicError:
        return None


def list_partitions(files: Files, path: str) -> list[tuple[str, DirectoryName]]:
    """(directory name, parsed) of every partition directory, in whatever state."""
    found = []
    for entry in files.list_directory(path):
        parsed = parse_name(entry.name) if entry.is_directory else None
        if parsed is not None:
            found.append((entry.name, parsed))
    return found


def live_partition_counts(files: Files, path: str) -> dict[str, int]:
    """Topics as the partition directories say: one more than the highest partition number of each."""
    counts: dict[str, int] = {}
    for _, parsed in list_partitions(files, path):
        if parsed.kind is DirectoryKind.LIVE:
            counts[parsed.topic] = max(counts.get(parsed.topic, 0), parsed.partition + 1)
    return counts


def ensure_identity(files: Files, path: str) -> MetaProperties:
    """Read ``meta.properties``, or give a new store an identity.

    Raises:
        CorruptionError: the file is damaged.
    """
    meta_path = f"{path}/{META_PROPERTIES_NAME}"
    data = read_small_file(files, meta_path, _MAX_META_BYTES)
    if data is not None:
        try:
            return decode_meta_properties(data)
        except CorruptionError as error:
            raise error.located(meta_path) from None
    identity = MetaProperties(
        version=1,
        cluster_id=encode_base64_uuid(uuid.uuid4()),
        node_id=0,
        directory_id=uuid.uuid4(),
    )
    write_small_file(files, meta_path, encode_meta_properties(identity))
    return identity
