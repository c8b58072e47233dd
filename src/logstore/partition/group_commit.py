"""Group commit: one fsync serves everybody who waits for one.

The first thread that needs a flush performs it for all that was appended before it began. Threads that
arrive meanwhile line up; when it is done, those whose records it covered are let go, and the first of the
others flushes for all the rest. A thread is woken once, when it is served or when it is its turn: waking all
of them to look for themselves costs more than a fast disk's fsync. Knows offsets and a function that flushes;
nothing of files. What is durable it asks the log each time: a truncation may lower it at any moment.

Lock: ``_lock`` guards ``_waiting``, ``_is_flushing`` and the places in line; it is not held while flushing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Place:
    """One thread's place in line."""

    __slots__ = ("is_leader", "is_served", "offset", "signal")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.is_leader = False
        """It is this thread that flushes, and that must hand over when it is done."""
        self.is_served = False
        self.signal: threading.Lock | None = None
        """Held until the place is served or leads."""


class GroupCommit:
    """``flush()`` makes everything appended so far durable; ``durable_offset()`` says how far that is."""

    def __init__(self, flush: Callable[[], None], durable_offset: Callable[[], int]) -> None:
        self._flush = flush
        self._durable_offset = durable_offset
        self._lock = threading.Lock()
        self._waiting: list[_Place] = []
        self._is_flushing = False

    def wait_until_durable(self, offset: int) -> None:
        """Return when everything that was below ``offset`` at the time of the call is durable (or was cut off
        the log since), flushing if nobody else does.

        Raises what ``flush`` raises in this thread; a thread that waited for another's failed flush tries
        itself, and learns from its own call what is wrong.
        """
        if self._durable_offset() >= offset:
            return
        place = _Place(offset)
        try:
            signal = self._line_up(place)
            if signal is not None:
                signal.acquire()
            if place.is_leader and self._durable_offset() < offset:
                self._flush()
        finally:
            if not place.is_served:
                self._leave(place)

    def _line_up(self, place: _Place) -> threading.Lock | None:
        """Lead if nobody does; else the signal to wait for."""
        with self._lock:
            if not self._is_flushing:
                place.is_leader = True  # first: whoever is interrupted here hands over all the same
                self._is_flushing = True
                return None
            place.signal = signal = threading.Lock()
            signal.acquire()
            self._waiting.append(place)
            return signal

    def _leave(self, place: _Place) -> None:
        """After flushing, or out of turn because of an interrupt."""
        with self._lock:
            if place.is_leader:
                self._hand_over_locked()
            elif not place.is_served and place in self._waiting:
                self._waiting.remove(place)

    def _hand_over_locked(self) -> None:
        """Let the first go on who is not served yet, so that the disk is busy again, then those who are."""
        durable_offset = self._durable_offset()
        served = [place for place in self._waiting if place.offset <= durable_offset]
        self._waiting = [place for place in self._waiting if place.offset > durable_offset]
        if self._waiting:
            leader = self._waiting.pop(0)
            leader.is_leader = True
            self._wake(leader)
        else:
            self._is_flushing = False
        for place in served:
            place.is_served = True
            self._wake(place)

    def _wake(self, place: _Place) -> None:
        if place.signal is not None:
            place.signal.release()
