"""Waiting for a log to change, with a thread or without one.

A wait without a thread is an entry that a change of the log completes and the clock expires: a long poll that
waits for a record, or an acknowledgement that waits until the record is durable or replicated. A thousand of
them cost no thread.

A watcher is told of the next change, whatever it is, and has no time: a fetch that is repeated, and that
leaves alone what has not changed.

Lock: ``_lock`` guards the waits. It may be taken with or without the log's lock. While it is held, the log's
lock is never taken and no callback runs.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from logstore.model import Isolation, TopicPartition
from logstore.partition.reading.view import LogView
from logstore.partition.state.context import LogContext
from logstore.schedule import Task
from logstore.warning import warn

_SWEPT_AT: Final = 8

Done = Callable[[bool], object]
"""Called once: with True if the log reached the offset, with False after the timeout, or if the log closed,
failed, or lost the records below the offset."""


class Wait:
    """A wait for the log to reach an offset. Made by :meth:`.Log.when`."""

    __slots__ = ("_call", "_done", "_lock", "_task", "is_over", "isolation", "offset")

    def __init__(
        self,
        offset: int,
        isolation: Isolation,
        done: Done,
        lock: threading.RLock,
        call: Callable[[Callable[[], object], str], None],
    ) -> None:
        self.offset = offset
        self.isolation = isolation
        self.is_over = False
        """Whether ``done`` was called, or the wait cancelled."""
        self._done = done
        self._call = call
        self._lock = lock
        self._task: Task | None = None

    def cancel(self) -> bool:
        """Stop waiting; ``done`` is not called. Returns False if the wait was already over."""
        with self._lock:
            was_over, self.is_over = self.is_over, True
            if self._task is not None:
                self._task.cancel()
        return not was_over

    def expire_by(self, task: Task) -> None:
        """The clock's entry for this wait."""
        self._task = task

    def tell(self, is_reached: bool) -> None:
        """End the wait, unless it is over already."""
        if self.cancel():
            self._call(lambda: self._done(is_reached), "what waited for a log")


class Watcher(Protocol):
    """Is told once that a log has changed. The log then forgets it: it may ask again within the call. It must
    return at once, and change no log."""

    def changed(self, view: LogView) -> None:
        """Readers see this view now."""
        ...

    def gathers(self) -> None:
        """Single appends gather. They are written in time, or when somebody reads."""
        ...

    def ended(self) -> None:
        """The log is closed or has failed, and will not grow any more; or it may not be read from here any
        more."""
        ...


