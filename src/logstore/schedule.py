"""Background work, driven by an injected clock.

A :class:`Scheduler` runs actions once after a delay, or repeatedly. It does not know what they do. With the
system clock it owns two threads; with any other clock it has none, and a test calls :meth:`run_due`. One
thread runs actions that may wait for the disk, several at a time when it is behind. The other never waits for
the disk: it writes lingering appends, which a kill would lose, so they must not queue behind an fsync.

Locks: ``_lock`` guards the queues, in the scheduler and in :class:`_Prompt`; it is never held while an action
runs. ``_changed`` is its condition. Never enter that by ``with``: ``Condition.__enter__`` is Python code, and
an interrupt inside it leaves the lock held forever.

The end of the program: when the interpreter finalizes, it stops other threads wherever they are, with the
locks that they have, and a thread that is started then never begins. A finalizer that closes a store would
wait for them forever. So the threads end in an exit function, and nothing starts them while the interpreter
finalizes.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from logstore.clock import Clock, SystemClock
from logstore.errors import RetriableError, without_frames
from logstore.turns import WORTH_THREADS_SECONDS, take_turns
from logstore.warning import is_due, warn

T = TypeVar("T")

_LEAST_QUEUE_COUNT: Final = 256
_LONGEST_WAIT_SECONDS: Final = 3600  # the system refuses waits of centuries


class Task:
    """One scheduled action."""

    __slots__ = (
        "_told_at",
        "action",
        "early_ms",
        "interval_ms",
        "is_cancelled",
        "is_waiting",
        "last_error",
        "name",
    )

    def __init__(
        self,
        name: str,
        action: Callable[[], object],
        interval_ms: int | None,
        *,
        is_waiting: bool = False,
        early_ms: int = 0,
    ) -> None:
        self.name = name
        self.action = action
        self.interval_ms = interval_ms
        self.is_waiting = is_waiting
        self.early_ms = early_ms
        self.is_cancelled = False
        self.last_error: Exception | None = None
        self._told_at: dict[str, float] | None = None
        """When the log was told of errors since the last success, by their words; None: it has not failed."""

    def cancel(self) -> None:
        """Never start it again; a run in progress finishes. What the action holds is let go now: its time may
        come in days, and it may hold who has the task."""
        self.is_cancelled = True
        self.action = _do_nothing

    def run(self) -> bool:
        """Run once; returns whether it succeeded. An error is logged, the same one once a minute, and kept; a
        repeated task is tried again at its next time."""
        try:
            self.action()
            self.last_error = self._told_at = None
        except Exception as error:
            self._told_at = self._told_at or {}
            if is_due(self._told_at, str(error)):
                warn("background task %s failed: %s", self.name, error)
            self.last_error = without_frames(error)
        return self.last_error is None


def _do_nothing() -> None:
    """For a task that was cancelled while it was about to run."""


_Queue = list[tuple[int, int, Task]]
"""A heap of (due time in ms, rising number, task)."""


def _first_due(queue: _Queue) -> tuple[float, int]:
    return queue[0][:2] if queue else (math.inf, 0)


def _pop_due(queue: _Queue, now_ms: int, *, is_early: bool = False) -> Task | None:
    """``is_early``: it may be one that need not run yet, but may."""
    while queue and queue[0][0] - (queue[0][2].early_ms if is_early else 0) <= now_ms:
        task = heapq.heappop(queue)[2]
        if not task.is_cancelled:
            return task
    return None


class _Prompt:
    """Short tasks, on a thread of their own. When that thread falls behind, because the interpreter gives it
    no time or there is too much work, the threads that add the tasks may run some of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: _Queue = []
        self._most_count = _LEAST_QUEUE_COUNT
        """With so many the cancelled ones are looked for."""
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._next_ms: float = math.inf
        """When the first task is due; read without the lock."""
        self._wakes_ms: float = -1
        """When the thread looks again; -1 while it is busy."""
        self._is_stopping = False
        self._is_resting = False
        self.failure_count = 0
        self.thread: threading.Thread | None = None

    def add(self, delay_ms: int, task: Task) -> None:
        if sys.is_finalizing():
            return
        due_ms = self._clock.monotonic_ms() + delay_ms
        with self._lock:
            if self._is_stopping:
                return
            if self.thread is None:
                self.thread = start_thread(self._run, "logstore-linger")
            if len(self._queue) >= self._most_count:
                self._drop_cancelled_locked()
            heapq.heappush(self._queue, (due_ms, next(self._numbers), task))
            self._next_ms = self._queue[0][0]
            if due_ms < self._wakes_ms:
                self._changed.notify()

    def _drop_cancelled_locked(self) -> None:
        """Most tasks are cancelled long before they are due."""
        self._queue = [each for each in self._queue if not each[2].is_cancelled]
        heapq.heapify(self._queue)
        self._most_count = max(2 * len(self._queue), _LEAST_QUEUE_COUNT)

    def run_due(self, most: float = math.inf) -> None:
        """Run up to ``most`` due tasks in the calling thread."""
        while most > 0 and self._next_ms <= self._clock.monotonic_ms():
            with self._lock:
                task = _pop_due(self._queue, self._clock.monotonic_ms())
                self._next_ms = self._queue[0][0] if self._queue else math.inf
                if task is None or self._is_stopping:
                    return
            if not task.run():
                with self._lock:
                    self.failure_count += 1
            most -= 1

    def _run(self) -> None:
        while True:
            try:
                self.run_due()
            except BaseException as error:
                warn("the background work goes on after %s: %s", type(error).__name__, error)
            with self._lock:
                if self._is_stopping or self._is_resting:
                    return
                self._wakes_ms = self._next_ms
                self._changed.wait(_seconds_until(self._next_ms, self._clock))
                self._wakes_ms = -1

    def stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            self._queue.clear()
            self._next_ms = math.inf
            self._changed.notify_all()  # all: an interrupted start may have left a second thread

    def rest(self) -> None:
        """End the thread. The next task that is added starts another."""
        if self.thread is None or not self.thread.is_alive():
            return
        with self._lock:
            self._is_resting = True
            self._changed.notify_all()
        self.thread.join()
        with self._lock:
            self._is_resting = False
            self.thread = None


