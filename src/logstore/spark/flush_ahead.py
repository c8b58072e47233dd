"""Flushing beside the writing: megabytes go to the disk while more are written, not all at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

AHEAD_BYTES: Final = 16 * 1024 * 1024
"""A flush begins for so much; a write of less has no thread. A job of 150 MB takes an eighth less."""


class FlushAhead:
    """Calls ``flush`` in a thread, one at a time, while its owner goes on writing; and once more at the end.

    The block of a ``with`` ends by :meth:`finish`, or by :meth:`stop` where it raises.
    """

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._waiting_bytes = 0
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> FlushAhead:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
        else:
            self.stop()

    def note(self, size_bytes: int) -> None:
        """So much was written.

        Raises:
            StorageError: an earlier flush failed.
        """
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= AHEAD_BYTES and (self._thread is None or not self._thread.is_alive()):
            self._check()
            self._waiting_bytes = 0
            self._thread = threading.Thread(target=self._run, name="logstore-flush-ahead")
            self._thread.start()

    def stop(self) -> None:
        """Until none is under way."""
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Flush what is left.

        Raises:
            StorageError: this flush failed, or an earlier one.
        """
        self.stop()
        self._check()
        self._flush()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._flush()
        except BaseException as error:  # the owner is told, wherever it is then
            self._error = error
