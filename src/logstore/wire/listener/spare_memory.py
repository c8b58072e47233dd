"""Gives memory that was freed back to the system.

glibc keeps what is freed for later allocations, in a pool for every few threads, and blocks of a megabyte,
such as the answers of fetches, leave gaps there. After ten minutes of 200 clients that take no answers, a
process kept 330 MiB, and still grew. ``malloc_trim`` returns whole free pages: then it keeps half of that.
What is left are the ends of the pools, some megabytes each: only the main one's is returned. With that pool
alone, in place of eight for each core, such a process takes two thirds as much during the crowd, and 32 MiB
afterwards. It is no slower: Python's threads allocate one at a time.

In between, glibc gives back too much. It returns the end of a pool as soon as two large blocks are free
there, and the next request has the system make these pages again, one by one: a fifth of the processor time
of nodes that replicate. So a process that serves keeps the end, until it is time to look.

Elsewhere than with glibc on Linux nothing is done.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

_LOOK_SECONDS: Final = 5.0
_LONGEST_SECONDS: Final = 20.0
_PRIVATE: Final = b"RssAnon:"
_LEAST_BYTES: Final = 16 * 1024 * 1024
"""With less than so much more than at the start there is nothing to gain."""
_WORTHWHILE_BYTES: Final = 8 * 1024 * 1024
"""If less was given back, the next try is later: what the process holds is in use."""
_M_KEPT_END, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_POOLS: Final = 1
_KEPT_BYTES: Final = 64 * 1024 * 1024
"""At the end of the pool."""
_LARGEST_BYTES: Final = 32 * 1024 * 1024
"""Of a block that comes from the pool; glibc allows no more."""
_SAYS_ALL: Final = b"GLIBC_TUNABLES"
_MOST_TIME: Final = 0.005
"""The part of a core that tries may take; each takes 2 to 15 ms, and threads that allocate may wait for
it."""


class SpareMemory:
    """That of this process. Cost of a look: 50 µs."""

    def __init__(self) -> None:
        self._wait_seconds = _LOOK_SECONDS
        self._look_at = time.monotonic() + _LOOK_SECONDS
        self._least_bytes = private_bytes()
        self._return_pages: Callable[[int], int] | None = None

    def sweep(self, now: float) -> None:
        """Give memory back, if it is time to look and there may be some."""
        if now < self._look_at:
            return
        self._wait_seconds = min(2 * self._wait_seconds, _LONGEST_SECONDS)
        began = time.thread_time()  # waiting for a busy processor costs nothing
        if self.give_back() >= _WORTHWHILE_BYTES:
            self._wait_seconds = _LOOK_SECONDS
        took = time.thread_time() - began
        self._look_at = now + max(self._wait_seconds, took / _MOST_TIME)

    def give_back(self) -> int:
        """Give memory back, if there may be some. Returns how many bytes."""
        size_bytes = private_bytes()
        self._least_bytes = min(self._least_bytes, size_bytes)
        if size_bytes - self._least_bytes < _LEAST_BYTES:
            self._wait_seconds = _LOOK_SECONDS
            return 0
        self._return_pages = self._return_pages or _find_return()
        self._return_pages(0)
        return size_bytes - private_bytes()


def share_pools() -> None:
    """Let the threads of this process share one memory pool, which keeps what is freed for the next answers,
    unless its user has said otherwise. For a process that is ours, before it has threads."""
    mallopt, said = _find("mallopt"), _find("getenv")
    if mallopt is None or said is None or said(_SAYS_ALL):
        return
    if not said(b"MALLOC_ARENA_MAX"):
        mallopt(_M_ARENA_MAX, _POOLS)
    if not said(b"MALLOC_TRIM_THRESHOLD_") and not said(b"MALLOC_MMAP_THRESHOLD_"):
        mallopt(_M_KEPT_END, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_BYTES)


def private_bytes() -> int:
    """The memory that the process has for itself, without that of files; 0 if it cannot be known."""
    if sys.platform != "linux":
        return 0
    try:
        with open("/proc/self/status", "rb") as file:
            lines = [line for line in file if line.startswith(_PRIVATE)]
    except OSError:  # no descriptor is left, say
        return 0
    return int(lines[0].split()[1]) * 1024 if lines else 0


def _find_return() -> Callable[[int], int]:
    return _find("malloc_trim") or (lambda _: 0)


def _find(name: str) -> Callable[..., int] | None:
    """The function of the C library; None if it has none of this name."""
    try:
        import ctypes  # 4 ms, and few programs get here

        found: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (ImportError, OSError, AttributeError):
        return None
    return found
