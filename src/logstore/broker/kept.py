"""What a broker keeps of a fetch that is repeated: which partitions a client reads, and which of them have
changed since it was told of them.

A consumer of a thousand partitions asks again and again, and most of the time nothing is new in most of them.
Each partition stands in its log as a watcher, also between two requests, until the log tells it of a change.
A request looks at those that were told, at those that the client reads from elsewhere now, and at those that
had records or an error the last time. What it costs does not depend on the others.

Lock: ``KeptFetch._lock`` guards which partitions are to be looked at, and who is to be woken. It is taken
within a log's lock. While it is held, neither a log nor a caller's code is called.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from logstore.broker.pending import Wake, call_wake
from logstore.format.header import NO_EPOCH
from logstore.model import Isolation, TopicPartition

if TYPE_CHECKING:
    from logstore.partition.log import Log
    from logstore.partition.reading.view import LogView
    from logstore.partition.writing.waits import Waits

_rank_of = attrgetter("rank")
_NOT_TOLD = -1


class KeptPartition:
    """One partition of a fetch; a watcher of its log."""

    __slots__ = (
        "_fetch",
        "_waits",
        "hears_high_watermark",
        "is_forgotten",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "max_bytes",
        "next_offset",
        "offset",
        "partition",
        "rank",
        "told_high_watermark",
        "topic_id",
    )

    def __init__(
        self,
        fetch: KeptFetch,
        rank: int,
        partition: TopicPartition,
        offset: int,
        max_bytes: int,
        epoch: int,
        topic_id: uuid.UUID | None = None,
        last_fetched_epoch: int = NO_EPOCH,
        log_start_offset: int = _NOT_TOLD,
    ) -> None:
        self._fetch = fetch
        self._waits: Waits | None = None
        """Of the log that it watches, or has watched last."""
        self.is_forgotten = False
        """Whether it is read no more. Its log may be about to tell it of a change all the same."""
        self.rank = rank
        """Partitions are read in the order of their ranks."""
        self.partition = partition
        self.topic_id = topic_id
        """Of the topic that the offset is of; None takes any."""
        self.log_start_offset = log_start_offset
        """Where the log of a follower begins."""
        self.hears_high_watermark = False
        """Whether that the high watermark has moved is news: to a follower where consumers read."""
        self.told_high_watermark = _NOT_TOLD
        """What such a follower was told last."""
        self.read_from(offset, max_bytes, epoch, last_fetched_epoch)

    def read_from(self, offset: int, max_bytes: int, epoch: int, last_fetched_epoch: int) -> None:
        """As in :class:`~logstore.broker.requests.FetchPartition`."""
        self.offset = self.next_offset = offset
        """Where a reader goes on after what it was given last is ``next_offset``."""
        self.max_bytes = max_bytes
        self.leader_epoch = epoch
        self.last_fetched_epoch = last_fetched_epoch

    def watch(self, log: Log) -> None:
        """Be told of the log's next view. If there will be none, the next request looks at it again."""
        waits = log.writer.waits
        if self._waits is not waits:
            self.unwatch()
            self._waits = waits
        if not waits.watch(self):
            self._fetch.look_again([self])

    def unwatch(self) -> None:
        """Be told of nothing."""
        if self._waits is not None:
            self._waits.unwatch(self)

    def changed(self, view: LogView) -> None:
        self._watch_on(self._fetch.note(self, is_news=self.is_news(view)))

    def gathers(self) -> None:
        self._watch_on(self._fetch.note(self, is_news=False))

    def ended(self) -> None:
        self._fetch.note(self, is_news=True)

    def _watch_on(self, goes_on: bool) -> None:
        """While a request waits. Else once is enough, and a client that never comes back costs its logs
        nothing."""
        if goes_on and self._waits is not None:
            self._waits.watch(self)

    def is_news(self, view: LogView) -> bool:
        """Whether a reader at this offset has something to read, or to be told."""
        offset = self.next_offset
        if not view.limit_of(self._fetch.isolation) <= offset <= view.log_end_offset:
            return True
        return self.hears_high_watermark and view.high_watermark > self.told_high_watermark


class KeptFetch:
    """The partitions of one client's fetch, in a session; or those of a single request that waits."""

    __slots__ = ("_again", "_changed", "_lock", "_waiting", "_wake", "count", "isolation")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed: set[KeptPartition] = set()
        self._again: set[KeptPartition] = set()
        """The next request looks at them, whether they change or not."""
        self._waiting: object = None
        """The request that waits, if one does."""
        self._wake: Wake | None = None
        self.count = 0
        """How many partitions there are."""
        self.isolation = Isolation.HIGH_WATERMARK
        """That of the last request."""

    # What is read

    def look_at(self, parts: Iterable[KeptPartition]) -> None:
        """The next request looks at these: they are new, or read from elsewhere."""
        with self._lock:
            for part in parts:
                part.is_forgotten = False
                self._again.add(part)

    def look_again(self, parts: Iterable[KeptPartition]) -> None:
        """The next request looks at these, too, unless they are read no more by then."""
        with self._lock:
            self._again.update([part for part in parts if not part.is_forgotten])

    def forget(self, parts: Iterable[KeptPartition]) -> None:
        """They are read no more."""
        parts = list(parts)
        for part in parts:
            part.unwatch()
        with self._lock:
            for part in parts:
                part.is_forgotten = True
            self._again.difference_update(parts)
            self._changed.difference_update(parts)

    # One request

    def take(self) -> list[KeptPartition]:
        """What a request has to look at, in the order of reading."""
        with self._lock:
            if not (self._again or self._changed):
                return []
            taken = self._again | self._changed
            self._again, self._changed = set(), set()
        return sorted(taken, key=_rank_of)

    def take_changed(self) -> list[KeptPartition]:
        """The same of a request that has waited: what has changed meanwhile."""
        with self._lock:
            if not self._changed:
                return []
            taken, self._changed = self._changed, set()
        return sorted(taken, key=_rank_of)

    def begin_waiting(self, request: object) -> None:
        """From now on ``request`` is woken. An earlier one, of a client that has not waited for its answer,
        is not any more."""
        with self._lock:
            self._waiting, self._wake = request, None

    def end_waiting(self, request: object) -> None:
        """It waits no longer."""
        with self._lock:
            if self._waiting is request:
                self._waiting = self._wake = None

    def wake_on_change(self, request: object, wake: Wake) -> None:
        """Wake the request that waits once one of its partitions has something to say; now, if one has."""
        with self._lock:
            if self._waiting is not request:
                return
            if not self._changed:
                self._wake = wake
                return
        call_wake(wake)

    def note(self, part: KeptPartition, *, is_news: bool) -> bool:
        """A partition has changed. Returns whether a request waits for more."""
        with self._lock:
            if part.is_forgotten:
                return False
            self._changed.add(part)
            if self._waiting is None:
                return False
            wake = None
            if is_news:
                wake, self._wake = self._wake, None
        call_wake(wake)
        return True