class Waits:
    """The waits for one log."""

    __slots__ = (
        "_callbacks",
        "_changed",
        "_entries",
        "_has_ended",
        "_lock",
        "_numbers",
        "_partition",
        "_scheduler",
        "_swept_at",
        "_threads",
        "interrupt",
        "is_watched",
        "watchers",
    )

    def __init__(self, context: LogContext, partition: TopicPartition) -> None:
        self._scheduler = context.scheduler
        self._partition: Final = partition
        self._lock = threading.RLock()
        self._changed: threading.Condition | None = None
        """Made when the first thread waits, as in few logs. Entered by its lock: see logstore.schedule."""
        self._threads = 0
        self._callbacks: tuple[Callable[[], object], ...] = ()
        self.watchers: dict[Watcher, None] | None = None
        """None if there are none, as in most logs. A new view then need not be told of."""
        self._entries: dict[Isolation, list[tuple[int, int, Wait]]] = {}
        """Heaps by offset."""
        self._numbers = itertools.count()
        self._swept_at = _SWEPT_AT
        """Of so many entries those that are over are thrown away, before one is added."""
        self._has_ended = False
        self.is_watched = False
        """Whether anything waits. If not, an append need not call :meth:`notify`."""
        self.interrupt: BaseException | None = None
        """What came in a callback, and is to be raised at the end of the change."""

    def notify(self, view: LogView) -> None:
        """The log has changed to this view."""
        if not self.is_watched:
            return
        with self._lock:
            self._wake_locked()
            reached = self._take_reached_locked(view)
            callbacks = self._callbacks
        for entry in reached:
            entry.tell(True)
        for callback in callbacks:
            self._call(callback, "on_change()")

    def _wake_locked(self) -> None:
        if self._changed is not None:
            self._changed.notify_all()

    def _call(self, action: Callable[[], object], name: str) -> None:
        """Call a user's function: an exception in it must not stop a change of the log half-way. What may
        have been meant for the program, such as Ctrl-C, is raised after the change."""
        try:
            action()
        except BaseException as error:
            if isinstance(error, Exception) or threading.current_thread() is not threading.main_thread():
                warn("%s failed: %s: %s", name, type(error).__name__, error)
            else:
                self.interrupt = error

    def raise_interrupt(self) -> None:
        """Raise what came in a callback, if it ends the program, and this is its main thread: called when the
        change of the log is whole."""
        interrupt = self.interrupt
        if interrupt is not None and threading.current_thread() is threading.main_thread():
            self.interrupt = None
            raise interrupt

    def _take_reached_locked(self, view: LogView) -> list[Wait]:
        reached = []
        for isolation, heap in list(self._entries.items()):
            limit = view.limit_of(isolation)
            while heap and (heap[0][2].is_over or heap[0][0] <= limit):
                reached.append(heapq.heappop(heap)[2])
            if not heap:
                del self._entries[isolation]
        self._look_locked()
        return reached

    def _look_locked(self) -> None:
        self.is_watched = bool(self._threads or self._entries or self._callbacks)

    def wait(self, is_unchanged: Callable[[], bool], timeout_ms: int) -> None:
        """Return when the log has changed, or after the timeout."""
        with self._lock:
            self._threads += 1
            self.is_watched = True
            try:
                if self._changed is None:
                    self._changed = threading.Condition(self._lock)
                if is_unchanged():
                    self._changed.wait(timeout_ms / 1000)
            finally:
                self._threads -= 1
                self._look_locked()

    def on_change(self, callback: Callable[[], object]) -> Callable[[], None]:
        """See :meth:`.Log.on_change`."""
        with self._lock:
            self._callbacks = (*self._callbacks, callback)
            self._look_locked()
        return lambda: self._forget(callback)

    def _forget(self, callback: Callable[[], object]) -> None:
        with self._lock:
            left = list(self._callbacks)
            if callback in left:
                left.remove(callback)
            self._callbacks = tuple(left)
            self._look_locked()

    def watch(self, watcher: Watcher) -> bool:
        """Tell it of the next view: a view that is taken after this call is the one before it. Returns False
        if there will be none. Cost: 0.5 µs."""
        with self._lock:
            if self._has_ended:
                return False
            if self.watchers is None:
                self.watchers = {}
            self.watchers[watcher] = None
            return True

    def unwatch(self, watcher: Watcher) -> None:
        """Do not tell it."""
        with self._lock:
            if self.watchers is not None:
                self.watchers.pop(watcher, None)
                if not self.watchers:
                    self.watchers = None

    def note_view(self, view: LogView) -> None:
        """Readers see another view from now on. Called for every one, in the middle of changes, too, if there
        are watchers."""
        with self._lock:
            watchers = self._take_watchers_locked()
        for watcher in watchers:
            watcher.changed(view)

    def note_gathering(self) -> None:
        """A single append gathers, the first since the last were written. Called if there are watchers."""
        with self._lock:
            watchers = self._take_watchers_locked()
        for watcher in watchers:
            watcher.gathers()

    def let_ask_again(self) -> None:
        """Who may read the log has changed: watchers are to find out whether they may."""
        with self._lock:
            watchers = self._take_watchers_locked()
        for watcher in watchers:
            watcher.ended()

    def _take_watchers_locked(self) -> Iterable[Watcher]:
        taken, self.watchers = self.watchers, None
        return taken or ()

    def when(
        self,
        offset: int,
        isolation: Isolation,
        done: Done,
        view: Callable[[], LogView],
        timeout_ms: int | None,
    ) -> Wait:
        """See :meth:`.Log.when`. ``view`` returns the current view, called once no change can be missed."""
        entry = Wait(offset, isolation, done, self._lock, self._call)
        with self._lock:
            self.is_watched = True  # before reading the view: a later change then calls notify
            is_reached = view().limit_of(isolation) >= offset
            is_over = is_reached or self._has_ended
            if not is_over:
                self._add_locked(isolation, offset, entry)
            self._look_locked()
        if is_over:
            entry.tell(is_reached)
            self.raise_interrupt()
        elif timeout_ms is not None:
            task = Task(f"wait for {self._partition}", lambda: self._expire(entry), None)
            entry.expire_by(task)
            self._scheduler.promptly(timeout_ms, task)
        return entry

    def _add_locked(self, isolation: Isolation, offset: int, entry: Wait) -> None:
        heap = self._entries.setdefault(isolation, [])
        if len(heap) >= self._swept_at:  # a log that never grows is polled for years, and polls are cancelled
            heap[:] = [each for each in heap if not each[2].is_over]
            heapq.heapify(heap)
            self._swept_at = max(2 * len(heap), _SWEPT_AT)
        heapq.heappush(heap, (offset, next(self._numbers), entry))

    def _expire(self, entry: Wait) -> None:
        entry.tell(False)
        with self._lock:
            heap = self._entries.get(entry.isolation, [])
            while heap and heap[0][2].is_over:
                heapq.heappop(heap)
            if not heap:
                self._entries.pop(entry.isolation, None)
            self._look_locked()
        self.raise_interrupt()

    def lose(self, old_end: int) -> None:
        """The last records below ``old_end`` were cut off: who waits for one of them waits in vain, and what
        takes its place is not what he waits for. Called after :meth:`notify`."""
        with self._lock:
            lost = [each for heap in self._entries.values() for each in heap if each[0] <= old_end]
            for isolation, heap in list(self._entries.items()):
                heap[:] = [each for each in heap if each[0] > old_end]
                heapq.heapify(heap)
                if not heap:
                    del self._entries[isolation]
            self._look_locked()
        for _, _, entry in lost:
            entry.tell(False)

    def end(self) -> None:
        """End all waits: the log is closed or has failed, and will not grow any more."""
        with self._lock:
            self._has_ended = True
            entries, self._entries = self._entries, {}
            self._wake_locked()
            self._look_locked()
            callbacks = self._callbacks
            watchers = self._take_watchers_locked()
        for heap in entries.values():
            for _, _, entry in heap:
                entry.tell(False)
        for callback in callbacks:
            self._call(callback, "on_change()")
        for watcher in watchers:
            watcher.ended()
