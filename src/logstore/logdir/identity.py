"""The identity of a directory: ``meta.properties``, and whether a path is a store at all."""

from __future__ import annotations

import errno
import uuid
from collections import Counter
from collections.abc import Container, Iterable

from logstore.errors import (
    CorruptionError,
    InvalidTopicError,
    LogstoreError,
    StorageError,
    UsageError,
    of_place,
)
from logstore.files import DirectoryEntry, Files, parent_of, read_small_file, write_small_file
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
    parse_segment_file_names,
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
"""A store with this file is a backup that was never opened for writing. The file says what it contains, and
of which store."""
UNFINISHED_BACKUP_NAME = "backup.unfinished"
"""A directory with this file is not a store: it is about to become a backup, or was one."""
_MISSING_DIRECTORY = (
    "the partition's directory is missing. Restore it from a copy; or make an empty one, and reopen the "
    "partition with accept_loss=True to begin an empty log; or, if another directory has the partition now, "
    "topic.let_go({number})"
)
_SET_ASIDE = (
    "the partition's directory is missing, but {stray} is beside it: a broker that did not know the topic "
    "has set its records aside under that name. Nothing is lost: while neither a broker nor a store has the "
    "directory open, rename it back to {name}. If a broker should serve the topic, hand it over with "
    "logstore.handover()"
)
_HANDED_IN_PART = (
    "the partition's directory is missing, because a handover to this directory was interrupted. Close the "
    "store, and call logstore.handover() again: it finishes what it began"
)
_UNFINISHED = (
    "{path} is an unfinished backup, of a call that was killed or is still running. The next store.backup() "
    "to the same path removes it"
)
_EXCHANGED_IN_PART = (
    "{path} does not exist, but {path}.previous does: store.backup() was killed between two renames. Call it "
    "again; or rename {path}.previous, which is the last backup but one, to {path}"
)
_MEND_IDENTITY = (
    "Restore the file; or move it away, and the next open for writing gives the store a new identity. "
    "Earlier backups are then another store's"
)
_GUESSES = uuid.UUID("7f1cf2f0-9a5d-4d0e-a5f4-5bd1be0e6c1f")  # arbitrary: the name space of guessed ids
_OF_NO_NODE = 0
"""The node id of a store that is alone."""
_STORE_FILES = {*STORE_NAMES, LOCK_NAME}


def prepare_directory(files: Files, path: str, *, create: bool) -> None:
    """Make sure that ``path`` is a store, or can become one.

    Raises:
        UsageError: it does not exist and ``create`` is false; it is a file, one partition's directory, or a
            directory of something else.
    """
    try:
        entries = files.list_directory(path)
    except StorageError:
        if files.is_file(path):
            raise of_place(UsageError(f"{path} is a file; a store is a directory")) from None
        if files.is_directory(path):
            raise
        if files.is_file(f"{path}.previous/{BACKUP_NAME}"):
            raise of_place(UsageError(_EXCHANGED_IN_PART.format(path=path))) from None
        if not create:
            raise of_place(
                UsageError(
                    f"{path} does not exist; logstore.open() creates it when opening for writing with "
                    "create=True"
                )
            ) from None
        make_durably(files, path)
        return
    names = {entry.name.removesuffix(".tmp") for entry in entries}  # a crash may leave only a .tmp file
    is_begun = path.endswith(".partial") and not create and names <= {LOCK_NAME}
    if UNFINISHED_BACKUP_NAME in names or is_begun:
        raise of_place(UsageError(_UNFINISHED.format(path=path)))
    if parse_segment_file_names(names):
        raise of_place(
            UsageError(f"{path} is the directory of one partition; open its parent, or use Log.open()")
        )
    if (
        names
        and not names & _STORE_FILES
        and not unknown_partitions(files, path, partitions_among(entries), ())
    ):
        raise of_place(
            UsageError(f"{path} holds other files and no topics; give a store a directory of its own")
        )


def make_durably(files: Files, path: str) -> None:
    """Create the directory and its parents durably: a power cut cannot remove them."""
    if not files.is_directory(path):
        make_durably(files, parent_of(path))
        files.make_directory(path)
        files.flush_directory(parent_of(path))


def end_being_backup(files: Files, path: str) -> None:
    """Turn a backup that is opened for writing into an ordinary store, durably."""
    files.remove(f"{path}/{BACKUP_NAME}")
    files.flush_directory(path)


def parse_name(name: str) -> DirectoryName | None:
    """Parse the name of a directory in a store; None if it is not a partition's."""
    try:
        return parse_directory_name(name)
    except InvalidTopicError:
        return None


def list_partitions(files: Files, path: str) -> list[tuple[str, DirectoryName]]:
    """(directory name, parsed) of every partition directory, in any state."""
    return partitions_among(files.list_directory(path))


def partitions_among(entries: Iterable[DirectoryEntry]) -> list[tuple[str, DirectoryName]]:
    """The same, in a list of the directory's contents."""
    found = []
    for entry in entries:
        parsed = parse_name(entry.name) if entry.is_directory else None
        if parsed is not None:
            found.append((entry.name, parsed))
    return found


def unknown_partitions(
    files: Files, path: str, listed: Iterable[tuple[str, DirectoryName]], known: Container[str]
) -> dict[str, set[int]]:
    """Topics that have partition directories but are not ``known``, with the numbers of those partitions.
    ``listed``: see :func:`list_partitions`.
    Only directories with a partition's files count, since ``backup-2024`` looks like one too. A cluster's
    metadata log is not a topic: only its controllers write and cut it, and a broker does not load it as one
    either."""
    found: dict[str, set[int]] = {}
    for name, parsed in listed:
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
    """Not one that is gone, as where a broker deletes a topic meanwhile."""
    try:
        names = [entry.name for entry in files.list_directory(directory) if not entry.is_directory]
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return METADATA_NAME in names or bool(parse_segment_file_names(names))


