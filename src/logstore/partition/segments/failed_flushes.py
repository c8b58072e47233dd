"""Remembers the partitions with a file that could not be flushed, and tells that from an interrupt.

After a failed flush the system takes the pages for clean: they can be read, a later flush succeeds, but they
are not on the disk. A recovery that reads them must write them to a new file before it flushes and calls them
durable (:meth:`.ActiveSegment.rewrite`). To tell the recovery, even in another process, the partition's
directory gets an empty file :data:`FAILED_FLUSH_NAME`. It need not be durable: a power cut that takes it
takes the pages too. If the disk refuses even that file, each use of the log tries again, and until then this
process remembers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Container, Iterator
from weakref import WeakKeyDictionary

from logstore.errors import LogstoreError, NotOpenedError, StorageError
from logstore.files import Files, OsFiles

FAILED_FLUSH_NAME = ".failed-flush"

_untold: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
"""The directories in which the file is still missing, by file system. All OsFiles count as one."""


def _untold_of(files: Files) -> set[str]:
    return _untold.setdefault(OsFiles if isinstance(files, OsFiles) else files, set())


@contextlib.contextmanager
def opening_to_flush() -> Iterator[None]:
    """Turn a StorageError into NotOpenedError: no flush was tried, because the file could not be opened."""
    try:
        yield
    except StorageError as error:
        raise NotOpenedError(error.errno, error.strerror, error.filename) from error


def note_failed_flush(files: Files, directory: str) -> None:
    """Remember that a flush has failed in this directory."""
    _untold_of(files).add(directory)
    tell_failed_flush(files, directory)


def tell_failed_flush(files: Files, directory: str) -> None:
    """Create the file if it is needed and still missing."""
    untold = _untold_of(files)
    if directory in untold:
        with contextlib.suppress(StorageError):
            files.open(f"{directory}/{FAILED_FLUSH_NAME}", create=True).close()
            untold.discard(directory)


def has_failed_flush(files: Files, directory: str, names: Container[str]) -> bool:
    """``names`` are those of the files in the directory."""
    return FAILED_FLUSH_NAME in names or directory in _untold_of(files)


def forget_failed_flush(files: Files, directory: str) -> None:
    """Forget the failure: everything was rewritten and flushed."""
    _untold_of(files).discard(directory)
    path = f"{directory}/{FAILED_FLUSH_NAME}"
    if files.is_file(path):
        files.remove(path)


def is_interrupt(error: BaseException, handled: BaseException | None) -> bool:
    """Whether a signal handler has raised it, in a flush of which no part has failed: after a failure, of
    which it would be the context, the data may be gone, and another flush proves nothing.

    Args:
        handled: the exception that was being handled when the flush began, which says nothing of it.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    cause: BaseException | None = error
    while cause is not None and cause is not handled:
        if isinstance(cause, (OSError, LogstoreError)):
            return False
        cause = cause.__context__
    return True
