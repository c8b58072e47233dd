"""A plain follower of one leader, without a coordinator: a warm standby, a backup that is never old, a copy
to read from."""

from __future__ import annotations

from typing import Any, Self

from logstore.bridge.progress import PullProgress
from logstore.bridge.pull_topics import PullBridge, check_names
from logstore.connected import connect
from logstore.errors import ClosedError, LogstoreError
from logstore.model import Role
from logstore.schedule import start_thread
from logstore.store import Store
from logstore.warning import inform, warn


def follow(
    store: Store, *source: str, topics: tuple[str, ...] | list[str] | None = None, **settings: Any
) -> Standby:
    """Copy topics of a leader into a store, from now on, in a thread of its own.

    ::

        with logstore.open("copy") as store, replica.follow(store, "127.0.0.1:9092") as standby:
            ...
            standby.promote()  # the leader is gone: the store's topics are its own now

    The copy has the same records at the same offsets, byte for byte, up to the leader's high watermark; see
    :func:`logstore.bridge.pull`. While the leader does not answer, it is asked again.

    Args:
        store: open for writing.
        source: the leader's address; of a cluster several: see :func:`logstore.connect`.
        topics: their names. None: all, and those that come; internal ones are never copied.
        settings: of the connection, as for :func:`logstore.connect`.

    Raises:
        UsageError: an internal topic is named, or none.
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
        self._store = store
        self._source = ", ".join(map(str, source))
        self._is_ended = self._is_promoted = False
        self._failure: LogstoreError | None = None
        self._remote = connect(*source, **settings)
        try:
            self._bridge = PullBridge(self._remote, store, names)
            self._thread = start_thread(self._run, "logstore-standby", what="to follow a leader")
        except BaseException:
            self._remote.close()
            raise

    def _run(self) -> None:
        try:
            self._bridge.run()
        except LogstoreError as error:
            if not self._is_ended:
                self._failure = error
                warn("the copy of %s ends: %s", self._source, error)

    @property
    def progress(self) -> PullProgress:
        """How far the copy is: of each partition its position and the leader's end, as it was last seen."""
        return self._bridge.progress

    @property
    def failure(self) -> LogstoreError | None:
        """Why it copies no more; None while it does."""
        return self._failure

    def promote(self) -> list[str]:
        """Copy nothing any more, and make the copied topics the store's own: they can be appended to.

        Each log begins a new leader epoch, so that a log that went on elsewhere is told from it. What the
        leader had acknowledged and was not copied yet is not there: :attr:`progress` tells how far it was.
        See to it first that the old leader serves no clients any more.

        Returns:
            The topics' names.

        Raises:
            ClosedError: it was promoted before.
            StorageError: the disk failed. Call it again.
        """
        if self._is_promoted:
            raise ClosedError("it was promoted before")
        self._end()
        names = sorted({each.partition.topic for each in self.progress.partitions})
        for name in names:
            for log in self._store[name]:
                if log.role is Role.FOLLOWER:
                    log.assign_leader_epoch(log.leader_epoch + 1)
                    log.set_role(Role.ALONE)
        self._is_promoted = True
        inform("%s: %d topics are the store's own now", self._source, len(names))
        return names

    def _end(self) -> None:
        self._is_ended = True
        self._bridge.stop()
        self._remote.close()  # what the leader is asked ends: it may be gone
        self._thread.join()

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
