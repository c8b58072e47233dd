"""Group commit: one fsync serves every thread that waits for one.

The first thread that needs a flush performs it for everything appended before it began. Threads that arrive
meanwhile line up. When the flush is done, the threads whose records it covered go on, and the first of the
others flushes for the rest. A thread is woken once, when it is served or when it is its turn: waking all of
them to check for themselves costs more than a fast disk's fsync. Served threads wake each other in a chain:
woken all at once, they would queue for the interpreter, which takes a quarter longer.

Threads that flush again and again would fall into two halves that take turns, one appending while the other
waits for the disk. So a thread about to flush first waits for the threads that were released a moment ago, as
long as some of them still come. 16 threads then share each fsync, not eight, and get half as much again done.
A thread that flushes alone does not wait.

It knows offsets and a function that flushes, but no files. It looks each time how far the log is durable: a
truncation may lower that at any moment.

Lock: ``_lock`` guards ``_waiting``, ``_is_flushing``, the places in line and the missing count; it is not
held while flushing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Protocol

from logstore.errors import UsageError
from logstore.turns import held_here

_PATIENCE_SECONDS = 0.0001
"""A thread about to flush goes ahead when no other has come for this long. A released thread is back within
some ten microseconds, if it comes back at all."""


class _Durable(Protocol):
    """What it sees of a log."""

    durable_offset: int


class _Place:
    """One thread's place in line."""

    __slots__ = ("is_leader", "is_served", "offset", "signal", "thread", "to_wake")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.thread = threading.get_ident()
        self.is_leader = False
        """Whether this thread flushes; it must hand over when it is done."""
        self.is_served = False
        self.signal = threading.Lock()
        """Held from lining up until the place is served or leads."""
        self.to_wake: list[threading.Lock] = []
        """The signals that this thread releases. A served thread wakes the next one."""


class _Barrier(Protocol):
    @property
    def is_used_here(self) -> Callable[[], bool]: ...

    def reentered(self) -> UsageError: ...


class GroupCommit:
    """``flush()`` makes everything appended to ``log`` so far durable."""

    def __init__(
        self,
        flush: Callable[[], None],
        log: _Durable,
        *,
        barrier: _Barrier | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """``barrier``: threads that are within it must not wait here."""
        self._flush = flush
        self._barrier = barrier
        self._log = log
        self._patience_seconds = patience_seconds
        self._lock = threading.RLock()
        self._is_in_lock = held_here(self._lock)
        self._waiting: list[_Place] = []
        self._is_flushing = False
        self._leader = 0
        """The thread that flushes."""
        self.flush_seconds = 0.0
        """How long the last flush took."""
        self._present_count = 0
        """How many threads took part in the last flush or came meanwhile."""
        self._missing_count = 0
        """How many of them the thread about to flush still waits for."""
        self._all_came: threading.Lock | None = None
        """Held until none is missing; None while no thread waits for them."""

    def wait_until_durable(self, offset: int) -> None:
        """Return when everything that was below ``offset`` at the time of the call is durable (or was cut off
        the log since). Flushes if no other thread does.

        Raises what ``flush`` raises in this thread. If another thread's flush fails, a waiting thread tries
        itself and gets the error from its own call.
        """
        if self._log.durable_offset >= offset:
            return
        if self._barrier is not None and self._barrier.is_used_here():
            raise self._barrier.reentered()
        self.check_not_within()
        place = _Place(offset)
        try:
            if not self._leads_or_lines_up(place):
                place.signal.acquire()
            if place.is_leader and self._log.durable_offset < offset:
                self._wait_for_company()
                started = perf_counter()
                self._flush()
                self.flush_seconds = perf_counter() - started
        finally:
            try:
                self._leave(place)
            except BaseException:
                self._leave(place)  # interrupted: finish it, or all others wait forever
                raise

    def check_not_within(self) -> None:
        """
        Raises:
            UsageError: this thread flushes the log, or waits for that, and is interrupted.
        """
        me = threading.get_ident()
        is_waiting = any(place.thread == me for place in self._waiting)
        if is_waiting or self._is_in_lock() or (self._is_flushing and self._leader == me):
            raise UsageError(
                "this thread is flushing the same log already: this call comes from a signal handler or a "
                "finalizer that has interrupted it. Let the handler set a flag, and flush elsewhere"
            )

    def _leads_or_lines_up(self, place: _Place) -> bool:
        """Lead if no thread does, else line up. Returns False if there is a signal to wait for."""
        with self._lock:
            if not self._is_flushing:
                place.is_leader = True  # first: a thread interrupted here still hands over
                self._is_flushing = True
                self._leader = place.thread
                return True
            place.signal.acquire()
            self._waiting.append(place)
            if self._all_came is not None:
                self._missing_count -= 1
                if self._missing_count == 0:
                    self._all_came.release()
            return False

    def _wait_for_company(self) -> None:
        """Wait for the threads that were here a moment ago, so that they share the flush about to begin.
        Waits no longer than the last flush took: that is the most a wait in vain can cost."""
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
        """Leave the line: when served, after flushing, or early because of an interrupt. If this call is
        interrupted itself, calling it again finishes the rest."""
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
        """Wake the first thread not served yet, so that the disk is busy again, then the served ones."""
        durable_offset = self._log.durable_offset
        present_count = len(self._waiting) + 1
        served = [waiting for waiting in self._waiting if waiting.offset <= durable_offset]
        others = [waiting for waiting in self._waiting if waiting.offset > durable_offset]
        leading, behind = others[:1], others[1:]
        for one, following in pairwise(served):
            one.to_wake = [following.signal]
        place.to_wake = [waiting.signal for waiting in (*leading, *served[:1])]
        for waiting in served:
            waiting.is_served = True  # after to_wake: an interrupted thread checks this first
        for waiting in leading:
            waiting.is_leader = True
        is_led = bool(leading)
        self._leader = leading[0].thread if is_led else 0
        # Everything above can be repeated after an interrupt. No interrupt can come in below.
        self._present_count = present_count
        self._all_came = None
        self._waiting = behind
        self._is_flushing = is_led
        place.is_leader = False
