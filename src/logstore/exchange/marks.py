"""What a handover leaves in the target while it is under way, and how the next call finds it.

For the partition ``orders-0``, step by step:

1. *stage*: a directory ``orders-0.<unique>-stray`` beside it is filled with a copy, and finished there. From
   the beginning it has the mark ``handover.json`` in it. Nobody removes directories of such names, nor takes
   them for a partition.
2. *offsets*: the log start and the cleaner offset of the copy are stored in the target's checkpoints.
3. *set aside*: ``orders-0``, which is empty, gets a name of the same kind. The mark says which.
4. *place*: the copy becomes ``orders-0``, with the mark in it.
5. *end*: recovery point and high watermark are stored; the empty directory and the mark are removed.

What a crash leaves behind each, and what becomes of it: after 1 and 2 an empty partition, with a directory
beside it; after 3 no partition (a broker makes an empty one, a store says that it is missing); after 4 the
whole log, of which the next open reads more than it need. The next call goes on from each of them: it takes
back 3, removes what was staged, and knows by the mark what was placed.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass

from logstore.errors import CorruptionError
from logstore.files import Files, read_small_file, remove_tree, write_small_file
from logstore.format.names import HANDOVER_MARK_NAME, partition_directory_name, stray_directory_name
from logstore.logdir.identity import stray_names
from logstore.model import TopicPartition

_MAX_MARK_BYTES = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Which log a directory is a copy of."""

    topic_id: str
    """Of the source, as text."""
    source_end_offset: int
    log_end_offset: int
    """Of the copy, which may end with markers more; -1 while it is made."""
    set_aside: str
    """The name of the empty directory whose place it takes."""


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
        raise CorruptionError(f"is no mark of a handover: {error!r}", path=path) from None


def write_mark(files: Files, directory: str, mark: Mark) -> None:
    import json

    data = json.dumps(asdict(mark)).encode() + b"\n"
    write_small_file(files, f"{directory}/{HANDOVER_MARK_NAME}", data)


def new_stray_name(partition: TopicPartition) -> str:
    """A name for steps 1 and 3 that nothing has yet."""
    return stray_directory_name(*partition, uuid.uuid4().hex)


def staged_marks(files: Files, path: str, partition: TopicPartition) -> dict[str, Mark | None]:
    """The copies that calls have left which did not come to step 4: directory name -> mark. None where the
    crash came before the mark had its name: nothing else is in there yet."""
    found: dict[str, Mark | None] = {}
    for name in stray_names(files, path, partition):
        mark = read_mark(files, f"{path}/{name}")
        entries = files.list_directory(f"{path}/{name}")
        if mark is not None or all(each.name == f"{HANDOVER_MARK_NAME}.tmp" for each in entries):
            found[name] = mark
    return found


def take_back(files: Files, path: str, partition: TopicPartition) -> None:
    """Take back step 3 where nothing has come after it, and remove what earlier calls have staged."""
    directory = f"{path}/{partition_directory_name(*partition)}"
    staged = staged_marks(files, path, partition)
    for mark in staged.values():
        aside = f"{path}/{mark.set_aside}" if mark is not None else ""
        if aside and files.is_directory(aside):
            if files.is_directory(directory):  # somebody has made an empty one meanwhile
                remove_tree(files, aside)
            else:
                files.rename(aside, directory)
    if staged:
        files.flush_directory(path)
    for name in staged:
        remove_staged(files, f"{path}/{name}")


def remove_staged(files: Files, directory: str) -> None:
    """Remove a copy; the mark goes last, so that a crash in between leaves one that is still known."""
    for entry in files.list_directory(directory):
        if entry.name != HANDOVER_MARK_NAME:
            files.remove(f"{directory}/{entry.name}")
    files.flush_directory(directory)
    remove_tree(files, directory)
