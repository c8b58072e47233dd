"""The entries of an index file, read page by page as needed.

A sealed segment's index may have some megabytes, and a lookup needs a few bytes of it; there may be a
terabyte of segments. Mapping the file into memory is no good here: touching a page that the disk cannot read,
or that was cut off the file, kills the process. A failing read just raises an error.

This module knows the size of entries and their first field, by which they rise, but nothing else about them.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import deque
from typing import Any

from logstore.errors import storage_error
from logstore.files import File
from logstore.format.layout import Layout

PAGE_ENTRIES = 512
_BEHIND = 2
"""A page is read with this many entries of the next one: a lookup also needs the entries behind its own."""
_MOST_PAGES = 4096  # 16 MiB of offset index, 24 MiB of time index


class IndexPages:
    """The pages in memory of all indexes of a store; the pages read first are dropped first. Needs no lock:
    each step is one call, and a page too many or too few does no harm."""

    def __init__(self, limit_count: int = _MOST_PAGES) -> None:
        self._limit_count = limit_count
        self._order: deque[tuple[dict[int, bytes], int]] = deque()

    def add(self, pages: dict[int, bytes], number: int, page: bytes) -> None:
        """Keep a page. ``pages`` are the pages of its index."""
        pages[number] = page
        self._order.append((pages, number))
        while len(self._order) > self._limit_count:
            oldest, oldest_number = self._order.popleft()
            oldest.pop(oldest_number, None)


class StoredEntries:
    """The entries of a file that does not change.

    Every method that reads raises :class:`StorageError` if the file cannot be read or has become shorter.
    """

    __slots__ = ("_cache", "_file", "_firsts", "_layout", "_pages", "_unknown", "size_bytes")

    def __init__(self, file: File, layout: Layout, cache: IndexPages) -> None:
        self.size_bytes = file.size_bytes()
        self._file = file
        self._layout = layout
        self._cache = cache
        self._pages: dict[int, bytes] = {}
        page_bytes = PAGE_ENTRIES * layout.size_bytes
        self._firsts = [0] * -(-self.size_bytes // page_bytes)
        """The first field of each page; 0 for the pages in ``_unknown``."""
        self._unknown = set(range(len(self._firsts)))
        """The pages that were not read yet."""

    def __len__(self) -> int:
        return self.size_bytes

    def near(self, key: int) -> bytes:
        """A page of entries in which a search for the last one at or below ``key`` finds the same as in all
        entries, with a few entries behind it. Cost if the page is in memory: 0.2 µs."""
        number = self._page_of(key) if self._unknown else max(bisect_right(self._firsts, key) - 1, 0)
        page = self._pages.get(number)
        return self._read(number) if page is None else page

    def _page_of(self, key: int) -> int:
        """The last page that begins at or below ``key``; the first page if none does."""
        low, high = 0, len(self._firsts)
        while high - low > 1:
            middle = (low + high) >> 1
            if middle in self._unknown:
                self._read(middle)
            if self._firsts[middle] <= key:
                low = middle
            else:
                high = middle
        return low

    def entry(self, number: int) -> tuple[Any, ...]:
        """The fields of one entry."""
        page_number, at = divmod(number, PAGE_ENTRIES)
        page = self._pages.get(page_number)
        if page is None:
            page = self._read(page_number)
        return self._layout.unpack_from(page, at * self._layout.size_bytes)

    def read_all(self) -> bytes:
        """All entries. This object keeps none of them in memory."""
        return self._read_at(0, self.size_bytes)

    def _read(self, number: int) -> bytes:
        if number >= len(self._firsts):
            return b""
        entry_bytes = self._layout.size_bytes
        position = number * PAGE_ENTRIES * entry_bytes
        wanted = min((PAGE_ENTRIES + _BEHIND) * entry_bytes, self.size_bytes - position)
        page = self._read_at(position, wanted)
        self._firsts[number] = int(self._layout.unpack_from(page, 0)[0])
        self._unknown.discard(number)
        self._cache.add(self._pages, number, page)
        return page

    def _read_at(self, position: int, size_bytes: int) -> bytes:
        data = self._file.read_at(position, size_bytes)
        if len(data) < size_bytes:
            raise storage_error(OSError(errno.EIO, "the file was cut short"), self._file.path, "reading")
        return data
