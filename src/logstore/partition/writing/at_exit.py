"""The end of a program that has not closed its logs: what still gathers is written on the way out.

The background thread would write it within the linger time, but it dies with the program. So a log that waits
for it is remembered here, and asked once more by Python's exit functions. No more than that is done: nothing
is flushed, and the next open finds what a killed process leaves. A process that ends without its exit
functions (a signal, ``os._exit``) loses what was gathering.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from logstore.errors import LogstoreError
from logstore.warning import warn


class GatheringLog(Protocol):
    """A log that has appends to write."""

    def _write_at_exit(self) -> None:
        """Write what gathers; nothing, if the log was closed or belongs to another process."""
        ...


_gathering: weakref.WeakSet[GatheringLog] = weakref.WeakSet()


def remember(log: GatheringLog) -> None:
    """Ask this log at the end of the program, unless it is forgotten before."""
    _gathering.add(log)


def forget(log: GatheringLog) -> None:
    """The log has written what it had."""
    _gathering.discard(log)


def _write_all() -> None:
    for log in list(_gathering):
        try:
            log._write_at_exit()
        except LogstoreError as error:
            warn("appends that were gathering are lost with the end of the program: %s", error)


atexit.register(_write_all)
