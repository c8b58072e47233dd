"""A file that only takes room. On a full disk it is given up for the small files of recovery, of a clean stop
and of deletions: without any room a store cannot be opened for writing again, not even to delete from it.

Knows nothing of logs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from logstore.errors import DiskFullError, StorageError
from logstore.files import Files
from logstore.warning import inform

RESERVE_NAME: Final = "disk-reserve"

_PIECE_BYTES: Final = 64 * 1024


class Reserve:
    """The reserve of one store. It is a help: if the disk fails with it, that is told, and no error."""

    def __init__(self, files: Files, directory: str, size_bytes: int) -> None:
        """``size_bytes``: what it is to have; 0 if there is to be none."""
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{RESERVE_NAME}"
        self._size_bytes = size_bytes
        self.may_exist = True
        """Whether there may be one, or is to be one. If not, there is nothing to give or to keep."""

    def give(self) -> None:
        """Give it up, if the disk has less room than it takes."""
        with self._told():
            size_bytes = self._present_bytes()
            if size_bytes and self._files.space(self._directory).usable_bytes < size_bytes:
                self.give_up()

    def give_up(self) -> bool:
        """Give it up, whatever room there is. Returns whether there was one."""
        with self._told():
            size_bytes = self._present_bytes()
            if size_bytes:
                self._files.remove(self._path)
                inform("%s: the disk is full; its reserve of %d bytes goes", self._directory, size_bytes)
                return True
        return False

    def keep(self) -> None:
        """Have it, as large as there is room for; or none, if there is to be none."""
        with self._told():
            size_bytes = self._present_bytes()
            if size_bytes is not None and not self._size_bytes:
                self._files.remove(self._path)
            elif (size_bytes or 0) < self._size_bytes:
                self._fill(size_bytes or 0)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            inform("%s: the reserve: %s", self._directory, error)

    def _present_bytes(self) -> int | None:
        if not self._files.is_file(self._path):
            return None
        return self._files.stamp(self._path).size_bytes

    def _fill(self, size_bytes: int) -> None:
        """Bytes that no file system makes smaller, up to the last one that has room."""
        import hashlib  # few stores get here

        piece = hashlib.shake_256(RESERVE_NAME.encode()).digest(_PIECE_BYTES)
        file = self._files.open(self._path, write=True, create=True)
        try:
            with contextlib.suppress(DiskFullError):
                for position in range(size_bytes, self._size_bytes, _PIECE_BYTES):
                    file.write_at(position, [piece[: self._size_bytes - position]])
            file.flush()
        finally:
            file.close()
