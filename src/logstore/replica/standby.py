"""A plain follower of one leader, without a coordinator: a warm standby, a backup that is never old, a copy
to read from."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Final, Self

from logstore.bridge.progress import PullProgress
from logstore.bridge.pull_topics import PullBridge, check_names
from logstore.connected import prepare_connection
from logstore.errors import ClosedError, LogstoreError, UnknownTopicError, UsageError
from logstore.replica.promotion import addresses_in, begin_promotion, end_promotion, promote_topics
from logstore.schedule import start_thread
from logstore.store import Store
from logstore.warning import inform, warn

_beginning: Final = threading.Lock()
"""Guards what is below."""
_open: Final[weakref.WeakSet[Standby]] = weakref.WeakSet()
"""The standbys that copy, of all stores."""


def follow(
    store: Store, *source: str, topics: tuple[str, ...] | list[str] | None = None, **settings: Any
) -> Standby:
    """Copy topics of a leader into a store, from now on, in a thread of its own.

    ::

        with logstore.open("copy") as store, replica.follow(store, "127.0.0.1:9092") as standby:
            ...
            standby.promote()  # the leader is gone: the store's topics are its own now

    The copy has the same records at the same offsets, byte for byte, up to the leader's high watermark; see
    :func:`logstore.bridge.pull`. Returns at once: while the leader does not answer, it is asked again, and
    the copy can be read, and promoted.

    Args:
        store: open for writing.
        source: the leader's address; of a cluster several: see :func:`logstore.connect`.
        topics: their names. None: all, and those that come; internal ones are never copied.
        settings: of the connection, as for :func:`logstore.connect`.

    Raises:
        UsageError: an internal topic is named, or none; an address is none; the store is a node; or a standby
            that is open copies the same topics into it.
        InvalidConfigError: a setting is unknown, or its value bad.
        ReadOnlyError, ClosedError: the store cannot be written.
    """
    return Standby(store, source, topics, settings)


class Standby:
    """What :func:`follow` returns. Use it in a ``with`` statement, or call :meth:`close`."""

    def __init__(
        self,
        store: Store,
        source: tuple[str, ...],
        topics: tuple[str, ...] | list[str] | None,
        settings: dict[str, Any],
    ) -> None:
        names = None if topics is None else check_names(topics)
        store.check_topics_own()
        self._store = store
        self._names = names
        self._leader = tuple(dict.fromkeys(each for given in source for each in addresses_in(given)))
        self._source = ", ".join(self._leader)
        self._is_ended = self._is_promoted = False
        self._failure: LogstoreError | None = None
        self._aborted: set[tuple[int, int]] = set()
        """The producers whose transactions the promotion has ended."""
        self._remote = prepare_connection(*source, **settings)
        try:
            self._begin()
            self._bridge = PullBridge(self._remote, store, names, self._leader)
            self._thread = start_thread(self._run, "logstore-standby", what="to follow a leader")
            store.watch_copy(self)
        except BaseException:
            with _beginning:
                _open.discard(self)
            self._remote.close()
            raise

    def _begin(self) -> None:
        """
        Raises:
            UsageError: another copies the same.
        """
        with _beginning:
            for other in _open:
                if other._store is self._store and self._is_same(other):
                    raise UsageError(
                        f"{other} copies the same topics into {self._store.path}: close() it first, or give "
                        "each other topics="
                    )
            _open.add(self)

    def _is_same(self, other: Standby) -> bool:
        """Whether another copies the same topics, as far as their names and the leader's addresses tell."""
        if self._names is not None and other._names is not None:
            return not set(self._names).isdisjoint(other._names)
        return not set(self._leader).isdisjoint(other._leader)

    def _run(self) -> None:
        try:
            self._bridge.run()
        except LogstoreError as error:
            if not self._is_ended:
                self._failure = error
                warn(
                    "the copy of %s ends: %s. When that is mended, close() the standby, and follow again",
                    self._source,
                    error,
                )

    @property
    def source(self) -> str:
        """The leader's addresses, separated by commas."""
        return self._source

    @property
    def is_ended(self) -> bool:
        """Whether it was closed, or promoted."""
        return self._is_ended

    @property
    def progress(self) -> PullProgress:
        """How far the copy is: of each partition its position and the leader's end, as it was last seen. Also
        which topics cannot be copied any more, and why; and why the leader does not answer, or why nothing is
        copied any more."""
        progress = self._bridge.progress
        return progress if self._failure is None else progress._replace(trouble=str(self._failure))

    @property
    def failure(self) -> LogstoreError | None:
        """Why it copies nothing any more; None while it copies any topic, or waits for the leader, also for a
        topic that is named and not there yet."""
        progress = self.progress
        if self._failure is not None or progress.partitions:
            return self._failure
        stopped = progress.stopped.items()
        if any(isinstance(error, UnknownTopicError) and name not in self._store for name, error in stopped):
            return None
        return next(iter(progress.stopped.values()), None)

    def promote(self) -> list[str]:
        """Copy nothing any more, and make the copied topics the store's own: they can be appended to. These
        are all that the store has of this leader, or those of ``topics``: whether or not the leader answers,
        or still has them; and those that an earlier promotion, which a crash has cut short, has left.

        Each log begins a new leader epoch, so that a log that went on elsewhere is told from it. What the
        leader had acknowledged and was not copied yet is not there: :attr:`progress` tells how far it was,
        and a warning what is missing as far as the leader has told.
        Transactions that are open in the copy are aborted: those whose markers were not copied yet.
        See to it first that the old leader serves no clients any more. The topics are never copied again
        unless they are deleted here.

        Returns:
            The topics' names.

        Raises:
            ClosedError: it was promoted before.
            UsageError: what was copied is of another leader.
            StorageError: the disk failed, for a topic or more. Call it again.
        """
        if self._is_promoted:
            raise ClosedError("it was promoted before")
        self._end()
        missing = self._what_is_missing()
        names = begin_promotion(self._store, self._leader, self._names)
        promote_topics(self._store, names, self._aborted)
        end_promotion(self._store, names)
        self._is_promoted = True
        if missing is not None:
            warn("%s: promoted before all was copied, as far as is known: %s", self._source, missing)
        tell = warn if self._aborted else inform
        tell(
            "%s: %d topics are the store's own now; %d transactions were open in them, and are aborted",
            self._source,
            len(names),
            len(self._aborted),
        )
        return names

    def _what_is_missing(self) -> str | None:
        missing = self._bridge.what_is_missing()
        if self._failure is None:
            return missing
        ended = f"the copy had ended before: {self._failure}"
        return ended if missing is None else f"{ended}; {missing}"

    def _end(self) -> None:
        self._is_ended = True
        self._bridge.stop()
        self._remote.close()  # what the leader is asked ends: it may be gone
        self._thread.join()
        with _beginning:
            _open.discard(self)

    def close(self) -> None:
        """Copy nothing any more. The copies stay followers: the next :func:`follow` goes on."""
        if not self._is_ended:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Standby of {self._source!r}>"
