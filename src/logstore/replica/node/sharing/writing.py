"""What the leader of a partition tells the share coordinator of each change, in order.

A change is in effect here at once, and a worker is told of it when the share coordinator has stored it. If it
cannot be stored, all that was made of the partition's records since is forgotten, and read again.

Lock: ``_lock`` guards what is to be told. Nothing is called with it held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.share.kept import Codes, Writing
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.errors import RetriableError
from logstore.format.messages.share_records import UNCHANGED, ShareKey
from logstore.replica.node.sharing.asking import StateAsker


class KeptThere:
    """One share-partition in one leader epoch; see :class:`~logstore.broker.share.held.ShareStorage`."""

    def __init__(self, writer: StateWriter, key: ShareKey, state_epoch: int, leader_epoch: int) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.is_lost = False
        self.on_lost: Callable[[], object] = lambda: None
        """Called when nothing more is stored of it."""
        self._writer = writer
        self.state_epoch = state_epoch

    @property
    def epochs(self) -> tuple[int, int]:
        """Who reads a state later has higher ones."""
        return self.leader_epoch, self.state_epoch

    def write(
        self, changes: Iterable[tuple[ShareKey, ShareState | ShareChange | None]], *, flush: bool = False
    ) -> None:
        """Take note of changes of this share-partition: see :meth:`StateWriter.when_stored`.

        Raises:
            RetriableError: an earlier one could not be stored, or another node leads.
        """
        if self.is_lost:
            raise RetriableError(f"{self.key}: another node may have taken over; ask again")
        for _, change in changes:
            assert isinstance(change, ShareChange)
            self._writer.note(self, change)

    def written(self, changes: Sequence[ShareChange]) -> Writing:
        """Several changes as one. A later one counts where two speak of the same offset."""
        starts = [each.start_offset for each in changes if each.start_offset != UNCHANGED]
        batches = tuple([batch for each in changes for batch in each.batches])
        start = starts[-1] if starts else UNCHANGED
        return Writing(self.key, self.state_epoch, ShareChange(start, batches, self.leader_epoch))

    def lose(self) -> None:
        """Nothing more is stored of it. All who use it hear so first: a change that is not told because of
        that must not look like one that is stored. Several threads may call it."""
        if not self.is_lost:
            self.on_lost()
            self.is_lost = True


class _Queue:
    """What is to be told of one group. One request is under way at a time, so that they stay in order."""

    def __init__(self) -> None:
        self.changes: list[tuple[KeptThere, ShareChange]] = []
        self.waiting: list[Promise[bool]] = []
        """Who waits for these changes."""
        self.under_way: list[Promise[bool]] | None = None
        """Who waits for those that are under way; None if none are."""


class StateWriter:
    """Of one node."""

    def __init__(self, states: StateAsker) -> None:
        self._states = states
        self._lock = threading.Lock()
        self._queues: dict[str, _Queue] = {}

    def note(self, kept: KeptThere, change: ShareChange) -> None:
        """A change that is to be told. Called with the lock of the share-partition."""
        with self._lock:
            self._queues.setdefault(kept.key.group_id, _Queue()).changes.append((kept, change))

    def when_stored(self, group: str) -> Pending[bool]:
        """Tell what was noted of a group, and wait until that is stored, or given up."""
        with self._lock:
            queue = self._queues.get(group)
            if queue is None or not (queue.changes or queue.under_way is not None):
                return Answered(True)
            promise: Promise[bool] = Promise()
            if queue.changes:
                queue.waiting.append(promise)
                must_tell = queue.under_way is None
            else:
                assert queue.under_way is not None
                queue.under_way.append(promise)
                must_tell = False
        if must_tell:
            self._tell(group, queue)
        return promise

    def _tell(self, group: str, queue: _Queue) -> None:
        with self._lock:
            if queue.under_way is not None:
                return  # another thread was faster
            if not queue.changes:
                self._queues.pop(group, None)
                return
            noted, queue.changes = queue.changes, []
            queue.under_way, queue.waiting = queue.waiting, []
        changes: dict[KeptThere, list[ShareChange]] = {}
        for kept, change in noted:
            if not kept.is_lost:
                changes.setdefault(kept, []).append(change)
        writings = [kept.written(some) for kept, some in changes.items()]

        def done(codes: Codes) -> None:
            for kept in changes:
                if codes.get(kept.key, ErrorCode.UNKNOWN_SERVER_ERROR) is not NONE:
                    kept.lose()
            with self._lock:
                told, queue.under_way = queue.under_way, None
            for promise in told or ():
                promise.complete(True)
            self._tell(group, queue)

        if writings:
            self._states.when_there(self._states.write(writings), done)
        else:
            done({})
