"""The ends that logs have lost, until groups and queues have gone back to them.

What groups have read and queues have done is kept in other logs, as offsets. Once a log that was cut has
grown again, nothing shows which of its records are new. So it does not grow before they have gone back, or,
where their logs cannot be read or written, before a checkpoint says where to: the next open sees to it.

Groups and queues have a checkpoint each: those who have gone back, and have read on since, are not to be sent
back once more because the others could not.

Locks: ``_lock`` is held while a checkpoint is written. Who takes it has no lock of a log, group or queue.
``_coming_lock`` guards one table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from logstore.errors import LogstoreError, StorageError
from logstore.model import TopicPartition
from logstore.partition.state.home import LogHome, lower_of
from logstore.schedule import Scheduler
from logstore.warning import is_due, warn

_LOOK_AGAIN_MS: Final = 200
"""Until it has been seen to. What groups say then must not be set back once more, after a kill."""

Ends = Mapping[TopicPartition, int]
EndListener = Callable[[Ends], bool]
"""Is told of logs that were cut, and where. Returns whether everything that it was ever told of has been seen
to, durably. With nothing to tell, it is only asked for that."""


class LostEnds:
    """Those of one directory."""

    def __init__(self, home: LogHome, scheduler: Scheduler) -> None:
        self._home = home
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._coming_lock = threading.Lock()
        self.coming: dict[TopicPartition, int] = {}
        """What is still to be told."""
        self._is_look_coming = False
        self._refusal: LogstoreError | None = None
        self._told_at: dict[str, float] = {}
        self._listeners: dict[str, EndListener] = {}
        """By the name of the checkpoint for what they have not seen to."""
        self._notes: tuple[dict[TopicPartition, int], ...] = ()

    def listen(self, listeners: Mapping[str, EndListener], ends: Ends) -> None:
        """From now on these are told: at once of the ends, and of those that their checkpoints have.

        Args:
            listeners: one for each of :data:`.LOST_ENDS_NAMES`.
        """
        self._listeners = dict(listeners)
        for name, listener in listeners.items():
            known = lower_of(self._home.lost_ends.get(name, {}), ends)
            if known:
                listener(known)
                self._settle(name, known)

    @contextmanager
    def noted_in(self, found: dict[TopicPartition, int]) -> Iterator[None]:
        """Put all ends that are lost meanwhile into this table."""
        self._notes += (found,)
        try:
            yield
        finally:
            self._notes = tuple(each for each in self._notes if each is not found)

    def tell(self, ends: Ends) -> None:
        """Logs were cut at these offsets, or may have been. The caller has no lock of a log."""
        for note in self._notes:
            note.update(lower_of(note, ends))
        for name, listener in self._listeners.items():
            listener(ends)
            self._settle(name, ends)

    def tell_soon(self, ends: Ends) -> None:
        """The same, for who may have any lock: told by the next who calls :meth:`go_on`, at the latest by a
        thread of the scheduler."""
        for name in self._listeners:
            before, untold = self._home.lost_ends.get(name, {}), self._home.untold_ends.get(name, {})
            self._note(name, lower_of(before, untold, ends), before, untold)
        if self._listeners:
            with self._coming_lock:
                self.coming = lower_of(self.coming, ends)
            self._scheduler.after(0, "tell that logs were cut", self.go_on, is_waiting=True)

    def go_on(self) -> None:
        """Tell what :meth:`tell_soon` was given, or see whether everything has been seen to."""
        with self._coming_lock:
            ends, self.coming = self.coming, {}
        if ends:
            self.tell(ends)
        else:
            self.settle()

    def settle(self) -> None:
        """See whether everything has been seen to: then nothing is to be noted any more."""
        for name in self._listeners:
            if name in self._home.lost_ends or name in self._home.untold_ends:
                self._settle(name, {})

    def check_told(self, partition: TopicPartition) -> None:
        """
        Raises:
            StorageError: the log must not grow yet.
        """
        if any(partition in ends for ends in self._home.untold_ends.values()):
            raise StorageError(
                getattr(self._refusal, "errno", None),
                f"{partition} was cut, and takes no records before groups and queues have gone back there or "
                f"it is noted that they must; that is tried all the time: {self._refusal}",
                self._home.path,
            )

    def _settle(self, name: str, ends: Ends) -> None:
        home = self._home
        with self._lock:
            before, untold = home.lost_ends.get(name, {}), home.untold_ends.get(name, {})
            is_seen_to = not self.coming and self._listeners[name]({})
            self._note(name, {} if is_seen_to else lower_of(before, untold, ends), before, untold)
            if (name in home.lost_ends or name in home.untold_ends) and not self._is_look_coming:
                self._is_look_coming = True
                what = "see whether groups have gone back"
                self._scheduler.after(_LOOK_AGAIN_MS, what, self._look_again, is_waiting=True)

    def _note(self, name: str, ends: Ends, before: Ends, untold: Ends) -> None:
        """Store these in place of what was stored, and of what could not be."""
        home = self._home
        try:
            home.store_lost_ends(name, ends, instead_of=before)
            ends = {}
        except LogstoreError as error:
            self._refusal = error
            if is_due(self._told_at, str(error)):
                warn("%s: it could not be noted which logs were cut: %s", home.path, error)
        home.keep_untold(name, ends, instead_of=untold)

    def _look_again(self) -> None:
        self._is_look_coming = False
        self.settle()
