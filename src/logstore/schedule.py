"""Background work on one thread, by an injected clock.

A :class:`Scheduler` runs actions once after a delay or again and again. It does not know what they do. With
the system clock it owns a thread; with any other clock it has none, and a test calls :meth:`run_due`.

Lock: ``_changed`` guards the queue; it is never held while an action runs.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import Final

from logstore.clock import Clock, SystemClock
from logstore.errors import RetriableError, without_frames
from logstore.warning import warn

_LONGEST_WAIT_SECONDS: Final = 3600  # the system refuses to wait for some centuries


class Task:
    """One scheduled action."""

    __slots__ = ("action", "interval_ms", "is_cancelled", "last_error", "name")

    def __init__(self, name: str, action: Callable[[], object], interval_ms: int | None) -> None:
        self.name = name
        self.action = action
        self.interval_ms = interval_ms
        self.is_cancelled = False
        self.last_error: Exception | None = None

    def cancel(self) -> None:
        """Never start again; a run that is under way finishes."""
        self.is_cancelled = True

    def run(self) -> None:
        """Run once. An error is logged and kept; a repeated task is tried again at its next time."""
        try:
            self.action()
            self.last_error = None
        except Exception as error:
            warn("background task %s failed: %s", self.name, error)
            self.last_error = without_frames(error)


class Scheduler:
    """Runs tasks when the clock says so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: list[tuple[int, int, Task]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def every(self, interval_ms: int, name: str, action: Callable[[], object]) -> Task:
        """Run ``action`` each ``interval_ms``, first after one interval.

        Raises:
            RetriableError: there is no thread for it.
        """
        task = Task(name, action, interval_ms)
        self._enqueue(interval_ms, task)
        return task

    def after(self, delay_ms: int, name: str, action: Callable[[], object]) -> Task:
        """Run ``action`` once, ``delay_ms`` from now."""
        task = Task(name, action, None)
        self._enqueue(delay_ms, task)
        return task

    def _enqueue(self, delay_ms: int, task: Task) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        with self._changed:
            if self._is_stopping:
                return
            self._ensure_thread_locked()
            heapq.heappush(self._queue, (due_ms, next(self._numbers), task))
            if self._queue[0][2] is task:
                self._changed.notify()

    def _ensure_thread_locked(self) -> None:
        if self._thread is None and isinstance(self._clock, SystemClock):
            self._thread = threading.Thread(target=self._run, name="logstore-background", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # the process may have no more
                self._thread = None
                raise RetriableError(f"no thread can be started for the background work: {error}") from None

    def run_due(self) -> int:
        """Run what is due, in the calling thread. Returns how many tasks ran."""
        count = 0
        while (task := self._take_due()) is not None:
            self._run_task(task)
            count += 1
        return count

    def _take_due(self) -> Task | None:
        with self._changed:
            while self._queue and self._queue[0][0] <= self._clock.monotonic_ms():
                task = heapq.heappop(self._queue)[2]
                if not task.is_cancelled:
                    return task
            return None

    def _run_task(self, task: Task) -> None:
        try:
            task.run()
        finally:
            if task.interval_ms is not None and not task.is_cancelled:
                self._enqueue(task.interval_ms, task)

    def _run(self) -> None:
        """What the thread does until the end. No error ends it before."""
        while True:
            try:
                self.run_due()
            except BaseException as error:
                warn("the background work goes on after %s: %s", type(error).__name__, error)
            with self._changed:
                if self._is_stopping:
                    return
                self._changed.wait(self._seconds_to_next_locked())

    def _seconds_to_next_locked(self) -> float | None:
        if not self._queue:
            return None
        left_ms = max(0, self._queue[0][0] - self._clock.monotonic_ms())
        return min(left_ms / 1000, _LONGEST_WAIT_SECONDS)

    def stop(self) -> None:
        """Start nothing more, and wait for the action under way."""
        with self._changed:
            self._is_stopping = True
            self._queue.clear()
            self._changed.notify()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
