"""Of which partitions a file could not be flushed.

After a flush that failed the system takes the pages for clean: they can be read, a later flush succeeds, and
they are not on the disk. A recovery that reads them must write them to a new file before it flushes and calls
them durable (:meth:`.ActiveSegment.rewrite`). So that it knows, also in another process, the partition's
directory then has an empty file :data:`FAILED_FLUSH_NAME`. It need not be durable: a power cut that takes it
takes the pages too. A disk that refuses even that is asked again at each use of the log, and until then this
process remembers.
"""

from __future__ import annotations

import contextlib
from weakref import WeakKeyDictionary

from logstore.errors import StorageError
from logstore.files import Files, OsFiles

FAILED_FLUSH_NAME = ".failed-flush"

_untold: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""The directories in which the file is missing, by file system: all of the machine's is one."""


def _untold_of(files: Files) -> set[str]:
    return _untold.setdefault(OsFiles if isinstance(files, OsFiles) else files, set())


def note_failed_flush(files: Files, directory: str) -> None:
    """A flush has failed in this directory."""
    _untold_of(files).add(directory)
    tell_failed_flush(files, directory)


def tell_failed_flush(files: Files, directory: str) -> None:
    """Put the file there if it must be and is not."""
    untold = _untold_of(files)
    if directory in untold:
        with contextlib.suppress(StorageError):
            files.open(f"{directory}/{FAILED_FLUSH_NAME}", create=True).close()
            untold.discard(directory)


def has_failed_flush(files: Files, directory: str) -> bool:
    return directory in _untold_of(files) or files.is_file(f"{directory}/{FAILED_FLUSH_NAME}")


def forget_failed_flush(files: Files, directory: str) -> None:
    """Everything was written anew and flushed."""
    _untold_of(files).discard(directory)
    path = f"{directory}/{FAILED_FLUSH_NAME}"
    if files.is_file(path):
        files.remove(path)