def stored_topic_id(files: Files, path: str, topic: str, numbers: Iterable[int]) -> uuid.UUID | None:
    """The topic id that most of the partition directories have; the first such id on a tie; None if none can
    be read."""
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
    """The id of the topic that a partition's directory belongs to, if that is another topic. Also None if
    there is no ``partition.metadata``, which brokers before 2.8 do not write: the topic is then not known."""
    found = read_topic_id(files, directory)
    return found if found is not None and found != topic_id else None


def check_topic_id(files: Files, directory: str, topic: str, topic_id: uuid.UUID) -> None:
    """Refuse a partition of another topic, as a broker does.

    Raises:
        CorruptionError: the directory belongs to a topic with another id.
    """
    try:
        foreign = foreign_topic_id(files, directory, topic_id)
    except CorruptionError as error:  # a damaged id says nothing about the records
        warn("ignoring a damaged topic id: %s", error)
        return
    if foreign is not None:
        raise CorruptionError(wrong_topic_id(foreign, topic, topic_id), path=f"{directory}/{METADATA_NAME}")


def wrong_topic_id(foreign: uuid.UUID, topic: str, topic_id: uuid.UUID) -> str:
    return (
        f"the partition belongs to topic id {foreign}; {topic!r} has {topic_id}. Put the topic's own "
        f"directory back; or to make these records part of {topic!r}, remove {METADATA_NAME} there, and "
        "reopen the partition"
    )


def guessed_topic_id(topic: str) -> uuid.UUID:
    """The id that readers assume for a topic whose directories have none, as brokers before 2.8 leave them.
    It is the same in every process. The first open for writing gives the topic a real id."""
    return uuid.uuid5(_GUESSES, topic)


def missing_directory(files: Files, path: str, partition: TopicPartition) -> CorruptionError:
    """The error for a missing partition directory, with what to do: a broker may have renamed it."""
    name = partition_directory_name(*partition)
    reason = _MISSING_DIRECTORY.format(number=partition.partition)
    for stray in strays_of(partition, list_strays(files, path)):
        if files.is_file(f"{path}/{stray}/{HANDOVER_MARK_NAME}"):
            reason = _HANDED_IN_PART
            break
        reason = _SET_ASIDE.format(stray=stray, name=name)
    return CorruptionError(reason, path=f"{path}/{name}")


def list_strays(files: Files, path: str) -> list[str]:
    """The directories that brokers and handovers have set aside, by their names, in order."""
    return sorted(
        entry.name
        for entry in files.list_directory(path)
        if entry.is_directory and entry.name.endswith(DirectoryKind.STRAY.value)
    )


def strays_of(partition: TopicPartition, strays: Iterable[str]) -> list[str]:
    """Those of a partition among ``strays``, which :func:`list_strays` returns. List them once for many
    partitions: the directory has an entry for each of these, too."""
    tail = f"-{partition.partition}."
    begin = stray_directory_name(*partition, uuid.UUID(int=0).hex).rpartition(tail)[0] + tail
    return [name for name in strays if name.startswith(begin) and parse_name(name) is not None]


def is_brokers_directory(files: Files, path: str, names: Container[str] | None = None) -> bool:
    """Whether the directory is a Kafka broker's: it has a metadata log, or a ``meta.properties`` that a
    broker wrote. A broker begins that file with a comment that has the date; logstore writes none. ``names``
    are those of what is in it, if the caller knows them."""
    if names is None:
        has_log = files.is_directory(f"{path}/{CLUSTER_METADATA_NAME}")
    else:
        has_log = CLUSTER_METADATA_NAME in names
    if has_log:
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


def join_cluster(files: Files, path: str, cluster_id: str, node_id: int, *, is_empty: bool) -> MetaProperties:
    """Make the directory one of a node of a cluster. One that holds no topics yet may be of any cluster.

    Raises:
        UsageError: it is of another node, or of another cluster.
        CorruptionError: the file is damaged.
    """
    found = ensure_identity(files, path)
    if found.cluster_id != cluster_id and not is_empty:
        raise UsageError(
            f"{path} belongs to cluster {found.cluster_id}, not to {cluster_id}; give the node its own "
            "directory, or its own cluster's coordinator"
        )
    if found.cluster_id == cluster_id and found.node_id not in (_OF_NO_NODE, node_id):
        raise UsageError(f"{path} is of node {found.node_id}, not of node {node_id}; start that one with it")
    directory_id = found.directory_id or uuid.uuid4()
    joined = found._replace(cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
    if joined != found:
        write_small_file(files, f"{path}/{META_PROPERTIES_NAME}", encode_meta_properties(joined))
    return joined


def leave_cluster(files: Files, path: str) -> MetaProperties:
    """Make the directory one of no cluster. It gets a new cluster id, so that the old cluster and it refuse
    each other.

    Raises:
        CorruptionError: the file is damaged.
    """
    left = ensure_identity(files, path)._replace(
        cluster_id=encode_base64_uuid(uuid.uuid4()), node_id=_OF_NO_NODE
    )
    write_small_file(files, f"{path}/{META_PROPERTIES_NAME}", encode_meta_properties(left))
    return left


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
        node_id=_OF_NO_NODE,
        directory_id=uuid.uuid4(),
    )
    write_small_file(files, f"{path}/{META_PROPERTIES_NAME}", encode_meta_properties(identity))
    return identity
