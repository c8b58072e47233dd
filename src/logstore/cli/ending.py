"""The end of a command that runs until it is told to end."""

from __future__ import annotations

import signal
from contextlib import suppress
from queue import Empty, SimpleQueue


class Ending:
    """Whether a command was told to end.

    A signal handler runs in the thread that waits, also while that is about to wait. If it set an ``Event``,
    it would wait for a lock that its own thread has, for ever. A ``SimpleQueue`` can be put into at any time.
    """

    def __init__(self) -> None:
        self.is_told = False
        self._told: SimpleQueue[None] = SimpleQueue()

    def tell(self) -> None:
        """From any thread, and from a signal handler."""
        self.is_told = True
        self._told.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it was told so by now, or is within so many seconds. For one thread."""
        if not self.is_told:
            with suppress(Empty):
                self._told.get(timeout=timeout)
        return self.is_told


def until_told() -> Ending:
    """Is told by Ctrl-C, by SIGTERM, and by SIGHUP, unless that is ignored, as under ``nohup``: a clean end
    in all cases."""
    ending = Ending()

    def end(*_: object) -> None:
        ending.tell()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)
    return ending
