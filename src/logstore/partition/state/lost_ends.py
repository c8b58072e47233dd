"""The ends that logs have lost, until groups and queues have gone back to them.

What groups have read and queues have done is kept in other logs, as offsets. Once a log that was cut has
grown again, nothing shows which of its records are new. So it does not grow before they have gone back, or,
where their logs cannot be read or written, before a checkpoint says where to: the next open sees to it.

Locks: ``_lock`` is held while the checkpoint is written. Who takes it has no lock of a log, group or queue.
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


Listener = Callable[[Mapping[TopicPartition, int]], bool]
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
        self._listeners: tuple[Listener, ...] = ()

    def listen(self, listener: Listener) -> None:
        self._listeners += (listener,)

    @contextmanager
    def told_to(self, found: dict[TopicPartition, int]) -> Iterator[None]:
        """Put the ends that are lost meanwhile, and those from before, in this table too."""
        found.update(lower_of(self._home.lost_ends, self._home.untold_ends))

        def note(ends: Mapping[TopicPartition, int]) -> bool:
            found.update(lower_of(found, ends))
            return True

        self.listen(note)
        try:
            yield
        finally:
            self._listeners = tuple(each for each in self._listeners if each is not note)

    def tell(self, ends: Mapping[TopicPartition, int]) -> None:
        """Logs were cut at these offsets, or may have been. The caller has no lock of a log."""
        if self._listeners:
            for listener in self._listeners:
                listener(ends)
            self._settle(ends)

    def tell_soon(self, ends: Mapping[TopicPartition, int]) -> None:
        """The same, for who may have any lock: told by the next who calls :meth:`tell_coming`, at the latest
        by a thread of the scheduler."""
        if self._listeners:
            before, untold = self._home.lost_ends, self._home.untold_ends
            self._note(lower_of(before, untold, ends), before, untold)
            with self._coming_lock:
                self.coming = lower_of(self.coming, ends)
            self._scheduler.after(0, "tell that logs were cut", self.tell_coming, is_waiting=True)

    def tell_coming(self) -> None:
        """Tell what :meth:`tell_soon` was given."""
        with self._coming_lock:
            ends, self.coming = self.coming, {}
        if ends:
            self.tell(ends)

    def settle(self) -> None:
        """See whether everything has been seen to: then nothing is to be noted any more."""
        if self._home.lost_ends or self._home.untold_ends:
            self._settle({})

    def check_told(self, partition: TopicPartition) -> None:
        """
        Raises:
            StorageError: the log must not grow yet.
        """
        if partition in self._home.untold_ends:
            raise StorageError(
                getattr(self._refusal, "errno", None),
                f"{partition} was cut, and takes no records before groups and queues have gone back there or "
                f"it is noted that they must; that is tried all the time: {self._refusal}",
                self._home.path,
            )

    def _settle(self, ends: Mapping[TopicPartition, int]) -> None:
        home = self._home
        with self._lock:
            before, untold = home.lost_ends, home.untold_ends
            is_seen_to = not self.coming and all(listener({}) for listener in self._listeners)
            known = {} if is_seen_to else lower_of(before, untold, ends)
            self._note(known, before, untold)
            if home.lost_ends or home.untold_ends:
                self._look_again_later()

    def _note(
        self,
        ends: dict[TopicPartition, int],
        before: Mapping[TopicPartition, int],
        untold: Mapping[TopicPartition, int],
    ) -> None:
        """Store these in place of those that were stored and could not be."""
        home = self._home
        try:
            home.store_lost_ends(ends, instead_of=before)
            ends = {}
        except LogstoreError as error:
            self._refusal = error
            if is_due(self._told_at, str(error)):
                warn("%s: it could not be noted which logs were cut: %s", home.path, error)
        home.untold_ends = ends if home.untold_ends is untold else lower_of(home.untold_ends, ends)

    def _look_again_later(self) -> None:
        if not self._is_look_coming:
            self._is_look_coming = True
            what = "see whether groups have gone back"
            self._scheduler.after(_LOOK_AGAIN_MS, what, self._look_again, is_waiting=True)

    def _look_again(self) -> None:
        self._is_look_coming = False
        self.settle()
