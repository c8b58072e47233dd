"""How much of a file the system has in memory, without changing it by asking.

A read with ``RWF_NOWAIT`` would change it: if the data is not in memory, the system begins to read it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

import pytest

needs_mincore = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what it has in memory")


def cached_pages(path: str | os.PathLike[str]) -> list[bool]:
    """For each page of a file that is not empty, whether it is in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        states = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
        first = ctypes.c_char.from_buffer(mapped)
        try:
            address = ctypes.c_void_p(ctypes.addressof(first))
            if libc.mincore(address, ctypes.c_size_t(len(mapped)), states):
                raise OSError(ctypes.get_errno(), "mincore", str(path))
        finally:
            del first
        return [bool(state & 1) for state in states]


def forget(path: str | os.PathLike[str]) -> None:
    """Remove a file from the system's memory. Skips the test if the file system keeps it
    there, as one in memory does: mark the test ``disk``."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    if any(cached_pages(path)):
        pytest.skip("this file system keeps files in memory")
