"""Who may use a consumer or a queue now: one thread polls at a time, in the process that made it, until it or
its store is closed. Knows nothing of what they do.

Lock: ``_taking`` is held by the thread that polls. Only the end waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from logstore.errors import ClosedError, UsageError
from logstore.lock import ForkFlag
from logstore.turns import take_if_free

T = TypeVar("T")

_LONGEST_WAIT_SECONDS: Final = 10
"""How long the end waits for a call of another thread, which may be in a callback."""


class Usable:
    """Of one consumer or queue."""

    def __init__(self, what: str) -> None:
        """``what`` names it in errors."""
        self._what = what
        self.is_closed = False
        self.is_store_closed = False
        self._fork_flag = ForkFlag.watch()
        self._taking = threading.Lock()
        self._thread: int | None = None
        """The thread that polls."""
        self._ending: int | None = None
        """The thread that closes it, and may use it once more."""

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that made it."""
        return self._fork_flag.is_forked

    @property
    def is_polled(self) -> bool:
        """Whether a thread polls now."""
        return self._thread is not None

    @property
    def is_over(self) -> bool:
        """Whether no call may wait any longer."""
        return self.is_closed or self.is_store_closed

    def check(self) -> None:
        """
        Raises:
            ClosedError: it or its store is closed.
            ForkedError: this process is a child of the one that made it.
            UsageError: another thread polls.
        """
        if self._ending != threading.get_ident():
            self.check_open()
        if self._thread is not None and self._thread != threading.get_ident():
            raise self._other_thread()

    def check_open(self) -> None:
        """For calls that any thread may make.

        Raises:
            ClosedError, ForkedError: as :meth:`check`.
        """
        self._fork_flag.check_usable(f"the {self._what}", is_closed=self.is_closed)
        if self.is_store_closed:
            raise ClosedError(
                f"the {self._what}'s store is closed; open it again, and make another {self._what}"
            )

    def alone(self, call: Callable[[], T]) -> T:
        """The result of a call that waits, during which no other thread polls. A callback of the
        call may use it.

        Raises:
            UsageError: another thread is in such a call.
        """
        taken: list[bool] = []
        try:
            if take_if_free(self._taking.acquire, taken):
                self._thread = threading.get_ident()
            elif self._thread != threading.get_ident():
                raise self._other_thread()
            return call()
        finally:
            if taken:
                self._thread = None
                self._taking.release()  # before any other call: an interrupt must not come in front of it

    def close(self, wake: Callable[[], object]) -> None:
        """No call may begin any more. ``wake`` ends a poll of another thread; returns when it is over."""
        self.is_closed = True
        wake()
        if self.is_forked:
            return  # the other thread is the parent's
        is_elsewhere = self._thread is not None and self._thread != threading.get_ident()
        if is_elsewhere and self._taking.acquire(timeout=_LONGEST_WAIT_SECONDS):
            self._taking.release()

    def one_last_time(self, call: Callable[[], object]) -> None:
        """A call of the end, whose callbacks may still use it, but not wait."""
        self._ending = threading.get_ident()
        try:
            call()
        finally:
            self._ending = None

    def _other_thread(self) -> UsageError:
        return UsageError(
            f"another thread polls this {self._what}, which is for one thread at a time; make a {self._what} "
            "for each thread: those of one group share the work"
        )
