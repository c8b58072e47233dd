"""Fetches of workers that wait for records to become available, without a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from logstore.broker.pending import Wake, call_wake
from logstore.broker.share.held import HeldPartition
from logstore.broker.share.partition import NEVER
from logstore.broker.share.requests import ShareFetchResult
from logstore.errors import LogstoreError
from logstore.partition.writing.waits import Wait
from logstore.schedule import Scheduler, Task


class WaitingFetch:
    """A fetch that waits.

    Lock: ``_lock`` guards what it waits for. It is never held while a partition or a caller's code is called,
    and polls of several threads are the caller's to keep apart.
    """

    def __init__(
        self,
        attempt: Callable[[], ShareFetchResult | None],
        nothing: Callable[[], ShareFetchResult],
        held: Iterable[HeldPartition],
        scheduler: Scheduler,
        wait_ms: int,
    ) -> None:
        """``attempt`` gives a result once there is one, ``nothing`` the result when the time is over."""
        self._attempt = attempt
        self._nothing = nothing
        self._held = list(held)
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._wake: Wake | None = None
        self._is_awake = False
        self._is_late = False
        self._is_over = False
        self._waits: list[Wait] = []
        self._result: ShareFetchResult | None = None
        self._due: Task | None = None
        self._deadline = Task("answer a share fetch", self._expire, None)
        scheduler.promptly(wait_ms, self._deadline)
        self._watch()

    def poll(self) -> ShareFetchResult | None:
        if self._result is not None or not self._is_awake:
            return self._result
        self._is_awake = False
        found = self._attempt()
        if found is None and self._is_late:
            found = self._nothing()
        if found is not None:
            self._result = found
            self._end()
            return found
        self._watch()
        return None

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            if not self._is_awake and self._result is None:
                self._wake = wake
                return
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None
        self._end()

    def _watch(self) -> None:
        """Be told when something may have become available: by the logs, by other workers, by the time."""
        fresh: list[Wait] = []
        for each in self._held:
            fresh += each.wait(self, self._note)
        due_ms = min((each.next_due_ms() for each in self._held), default=NEVER)
        due = None if due_ms >= NEVER else Task("look for available records", self._note, None)
        with self._lock:
            if self._is_over:
                old, old_due = fresh, due
            else:
                old, self._waits = self._waits, fresh
                old_due, self._due = self._due, due
        for wait in old:
            wait.cancel()
        if old_due is not None:
            old_due.cancel()
        if due is not None and not self._is_over:
            try:
                self._scheduler.promptly(due_ms, due)
            except LogstoreError:  # there is no thread for it, or the store is being closed
                self._note()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            waits, self._waits = self._waits, []
            due, self._due = self._due, None
        self._deadline.cancel()
        if due is not None:
            due.cancel()
        for each in self._held:
            each.forget(self)
        for wait in waits:
            wait.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self._note()

    def _note(self) -> None:
        """Something has changed: the next poll looks."""
        with self._lock:
            self._is_awake = True
            wake, self._wake = self._wake, None
        call_wake(wake)