def start_thread(
    run: Callable[[], None], name: str, *, what: str = "for the background work"
) -> threading.Thread:
    """A thread that does not keep the process alive.

    Raises:
        RetriableError: the process may have no more threads, or none that do not keep it alive, as in a
            subinterpreter.
    """
    try:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
    except RuntimeError as error:
        raise RetriableError(f"no thread can be started {what}: {error}") from None
    return thread


def _seconds_until(due_ms: float, clock: Clock) -> float | None:
    if due_ms == math.inf:
        return None
    left_ms = max(0, due_ms - clock.monotonic_ms())
    return min(left_ms / 1000, _LONGEST_WAIT_SECONDS)


class Scheduler:
    """Runs tasks when the clock says so."""

    def __init__(self, clock: Clock, *, at_a_time: int = 1) -> None:
        """``at_a_time``: how many actions that wait for the disk may run at the same time."""
        self._clock = clock
        self._at_a_time = at_a_time
        self._waiting_seconds = 0.0
        """How long one of those actions took in the last round."""
        self._queue: _Queue = []
        self._waiting: _Queue = []
        """Tasks that wait for the disk."""
        self._numbers = itertools.count()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_stopping = False
        self._is_resting = False
        self._failure_count = 0
        self._thread: threading.Thread | None = None
        self._prompt = _Prompt(clock) if isinstance(clock, SystemClock) else None
        rest_at_exit(self, Scheduler._rest)

    @property
    def has_no_threads(self) -> bool:
        """Whether tasks run only when :meth:`run_due` is called."""
        return self._prompt is None

    @property
    def failure_count(self) -> int:
        """How many runs of tasks have ended with an error."""
        return self._failure_count + (0 if self._prompt is None else self._prompt.failure_count)

    def every(self, interval_ms: int, name: str, action: Callable[[], object]) -> Task:
        """Run ``action`` every ``interval_ms``, first after one interval.

        Raises:
            RetriableError: no thread can be started for it.
        """
        task = Task(name, action, interval_ms)
        self._enqueue(interval_ms, task)
        return task

    def begin(
        self,
        jobs: Iterable[tuple[int, str, Callable[[], object]]],
        *,
        once: Mapping[str, Callable[[], object]],
    ) -> None:
        """:meth:`every` for each of several jobs: interval in ms, name and action. The actions of ``once``,
        by name, are run now, and may wait for the disk."""
        tasks = [Task(name, action, None, is_waiting=True) for name, action in once.items()]
        tasks += [Task(name, action, interval_ms) for interval_ms, name, action in jobs]
        now_ms = self._clock.monotonic_ms()
        for task in tasks:
            self._enqueue(task.interval_ms or 0, task, now_ms)

    def after(
        self,
        delay_ms: int,
        name: str,
        action: Callable[[], object],
        *,
        is_waiting: bool = False,
        early_ms: int = 0,
    ) -> Task:
        """Run ``action`` once, ``delay_ms`` from now. Pass ``is_waiting`` if it mostly waits for the disk: it
        may then run in another thread, at the same time as others of its kind; and so much earlier if
        another of them is due then, as threads for a few of a thousand cost more than the few."""
        task = Task(name, action, None, is_waiting=is_waiting, early_ms=early_ms)
        self._enqueue(delay_ms, task)
        return task

    def promptly(self, delay_ms: int, task: Task) -> None:
        """Run once a short task that never waits for the disk, without queuing it behind tasks that do. It
        may run in a thread that calls :meth:`help`.

        Raises:
            RetriableError: no thread can be started for it.
        """
        if self._prompt is None:
            self._enqueue(delay_ms, task)
        else:
            self._prompt.add(delay_ms, task)

    def help(self) -> None:
        """Run up to two late prompt tasks. Call it for each task you add, so that the queue cannot grow
        without bound. Hold no lock that a task may wait for. Cost: 0.1 µs if no task is late."""
        if self._prompt is not None:
            self._prompt.run_due(2)

    def _enqueue(self, delay_ms: int, task: Task, now_ms: int | None = None) -> None:
        if sys.is_finalizing():
            return
        due_ms = (self._clock.monotonic_ms() if now_ms is None else now_ms) + delay_ms
        with self._lock:
            if self._is_stopping:
                return
            self._ensure_thread_locked()
            queue = self._waiting if task.is_waiting else self._queue
            heapq.heappush(queue, (due_ms, next(self._numbers), task))
            if queue[0][2] is task:
                self._changed.notify()

    def _ensure_thread_locked(self) -> None:
        if self._thread is None and isinstance(self._clock, SystemClock):
            self._thread = start_thread(self._run, "logstore-background")

    def run_due(self) -> int:
        """Run all due tasks in the calling thread. Returns how many ran."""
        count = 0
        while tasks := self._take_due():
            if tasks[0].is_waiting:
                self._run_waiting(tasks)
            else:
                self._run_task(tasks[0])
            count += len(tasks)
        return count

    def _take_due(self) -> list[Task]:
        """The next due task; if it waits for the disk, together with all others that do, and may run now."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            queues = sorted((self._queue, self._waiting), key=_first_due)
            first = _pop_due(queues[0], now_ms) or _pop_due(queues[1], now_ms)
            if first is None:
                return []
            if not first.is_waiting or self._at_a_time == 1:
                return [first]
            return [first, *iter(lambda: _pop_due(self._waiting, now_ms, is_early=True), None)]

    def _run_waiting(self, tasks: list[Task]) -> None:
        """Run the tasks, in several threads only if they take long."""
        is_long = self._waiting_seconds * len(tasks) > WORTH_THREADS_SECONDS
        started = time.perf_counter()
        take_turns(self._run_task, tasks, at_a_time=self._at_a_time if is_long else 1)
        self._waiting_seconds = (time.perf_counter() - started) / len(tasks)

    def _run_task(self, task: Task) -> None:
        if self._is_stopping:
            return
        try:
            if not task.run():
                with self._lock:
                    self._failure_count += 1
        finally:
            if task.interval_ms is not None and not task.is_cancelled:
                self._enqueue(task.interval_ms, task)

    def _run(self) -> None:
        """The thread's loop until :meth:`stop`. No error ends it earlier."""
        while True:
            try:
                self.run_due()
            except BaseException as error:
                warn("the background work goes on after %s: %s", type(error).__name__, error)
            with self._lock:
                if self._is_stopping or self._is_resting:
                    return
                self._changed.wait(self._seconds_to_next_locked())

    def _seconds_to_next_locked(self) -> float | None:
        return _seconds_until(min(_first_due(self._queue), _first_due(self._waiting))[0], self._clock)

    def stop(self) -> None:
        """Start nothing more, and wait for running actions, except those that run inside :meth:`help`."""
        if self._prompt is not None:
            self._prompt.stop()
        with self._lock:
            self._is_stopping = True
            self._queue.clear()
            self._waiting.clear()
            self._changed.notify_all()
        for thread in (self._thread, None if self._prompt is None else self._prompt.thread):
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    def _rest(self) -> None:
        """End the threads after what they are doing, unless a parent process has them. The next task starts
        them again."""
        if self._prompt is not None:
            self._prompt.rest()
        if self._thread is None or not self._thread.is_alive():
            return
        with self._lock:
            self._is_resting = True
            self._changed.notify_all()
        self._thread.join()
        with self._lock:
            self._is_resting = False
            self._thread = None


# The end of the program -------------------------------------------------------------------------------------


_with_threads: weakref.WeakKeyDictionary[Any, Callable[[Any], None]] = weakref.WeakKeyDictionary()
"""Other threads come and go also while the program ends: it is not iterated over."""


def rest_at_exit(owner: T, rest: Callable[[T], None]) -> None:
    """Call ``rest``, which ends the threads of their owner, before the interpreter finalizes."""
    _with_threads[owner] = rest


def rest_no_more(owner: object) -> None:
    """Its threads have ended."""
    _with_threads.pop(owner, None)


def _rest_all() -> None:
    for reference in _with_threads.keyrefs():  # copied at once
        owner = reference()
        rest = None if owner is None else _with_threads.get(owner)
        if rest is not None:
            rest(owner)


atexit.register(_rest_all)
