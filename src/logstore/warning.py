"""Writes to the program's log through the standard library's ``logging``: as warnings what was found wrong
and mended, replaced or left out; at the level INFO each deletion, one line per operation.

The logger is that of the calling module, below ``logstore``. No handler is installed: if the program sets
none up, Python shows only the warnings, on stderr.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from contextlib import suppress

_PAUSE_SECONDS = 60.0
_MANY = 100


def warn(message: str, *values: object) -> None:
    """Log a warning; ``values`` fill the message's places as in the standard library's ``logging``.

    The warning is lost if ``logging`` cannot be imported for lack of file descriptors, or if a handler of the
    program fails: the work, and an error that is being handled, matter more.
    """
    with suppress(Exception):
        import logging  # takes as long to import as all of the format layer, and few programs get here

        logging.getLogger(_caller()).warning(message, *values, stacklevel=2)


def is_due(told_at: dict[str, float], what: str) -> bool:
    """Whether to warn now of what comes again and again: once a minute.

    Args:
        told_at: when that was done last, by what it was. Noted here.
    """
    now = time.monotonic()
    if now - told_at.get(what, -_PAUSE_SECONDS) < _PAUSE_SECONDS:
        return False
    if len(told_at) >= _MANY:  # such as errors whose words are others each time
        for each, then in told_at.copy().items():
            if now - then >= _PAUSE_SECONDS:
                told_at.pop(each, None)
    told_at[what] = now
    return True


def inform(message: str, *values: object) -> None:
    """Log at the level INFO, like :func:`warn`. Costs nothing if the program has not imported ``logging``:
    then no handler takes that level."""
    logging = sys.modules.get("logging")
    if logging is not None:
        with suppress(Exception):
            logging.getLogger(_caller()).info(message, *values, stacklevel=2)


class Lines(deque[tuple[str, str, tuple[object, ...]]]):
    """Lines for :func:`inform` that wait until a lock is free: a handler of messages may append to the log
    that is being changed, in another thread, which waits for the log then, and this one for the handler.

    A change is ``with lines, lock: ... lines.inform(...)``. What waits are modules, messages and values.
    """

    __slots__ = ()

    def inform(self, message: str, *values: object) -> None:
        """Like the function, later."""
        if "logging" in sys.modules:
            self.append((_caller(), message, values))

    def tell(self) -> None:
        """Now. Called without a lock."""
        while self:
            with suppress(Exception):
                name, message, values = self.popleft()
                sys.modules["logging"].getLogger(name).info(message, *values, stacklevel=2)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.tell()


def _caller() -> str:
    """The module that calls the caller of this."""
    return str(sys._getframe(2).f_globals["__name__"])
