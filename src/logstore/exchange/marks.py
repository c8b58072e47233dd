"""What a handover leaves in a target partition while it is under way, and how the next call finds it.

For the partition ``orders-0``, step by step:

1. *stage*: ``orders-0/handover/`` is filled with a copy, and finished there. Neither a broker nor a store
   looks into a directory inside a partition.
2. *offsets*: the log start and the cleaner offset of the copy are stored in the target's checkpoints.
3. *set aside*: ``orders-0``, which is empty, becomes ``orders-0.<unique>-stray``: nobody removes such a one.
4. *place*: ``orders-0.<unique>-stray/handover`` becomes ``orders-0``, with the mark ``handover.json`` in it.
5. *end*: recovery point and high watermark are stored, the empty directory and the mark are removed.

What a crash leaves behind each, and what becomes of it: after 1 and 2 an empty partition with a directory too
many; after 3 no partition (a broker or a store makes an empty one, or says that it is missing); after 4 the
whole log, of which a broker reads more than it need. The next call goes on from each of them: it undoes 3,
drops what was staged, and knows by the mark what was placed.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from logstore.errors import CorruptionError
from logstore.files import Files, read_small_file, remove_tree, write_small_file
from logstore.format.names import DirectoryKind, partition_directory_name, stray_directory_name
from logstore.logdir.identity import list_partitions
from logstore.model import TopicPartition

STAGING_NAME = "handover"
MARK_NAME = "handover.json"
_MAX_MARK_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Which log a placed partition is a copy of."""

    topic_id: str
    """Of the source, as text."""
    source_end_offset: int
    log_end_offset: int
    """Of the copy: markers may have been added."""
    set_aside: str
    """The name of the empty directory that it took the place of."""


def read_mark(files: Files, directory: str) -> Mark | None:
    """
    Raises:
        CorruptionError: the file is damaged.
    """
    import json  # as in the catalogue

    path = f"{directory}/{MARK_NAME}"
    data = read_small_file(files, path, _MAX_MARK_BYTES)
    if data is None:
        return None
    try:
        told = json.loads(data)
        return Mark(
            topic_id=str(told["topic_id"]),
            source_end_offset=int(told["source_end_offset"]),
            log_end_offset=int(told["log_end_offset"]),
            set_aside=str(told["set_aside"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptionError(f"is no mark of a handover: {error!r}", path=path) from None


def write_mark(files: Files, directory: str, mark: Mark) -> None:
    import json

    write_small_file(files, f"{directory}/{MARK_NAME}", json.dumps(asdict(mark)).encode() + b"\n")


def name_set_aside(partition: TopicPartition) -> str:
    """A name of step 3 that nothing has yet."""
    return stray_directory_name(*partition, uuid.uuid4().hex)


def set_aside_names(files: Files, path: str, partition: TopicPartition) -> list[str]:
    """The directories of step 3 of earlier calls: named like those that a broker sets aside, and with what
    was staged in them."""
    tail = f"-{partition.partition}."
    marked = stray_directory_name(*partition, uuid.UUID(int=0).hex).rpartition(tail)[0] + tail
    return [
        name
        for name, parsed in list_partitions(files, path)
        if parsed.kind is DirectoryKind.STRAY
        and name.startswith(marked)
        and files.is_directory(f"{path}/{name}/{STAGING_NAME}")
    ]


def undo_set_aside(files: Files, path: str, partition: TopicPartition) -> None:
    """Take back step 3 where nothing has come after it, and drop what earlier calls have staged."""
    directory = f"{path}/{partition_directory_name(*partition)}"
    for name in set_aside_names(files, path, partition):
        if files.is_directory(directory):  # somebody has made an empty one meanwhile
            remove_tree(files, f"{path}/{name}")
        else:
            files.rename(f"{path}/{name}", directory)
    files.flush_directory(path)
    if files.is_directory(f"{directory}/{STAGING_NAME}"):
        remove_tree(files, f"{directory}/{STAGING_NAME}")
