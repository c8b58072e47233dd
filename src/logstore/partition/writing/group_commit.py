"""Group commit: one fsync serves everybody who waits for one.

The first thread that needs a flush performs it for all that was appended before it began. Threads that
arrive meanwhile line up; when it is done, those whose records it covered are let go, and the first of the
others flushes for all the rest. A thread is woken once, when it is served or when it is its turn: waking all
of them to look for themselves costs more than a fast disk's fsync. Those who are served wake one another,
each the next: woken all at once they would queue for the interpreter, which takes a quarter longer.

Threads that flush again and again would fall into two halves that take turns, the one appending while the
other waits for the disk. So whoever is about to flush first waits for those who were let go a moment ago, as
long as some of them still come: 16 threads then share each fsync, not eight, and get half as much again done.
A thread that flushes alone waits for nobody.

Knows offsets and a function that flushes; nothing of files. What is durable it asks the log each time: a
truncation may lower it at any moment.

Lock: ``_lock`` guards ``_waiting``, ``_is_flushing``, the places in line and who is missing; it is not held
while flushing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter

_PATIENCE_SECONDS = 0.0001
"""Of a thread about to flush: it goes ahead when nobody has come for so long. A thread that was let go is
back within some ten microseconds, if it comes back at all."""


class _Place:
    """One thread's place in line."""

    __slots__ = ("is_leader", "is_served", "offset", "signal", "to_wake")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.is_leader = False
        """It is this thread that flushes, and that must hand over when it is done."""
        self.is_served = False
        self.signal = threading.Lock()
        """Held, once the place is in line, until it is served or leads."""
        self.to_wake: list[threading.Lock] = []
        """The signals of the places that are woken by this one's thread: of one that was served, the next."""


class GroupCommit:
    """``flush()`` makes everything appended so far durable; ``durable_offset()`` says how far that is."""

    def __init__(
        self,
        flush: Callable[[], None],
        durable_offset: Callable[[], int],
        *,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._flush = flush
        self._durable_offset = durable_offset
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._waiting: list[_Place] = []
        self._is_flushing = False
        self.flush_seconds = 0.0
        """What the last flush took."""
        self._present_count = 0
        """Who took part in it, and who came meanwhile."""
        self._missing_count = 0
        """How many of these the thread about to flush still waits for."""
        self._all_came: threading.Lock | None = None
        """Held until none is missing; None while nobody waits for them."""

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
            if not self._leads_or_lines_up(place):
                place.signal.acquire()
            if place.is_leader and self._durable_offset() < offset:
                self._wait_for_company()
                started = perf_counter()
                self._flush()
                self.flush_seconds = perf_counter() - started
        finally:
            try:
                self._leave(place)
            except BaseException:
                self._leave(place)  # interrupted: wake the others, or they would hang
                raise

    def _leads_or_lines_up(self, place: _Place) -> bool:
        """Lead if nobody does; else there is a signal to wait for."""
        with self._lock:
            if not self._is_flushing:
                place.is_leader = True  # first: whoever is interrupted here hands over all the same
                self._is_flushing = True
                return True
            place.signal.acquire()
            self._waiting.append(place)
            if self._all_came is not None:
                self._missing_count -= 1
                if self._missing_count == 0:
                    self._all_came.release()
            return False

    def _wait_for_company(self) -> None:
        """Let those who were here a moment ago share the flush that is about to begin, if they come back. No
        longer than the last flush took: whoever waits in vain has lost that, and nothing if it was short."""
        with self._lock:
            self._missing_count = self._present_count - 1 - len(self._waiting)
            if self._missing_count <= 0:
                return
            self._all_came = all_came = threading.Lock()
            all_came.acquire()
        end = perf_counter() + self.flush_seconds
        missing_count = -1
        while self._missing_count != missing_count and perf_counter() < end:
            missing_count = self._missing_count
            if all_came.acquire(timeout=min(self._patience_seconds, self.flush_seconds)):
                break
        with self._lock:
            self._all_came = None

    def _leave(self, place: _Place) -> None:
        """When served, after flushing, or out of turn because of an interrupt. Does what is left of it when
        it was interrupted itself."""
        if not place.is_served:
            with self._lock:
                if place.is_leader:
                    self._hand_over_locked(place)
                elif not place.is_served and place in self._waiting:
                    self._waiting.remove(place)
        for signal in place.to_wake:
            if signal.locked():
                signal.release()

    def _hand_over_locked(self, place: _Place) -> None:
        """Let the first go on who is not served yet, so that the disk is busy again, then those who are."""
        durable_offset = self._durable_offset()
        present_count = len(self._waiting) + 1
        served = [waiting for waiting in self._waiting if waiting.offset <= durable_offset]
        others = [waiting for waiting in self._waiting if waiting.offset > durable_offset]
        leading, behind = others[:1], others[1:]
        for one, following in pairwise(served):
            one.to_wake = [following.signal]
        place.to_wake = [waiting.signal for waiting in (*leading, *served[:1])]
        for waiting in served:
            waiting.is_served = True  # after to_wake: whoever is interrupted meanwhile looks at it first
        for waiting in leading:
            waiting.is_leader = True
        is_led = bool(leading)
        # Up to here it can be done again, and from here on nothing comes in between.
        self._present_count = present_count
        self._all_came = None
        self._waiting = behind
        self._is_flushing = is_led
        place.is_leader = False
