"""Fetches of workers that wait for records to become available, without a thread for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial

from logstore.broker.pending import Wake, call_wake
from logstore.broker.share.held import HeldPartition
from logstore.broker.share.partition import NEVER
from logstore.broker.share.requests import ShareFetchResult
from logstore.errors import LogstoreError
from logstore.partition.writing.waits import Wait
from logstore.schedule import Scheduler, Task

Attempt = Callable[[Iterable[HeldPartition], bool], ShareFetchResult | None]
"""Takes what is available of some partitions; None if that is nothing, or too little and the time is not
over."""


class WaitingFetch:
    """A fetch that waits. It looks only at partitions in which something has changed.

    Lock: ``_lock`` guards what it waits for. It is never held while a partition or a caller's code is called,
    and polls of several threads are the caller's to keep apart.
    """

    throttle_time_ms = 0

    def __init__(
        self,
        attempt: Attempt,
        nothing: ShareFetchResult,
        held: Iterable[HeldPartition],
        scheduler: Scheduler,
        wait_ms: int,
    ) -> None:
        """``nothing`` is the result when the time is over."""
        self._attempt = attempt
        self._nothing = nothing
        self._held = dict.fromkeys(held)
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._wake: Wake | None = None
        self._changed: dict[HeldPartition, None] = {}
        """What to look at next, in the order in which it has changed."""
        self._is_late = False
        self._is_over = False
        self._waits: dict[HeldPartition, list[Wait]] = {}
        self._due: list[Task] = []
        self._result: ShareFetchResult | None = None
        self._deadline = Task("answer a share fetch", self._expire, None)
        scheduler.promptly(wait_ms, self._deadline)
        self._watch(self._held)

    def poll(self) -> ShareFetchResult | None:
        if self._result is not None or not (self._changed or self._is_late):
            return self._result
        with self._lock:
            changed, self._changed = self._changed, {}
        is_late = self._is_late
        found = self._attempt(changed, is_late)
        if found is None and is_late:
            found = self._nothing
        if found is not None:
            self._result = found
            self._end()
            return found
        self._watch(changed)
        return None

    def on_wake(self, wake: Wake) -> None:
        with self._lock:
            if not (self._changed or self._is_late) and self._result is None:
                self._wake = wake
                return
        call_wake(wake)

    def cancel(self) -> None:
        with self._lock:
            self._wake = None
        self._end()

    def _watch(self, held: Iterable[HeldPartition]) -> None:
        """Be told when something of them may have become available: by the log, by other workers, by the
        time."""
        due_ms = NEVER
        for each in held:
            note = partial(self._note, each)
            waits = each.wait(self, note)
            with self._lock:
                if self._is_over:
                    old = waits
                else:
                    old, self._waits[each] = self._waits.get(each, []), waits
            for wait in old:
                wait.cancel()
            due_ms = min(due_ms, each.next_due_ms())
        if due_ms < NEVER:
            self._look_again_in(due_ms)

    def _look_again_in(self, due_ms: int) -> None:
        task = Task("look for available records", self._note_all, None)
        with self._lock:
            if self._is_over:
                return
            self._due.append(task)
        try:
            self._scheduler.promptly(due_ms, task)
        except LogstoreError:  # there is no thread for it, or the store is being closed
            self._note_all()

    def _end(self) -> None:
        with self._lock:
            self._is_over = True
            waits, self._waits = self._waits, {}
            due, self._due = self._due, []
        self._deadline.cancel()
        for task in due:
            task.cancel()
        for each in self._held:
            each.forget(self)
        for some in waits.values():
            for wait in some:
                wait.cancel()

    def _expire(self) -> None:
        self._is_late = True
        self._note_all()

    def _note(self, held: HeldPartition) -> None:
        """Something has changed there: the next poll looks."""
        self._note_some({held: None})

    def _note_all(self) -> None:
        self._note_some(self._held)

    def _note_some(self, held: dict[HeldPartition, None]) -> None:
        with self._lock:
            self._changed.update(held)
            wake, self._wake = self._wake, None
        call_wake(wake)
