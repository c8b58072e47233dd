"""Two power cuts around one block: see `tests/issues/test_stale_end_of_last_block.py`.

    unshare -m python -m tests.kernel.stale_block ext4

Prints the values that are left of three records, the first of which was flushed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile

from logstore.partition.log import Log
from logstore.testing import ManualClock
from tests.kernel.disks import LoopDisk
from tests.kernel.victim import ask

_WRITE_PAGES = 7  # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER


def write_pages(path: str) -> None:
    """Put the file's pages on disk, and not its size."""
    descriptor = os.open(path, os.O_RDWR)
    zero = ctypes.c_int64(0)
    assert ctypes.CDLL(None).sync_file_range(descriptor, zero, zero, _WRITE_PAGES) == 0
    os.close(descriptor)


def write_journal(directory: str) -> None:
    """Put the sizes of files on disk, and not their pages: the journal goes with any fsync."""
    descriptor = os.open(f"{directory}/other", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(descriptor, b"x")
    os.fsync(descriptor)


def values_after(disk: LoopDisk) -> list[str]:
    path = f"{disk.path}/t-0"

    def open_log() -> Log:
        return Log.open(path, clock=ManualClock())

    def append(value: bytes, *, flush: bool = False) -> None:
        open_log().extend([value], flush=flush)

    def lose(value: bytes) -> None:
        append(value)
        write_pages(f"{path}/{0:020}.log")

    def lose_again(value: bytes) -> None:
        append(value)
        write_journal(disk.path)

    ask(lambda: append(b"kept", flush=True))
    os.sync()
    for step in (lambda: lose(b"lost 1"), lambda: lose_again(b"lost 2")):
        ask(step)
        disk.shut_down()
        disk.power_up()
    return list(ask(lambda: [bytes(record.value or b"").decode() for record in open_log().read()]))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        disk = LoopDisk(directory, sys.argv[1])
        print(json.dumps({"values": values_after(disk)}))
        disk.close()


if __name__ == "__main__":
    main()
