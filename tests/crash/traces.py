"""The main actions, and the exact file operations that each does.

``python -m tests.crash.traces`` writes the files of ``tests/crash/golden`` again. Review the difference: a
missing flush is a missing line.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

from logstore import NewRecord, ProducerIdentity
from logstore.testing import MemoryFiles, trace_lines
from tests.crash.compacted import open_compacted
from tests.crash.partition import open_partition
from tests.crash.store import open_store

GOLDEN = Path(__file__).parent / "golden"
_FLUSHED = [NewRecord(b"value", timestamp_ms=1_700_000_000_000)]


def _of(
    open_it: Callable[[MemoryFiles], object],
    path: str,
    action: Callable[..., object],
    *before: Callable[..., object],
) -> list[str]:
    """The operations of an action on something that was opened, after the actions ``before``."""
    files = MemoryFiles()
    opened = open_it(files)
    for prepare in before:
        prepare(opened)
    files.trace.clear()
    action(opened)
    return trace_lines(files.trace, path)


_of_partition = partial(_of, open_partition, "/t-0")
_of_store = partial(_of, open_store, "/store")


def _append(log) -> None:
    log.extend(_FLUSHED)


def _append_and_flush(log) -> None:
    log.extend(_FLUSHED, flush=True)


def _roll(log) -> None:
    log.roll()


def _flush(log) -> None:
    log.flush()


def _create(store) -> None:
    store.create_topic("a", partitions=2)


def _create_in_part(store) -> None:
    store.create_topic("a", partitions=3, held=[0, 2])


def _write(store) -> None:
    for log in store["a"]:
        log.extend(_FLUSHED)


def _open_partition() -> list[str]:
    files = MemoryFiles()
    open_partition(files)
    return trace_lines(files.trace, "/t-0")


def _recovery(cut_bytes: int) -> list[str]:
    """After a crash that left a torn batch."""
    files = MemoryFiles()
    log = open_partition(files)
    _append_and_flush(log)
    _append(log)
    image = files.now()
    (path,) = (path for path in image.paths() if path.endswith(".log"))
    inode = image.directories[image.directories[0]["t-0"]][path.rpartition("/")[2]]
    image.files[inode] = image.files[inode][:-cut_bytes]
    files = MemoryFiles(image)
    open_partition(files)
    return trace_lines(files.trace, "/t-0")


def _compaction() -> list[str]:
    """Two segments become one, with an aborted transaction between them."""
    files = MemoryFiles()
    log = open_compacted(files)
    for number in range(2):
        log.extend([NewRecord(b"%d" % number, b"key", timestamp_ms=1_700_000_000_000)])
        producer = ProducerIdentity(7, 0, number, transactional=True)
        log.extend([NewRecord(b"aborted", b"key", timestamp_ms=1_700_000_000_000)], producer=producer)
        log.append_end_marker(7, 0, committed=False)
        log.roll()
    log.checkpoint()
    files.trace.clear()
    log.compact()
    return trace_lines(files.trace, "/t-0")


ACTIONS: dict[str, Callable[[], list[str]]] = {
    "open_new": _open_partition,
    "append": lambda: _of_partition(_append),
    "append_and_flush": lambda: _of_partition(_append_and_flush),
    "flush": lambda: _of_partition(_flush, _append),
    "flush_of_what_is_durable": lambda: _of_partition(_flush, _append_and_flush),
    "roll": lambda: _of_partition(_roll, _append),
    "append_and_flush_after_roll": lambda: _of_partition(_append_and_flush, _append, _roll),
    "checkpoint": lambda: _of_partition(lambda log: log.checkpoint(), _append),
    "close": lambda: _of_partition(lambda log: log.close(), _append),
    "delete_before": lambda: _of_partition(lambda log: log.delete_before(1), _append, _append_and_flush),
    "delete_segment": lambda: _of_partition(
        lambda log: log.delete_before(1), _append_and_flush, _roll, _append_and_flush
    ),
    "truncate": lambda: _of_partition(lambda log: log.truncate_to(1), _append, _append_and_flush),
    "truncate_across_segments": lambda: _of_partition(
        lambda log: log.truncate_to(1), _append, _append_and_flush, _roll, _append_and_flush
    ),
    "erase": lambda: _of_partition(lambda log: log.erase(offsets=[0]), _append, _append_and_flush),
    "erase_sealed": lambda: _of_partition(
        lambda log: log.erase(offsets=[0]), _append, _roll, _append_and_flush, lambda log: log.checkpoint()
    ),
    "erase_what_is_not_there": lambda: _of_partition(lambda log: log.erase(offsets=[7]), _append_and_flush),
    "new_leader_epoch": lambda: _of_partition(lambda log: log.assign_leader_epoch(1), _append),
    "compact": lambda: _compaction(),
    "recovery": lambda: _recovery(3),
    "store_create_topic": lambda: _of_store(_create),
    "store_add_partitions": lambda: _of_store(lambda store: store["a"].add_partitions(3), _create),
    "store_hold": lambda: _of_store(lambda store: store["a"].hold([1]), _create_in_part),
    "store_let_go": lambda: _of_store(
        lambda store: store["a"].let_go(0), _create_in_part, _write, lambda store: store.checkpoint()
    ),
    "store_delete_topic": lambda: _of_store(
        lambda store: store.delete_topic("a"), _create, _write, lambda store: store.checkpoint()
    ),
    "store_checkpoint": lambda: _of_store(lambda store: store.checkpoint(), _create, _write),
    "store_close": lambda: _of_store(lambda store: store.close(), _create, _write),
}


def trace(name: str) -> str:
    """The lines of an action; random ids are the same each time."""
    rng = random.Random(0)

    def draw() -> uuid.UUID:
        return uuid.UUID(int=rng.getrandbits(128), version=4)

    with mock.patch("uuid.uuid4", draw):
        return "\n".join(ACTIONS[name]()) + "\n"


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for stale in GOLDEN.glob("*.txt"):
        stale.unlink()
    for name in ACTIONS:
        (GOLDEN / f"{name}.txt").write_text(trace(name))
