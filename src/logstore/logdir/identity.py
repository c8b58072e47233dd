"""Who this directory is: ``meta.properties``, and whether a path is a store at all."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Container, Iterable

from logstore.errors import CorruptionError, InvalidTopicError, LogstoreError, UsageError
from logstore.files import Files, parent_of, read_small_file, write_small_file
from logstore.format.metadata import (
    MetaProperties,
    decode_meta_properties,
    encode_base64_uuid,
    encode_meta_properties,
)
from logstore.format.names import (
    CLUSTER_METADATA_NAME,
    HANDOVER_MARK_NAME,
    DirectoryKind,
    DirectoryName,
    parse_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    stray_directory_name,
)
from logstore.logdir.catalogue import MAX_PARTITIONS
from logstore.model import TopicPartition
from logstore.partition.state.home import LOCK_NAME, META_PROPERTIES_NAME, STORE_NAMES
from logstore.partition.state.sidecars import METADATA_NAME, read_topic_id
from logstore.warning import warn

MAX_META_BYTES = 64 * 1024
BACKUP_NAME = "backup.json"
"""What a store has that is a backup, and that nobody has opened for writing: what is in it, of which
store."""
UNFINISHED_BACKUP_NAME = "backup.unfinished"
"""A directory with this file is none: it is about to become a backup, or was one."""
_MISSING_DIRECTORY = (
    "the partition's directory is missing. Restore it from a copy; or make an empty one, and reopen the "
    "partition with accept_loss=True to begin an empty log; or, if another directory has the partition now, "
    "topic.let_go({number})"
)
_SET_ASIDE = (
    "the partition's directory is missing, but {stray} is beside it: a broker that did not know the topic "
    "has set its records aside under that name. Nothing is lost: while neither a broker nor a store has the "
    "directory open, rename it back to {name}. To have a broker serve the topic, hand it over to one with "
    "logstore.handover()"
)
_HANDED_IN_PART = (
    "the partition's directory is missing, because a handover to this directory was interrupted. Close the "
    "store, and call logstore.handover() again: it finishes what it began"
)
_UNFINISHED = (
    "{path} is an unfinished backup, of a call that was killed or is under way. The next store.backup() to "
    "the same path removes it"
)
_EXCHANGED_IN_PART = (
    "{path} does not exist, but {path}.previous does: store.backup() was killed between two renames. Call it "
    "again; or rename {path}.previous, which is the last backup but one, to {path}"
)
_MEND_IDENTITY = (
    "Restore the file; or move it away, and the next open for writing gives the store a new identity. "
    "Earlier backups are then another store's"
)
_GUESSES = uuid.UUID("7f1cf2f0-9a5d-4d0e-a5f4-5bd1be0e6c1f")  # any; the guesses' name space
_STORE_FILES = {*STORE_NAMES, LOCK_NAME}


def prepare_directory(files: Files, path: str, *, create: bool) -> None:
    """Make sure that ``path`` is a store, or can become one.

    Raises:
        UsageError: it does not exist and ``create`` is false; it is a file, one partition's directory, or a
            directory of something else.
    """
    if files.is_file(path):
        raise UsageError(f"{path} is a file; a store is a directory")
    if not files.is_directory(path):
        if files.is_file(f"{path}.previous/{BACKUP_NAME}"):
            raise UsageError(_EXCHANGED_IN_PART.format(path=path))
        if not create:
            raise UsageError(
                f"{path} does not exist; logstore.open() makes it, for writing and with create=True"
            )
        make_durably(files, path)
        return
    entries = files.list_directory(path)
    names = {entry.name.removesuffix(".tmp") for entry in entries}  # a crash may leave only such a one
    is_begun = path.endswith(".partial") and not create and names <= {LOCK_NAME}
    if UNFINISHED_BACKUP_NAME in names or is_begun:
        raise UsageError(_UNFINISHED.format(path=path))
    if any(parse_segment_file_name(name) is not None for name in names):
        raise UsageError(f"{path} is the directory of one partition; open its parent, or use Log.open()")
    if names and not names & _STORE_FILES and not unknown_partitions(files, path, ()):
        raise UsageError(f"{path} holds other files and no topics; give a store a directory of its own")


def make_durably(files: Files, path: str) -> None:
    """Make the directory and its parents, so that a power cut cannot take their names."""
    if not files.is_directory(path):
        make_durably(files, parent_of(path))
        files.make_directory(path)
        files.flush_directory(parent_of(path))


def end_being_backup(files: Files, path: str) -> None:
    """A backup that is opened for writing is a store like others from then on; :meth:`take_clean_marker`
    makes that durable."""
    if files.is_file(f"{path}/{BACKUP_NAME}"):
        files.remove(f"{path}/{BACKUP_NAME}")


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


def unknown_partitions(files: Files, path: str, known: Container[str]) -> dict[str, set[int]]:
    """Topics that are not ``known``, as the partition directories say: the numbers of those that are there.
    Only directories with a partition's files count, since ``backup-2024`` is named like one too. A cluster's
    metadata log is no topic: its controllers alone write and cut it, and a broker does not load it as one
    either."""
    found: dict[str, set[int]] = {}
    for name, parsed in list_partitions(files, path):
        topic, number, kind = parsed
        if name == CLUSTER_METADATA_NAME:
            continue
        if topic in known or kind is not DirectoryKind.LIVE or not holds_partition(files, f"{path}/{name}"):
            continue
        if number >= MAX_PARTITIONS:
            warn("ignoring %s/%s: its number is above the limit of %d", path, name, MAX_PARTITIONS)
            continue
        found.setdefault(topic, set()).add(number)
    return found


def holds_partition(files: Files, directory: str) -> bool:
    return any(
        entry.name == METADATA_NAME or parse_segment_file_name(entry.name) is not None
        for entry in files.list_directory(directory)
        if not entry.is_directory
    )


def stored_topic_id(files: Files, path: str, topic: str, numbers: Iterable[int]) -> uuid.UUID | None:
    """The topic's id as most of its partition directories have it, and of those the first; None where none
    can be read."""
    found: Counter[uuid.UUID] = Counter()
    for number in sorted(numbers):
        try:
            topic_id = read_topic_id(files, f"{path}/{partition_directory_name(topic, number)}")
        except LogstoreError as error:
            warn("ignoring a damaged topic id: %s", error)
            continue
        if topic_id is not None:
            found[topic_id] += 1
    return max(found, key=lambda topic_id: found[topic_id], default=None)


def foreign_topic_id(files: Files, directory: str, topic_id: uuid.UUID) -> uuid.UUID | None:
    """The id of the topic that a partition's directory belongs to, if that is another one. Without
    ``partition.metadata``, which a broker before 2.8 does not write, nobody can tell: None."""
    found = read_topic_id(files, directory)
    return found if found is not None and found != topic_id else None


def check_topic_id(files: Files, directory: str, topic: str, topic_id: uuid.UUID) -> None:
    """As a broker does, which takes no partition of another topic for its own.

    Raises:
        CorruptionError: the directory belongs to a topic of another id.
    """
    try:
        foreign = foreign_topic_id(files, directory, topic_id)
    except CorruptionError as error:  # the records are whose they were
        warn("ignoring a damaged topic id: %s", error)
        return
    if foreign is not None:
        raise CorruptionError(wrong_topic_id(foreign, topic, topic_id), path=f"{directory}/{METADATA_NAME}")


def wrong_topic_id(foreign: uuid.UUID, topic: str, topic_id: uuid.UUID) -> str:
    return (
        f"the partition is of topic {foreign}; {topic!r} is {topic_id}. Put the topic's own directory back; "
        f"or to make these records part of {topic!r}, remove {METADATA_NAME} there, and reopen the partition"
    )


def guessed_topic_id(topic: str) -> uuid.UUID:
    """What a reader takes for the id of a topic whose directories have none, as a broker before 2.8 leaves
    them: the same in every process. The first open for writing gives it a true one."""
    return uuid.uuid5(_GUESSES, topic)


def missing_directory(files: Files, path: str, partition: TopicPartition) -> CorruptionError:
    """What is wrong where a partition's directory is not there, and what to do: a broker may have renamed
    it."""
    name = partition_directory_name(*partition)
    reason = _MISSING_DIRECTORY.format(number=partition.partition)
    for stray in stray_names(files, path, partition):
        if files.is_file(f"{path}/{stray}/{HANDOVER_MARK_NAME}"):
            reason = _HANDED_IN_PART
            break
        reason = _SET_ASIDE.format(stray=stray, name=name)
    return CorruptionError(reason, path=f"{path}/{name}")


def stray_names(files: Files, path: str, partition: TopicPartition) -> list[str]:
    """The directories that are named as a broker names those of the partition that it sets aside."""
    tail = f"-{partition.partition}."
    begin = stray_directory_name(*partition, uuid.UUID(int=0).hex).rpartition(tail)[0] + tail
    return sorted(
        name
        for name, parsed in list_partitions(files, path)
        if parsed.kind is DirectoryKind.STRAY and name.startswith(begin)
    )


def is_brokers_directory(files: Files, path: str) -> bool:
    """Whether a Kafka broker has made the directory: it keeps its metadata log there, or it has written
    ``meta.properties``. That file begins with a comment then, with the date; logstore writes none."""
    if files.is_directory(f"{path}/{CLUSTER_METADATA_NAME}"):
        return True
    data = read_small_file(files, f"{path}/{META_PROPERTIES_NAME}", MAX_META_BYTES)
    return data is not None and data.startswith(b"#")


def read_identity(files: Files, path: str) -> MetaProperties | None:
    """``meta.properties``, or None if there is none.

    Raises:
        CorruptionError: the file is damaged.
    """
    meta_path = f"{path}/{META_PROPERTIES_NAME}"
    data = read_small_file(files, meta_path, MAX_META_BYTES)
    if data is None:
        return None
    try:
        found = decode_meta_properties(data)
        if found.node_id is None:  # every broker and every store has written its own
            raise CorruptionError("meta.properties has no node id")
        return found
    except CorruptionError as error:
        raise CorruptionError(f"{error.reason}. {_MEND_IDENTITY}").located(meta_path) from None


def ensure_identity(files: Files, path: str) -> MetaProperties:
    """Read ``meta.properties``, or give a new store an identity.

    Raises:
        CorruptionError: the file is damaged.
    """
    found = read_identity(files, path)
    if found is not None:
        return found
    identity = MetaProperties(
        version=1,
        cluster_id=encode_base64_uuid(uuid.uuid4()),
        node_id=0,
        directory_id=uuid.uuid4(),
    )
    write_small_file(files, f"{path}/{META_PROPERTIES_NAME}", encode_meta_properties(identity))
    return identity
