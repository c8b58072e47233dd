"""The files that a running handover leaves in the target, and how the next call finds them.

For the partition ``orders-0``, step by step:

1. *stage*: a directory ``orders-0.<unique>-stray`` beside it is filled with a copy, and finished there. From
   the beginning it has the mark ``handover.json``. Brokers and stores neither remove directories with such
   names nor take them for partitions.
2. *offsets*: the log start and the cleaner offset of the copy are stored in the target's checkpoints.
3. *set aside*: ``orders-0``, which is empty, gets a name of the same kind. The mark says which.
4. *place*: the copy becomes ``orders-0``, with the mark in it.
5. *end*: recovery point and high watermark are stored; the empty directory and the mark are removed.

A crash after 1 or 2 leaves an empty partition with a directory beside it. A crash after 3 leaves no
partition: a broker creates an empty one, a store reports it as missing. A crash after 4 leaves the whole log;
the next open reads more of it than necessary. The next call continues from each of these: it undoes 3,
removes what was staged, and recognises by the mark what was placed.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from logstore.errors import CorruptionError
from logstore.files import Files, read_small_file, write_small_file
from logstore.format.names import HANDOVER_MARK_NAME, partition_directory_name, stray_directory_name
from logstore.large_files import remove_tree
from logstore.logdir.identity import strays_of
from logstore.model import TopicPartition

_MAX_MARK_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Which log a directory is a copy of."""

    topic_id: str
    """The topic id of the source, as text."""
    source_end_offset: int
    log_end_offset: int
    """The log end offset of the copy, which may have more markers at its end; -1 while the copy is made."""
    set_aside: str
    """The new name of the empty directory that the copy replaces."""


def read_mark(files: Files, directory: str) -> Mark | None:
    """
    Raises:
        CorruptionError: the file is damaged.
    """
    import json  # as in the catalogue

    path = f"{directory}/{HANDOVER_MARK_NAME}"
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
        raise CorruptionError(f"is not the mark of a handover: {error!r}", path=path) from None


def write_mark(files: Files, directory: str, mark: Mark) -> None:
    import json

    data = json.dumps(asdict(mark)).encode() + b"\n"
    write_small_file(files, f"{directory}/{HANDOVER_MARK_NAME}", data)


def new_stray_name(partition: TopicPartition) -> str:
    """An unused name for steps 1 and 3."""
    return stray_directory_name(*partition, uuid.uuid4().hex)


def staged_marks(
    files: Files, path: str, partition: TopicPartition, strays: Iterable[str]
) -> dict[str, Mark | None]:
    """The copies left by calls that did not reach step 4: directory name -> mark. The mark is None if the
    crash came before it had its name: the directory has no other file then. ``strays``: see
    :func:`list_strays`."""
    found: dict[str, Mark | None] = {}
    for name in strays_of(partition, strays):
        mark = read_mark(files, f"{path}/{name}")
        entries = files.list_directory(f"{path}/{name}")
        if mark is not None or all(each.name == f"{HANDOVER_MARK_NAME}.tmp" for each in entries):
            found[name] = mark
    return found


def take_back(files: Files, path: str, partition: TopicPartition, strays: Iterable[str]) -> None:
    """Undo step 3 if step 4 did not follow, and remove what earlier calls have staged. ``strays``: see
    :func:`list_strays`."""
    directory = f"{path}/{partition_directory_name(*partition)}"
    staged = staged_marks(files, path, partition, strays)
    for mark in staged.values():
        aside = f"{path}/{mark.set_aside}" if mark is not None else ""
        if aside and files.is_directory(aside):
            if files.is_directory(directory):  # a broker has created an empty one meanwhile
                remove_tree(files, aside)
            else:
                files.rename(aside, directory)
    if staged:
        files.flush_directory(path)
    for name in staged:
        remove_staged(files, f"{path}/{name}")


def remove_staged(files: Files, directory: str) -> None:
    """Remove a copy. The mark is removed last, so that after a crash the next call still recognises it."""
    for entry in files.list_directory(directory):
        if entry.name != HANDOVER_MARK_NAME:
            files.remove(f"{directory}/{entry.name}")
    files.flush_directory(directory)
    remove_tree(files, directory)
