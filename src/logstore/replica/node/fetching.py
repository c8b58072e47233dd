"""Copying from leaders: a thread for each leader asks for what all partitions that follow it need, in one
request that waits for news, and appends what comes.

Those that have fallen behind have a thread and a connection of their own, a lane: what they copy comes in
megabytes, and an acknowledgement that waits for this node would wait for two such answers.

A leader answers one request of a connection after the other. What waits for news of thousands of partitions
is not given up for one that has just come: a third lane, whose requests are short, asks for it until the lane
of the others has its answer. Requests of those that are behind are short, too: they have something to copy,
or are about to be in sync.

Locks: ``Fetchers._lock`` guards who follows whom. It is not held while a replica, a log or a leader is asked.
``_Lane._lock``, after it, guards whom a lane asks for.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple, Protocol

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import FetchedPartition, Fetcher, FetchPartition, FetchRequest
from logstore.errors import LogstoreError
from logstore.model import Isolation, TopicPartition
from logstore.replica.coordination.interface import Endpoint
from logstore.replica.node.limiting import CatchUpLimit
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.rules.actions import Fetch
from logstore.replica.rules.partition_state import Member
from logstore.schedule import start_thread
from logstore.warning import warn
from logstore.wire.remote.fetches.following_session import FetchNews

MAX_WAIT_MS: Final = 500
"""How long a leader waits for records: Kafka's ``replica.fetch.wait.max.ms``."""
MAX_BYTES: Final = 10 * 1024 * 1024
"""Of one answer, as in Kafka: ``replica.fetch.response.max.bytes``."""
MAX_PARTITION_BYTES: Final = 1024 * 1024
_REST: Final = 1.5
"""Who copies rests for so long, as a share of what it took of the processor itself, if others of the node are
in sync: acknowledgements wait for them."""
_PIECE_BYTES: Final = 256 * 1024
"""Of a partition, at a time, in the same case. With two cores for three nodes and the client, one record in a
hundred takes 2.2 to 2.4 times as long as without copying, in place of 2.9 to 3.3 times with pieces of a
megabyte and half the rest, at seven tenths of the rate."""
_LOOK_SECONDS: Final = 1.0
"""After which a lane looks at all its replicas again, not only at those of which there is news."""
_PAUSE_SECONDS: Final = 0.05
"""Before the first attempt after one that brought nothing; each further one waits twice as long."""
_LONGEST_PAUSE_SECONDS: Final = 1.0
_SHORT_WAIT_MS: Final = 20
"""How long a leader waits for records of those that have just come, or are behind: for so long one more of
them waits until it is asked for."""
_LINGER_SECONDS: Final = 10
"""For which a connection is kept without anything to ask."""
_STOP_SECONDS: Final = 10
_LONG_SECONDS: Final = 5.0
"""For which a leader that the coordinator takes for alive is not reached: one that has just ended is no
trouble."""


class Link(Protocol):
    """A connection to one leader."""

    def change(self, rows: Iterable[FetchPartition], forgotten: Iterable[TopicPartition]) -> None: ...

    def fetch(self, request: FetchRequest) -> Pending[FetchNews]: ...

    def close(self) -> None: ...


Connect = Callable[[Endpoint], Link]


class _Kind(Enum):
    """Whom a lane asks for. The values name the threads."""

    IN_SYNC = "fetcher"
    NEW = "newcomers"
    """In sync, too, but come while that lane waits for an answer."""
    BEHIND = "copier"


class Fetchers:
    """The threads of one node."""

    def __init__(
        self,
        member: Callable[[], Member],
        endpoint_of: Callable[[int], Endpoint | None],
        connect: Connect,
        limit: CatchUpLimit,
    ) -> None:
        self._member = member
        self.endpoint_of = endpoint_of
        self._connect = connect
        self.limit = limit
        self._lock = threading.Lock()
        self._lanes: dict[tuple[int, _Kind], _Lane] = {}
        """By leader."""
        self._followed: dict[PartitionReplica, _Lane] = {}
        self._is_closed = False

    def check(self, replica: PartitionReplica) -> None:
        """Whether a replica follows whom it followed: so it is with most of a thousand, every second."""
        leader, lane = replica.follows, self._followed.get(replica)
        if (None if leader is None else leader.node_id) != (None if lane is None else lane.node_id):
            self.follow(replica)

    def follow(self, replica: PartitionReplica) -> None:
        """A replica follows somebody, or somebody else, or nobody now."""
        with self._lock:
            if self._is_closed:
                return
            leader, before = replica.follows, self._followed.get(replica)
            if leader is not None and before is not None and before.node_id == leader.node_id:
                before.note_news(replica)
                return
            if before is not None:
                del self._followed[replica]
                before.remove(replica)
            if leader is not None:
                self._bring_locked([replica], leader.node_id)

    def change_lane(self, replicas: Iterable[PartitionReplica], before: _Lane) -> None:
        """Replicas have fallen behind, or have caught up. Called by the thread of their lane, which does not
        ask for them just now."""
        with self._lock:
            self._move_locked(replicas, before)

    def take_over(self, replicas: Iterable[PartitionReplica], node_id: int) -> None:
        """They have come while the lane of those in sync waited for its answer. Called by its thread, when it
        has that."""
        with self._lock:
            self._move_locked(replicas, self._lane_locked(node_id, _Kind.NEW))

    def _move_locked(self, replicas: Iterable[PartitionReplica], before: _Lane) -> None:
        moved = [each for each in replicas if self._followed.get(each) is before]
        if not self._is_closed:
            for each in moved:
                before.remove(each)
            self._bring_locked(moved, before.node_id)

    def _bring_locked(self, replicas: list[PartitionReplica], node_id: int) -> None:
        in_sync: list[PartitionReplica] = []
        behind: list[PartitionReplica] = []
        for each in replicas:
            (in_sync if each.is_in_sync else behind).append(each)
        if behind:
            lane = self._lane_locked(node_id, _Kind.BEHIND)
            lane.add(behind)
            self._followed |= dict.fromkeys(behind, lane)
        if in_sync:
            lane = self._lane_locked(node_id, _Kind.IN_SYNC)
            if not lane.add_before_it_asks(in_sync):
                lane.expect(in_sync)
                lane = self._lane_locked(node_id, _Kind.NEW)
                lane.add(in_sync)
            self._followed |= dict.fromkeys(in_sync, lane)

    def note_trouble(self, lane: _Lane, text: str) -> bool:
        """A lane has trouble with its leader. Returns whether that is news."""
        with self._lock:
            is_known = any(
                each.node_id == lane.node_id and each.trouble == text for each in self._lanes.values()
            )
            lane.trouble = text
        return not is_known

    @property
    def is_awaited(self) -> bool:
        """Whether there are replicas that are in sync: acknowledgements wait for them."""
        return any(not each.copies and not each.is_empty for each in self._lanes.copy().values())

    def _lane_locked(self, node_id: int, kind: _Kind) -> _Lane:
        lane = self._lanes.get((node_id, kind))
        if lane is None:
            lane = self._lanes[node_id, kind] = _Lane(self, node_id, kind)
        return lane

    def let_go(self, replica: PartitionReplica) -> None:
        """The node does not hold it any more."""
        with self._lock:
            lane = self._followed.pop(replica, None)
            if lane is not None:
                lane.remove(replica)

    def look_again(self) -> None:
        """Nodes have come or gone: those that could not be reached may be there."""
        with self._lock:
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.ring()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            lanes, self._lanes = list(self._lanes.values()), {}
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.thread.join(_STOP_SECONDS)

    # What a thread asks

    def link_to(self, node_id: int) -> tuple[Endpoint, Link] | None:
        endpoint = self.endpoint_of(node_id)
        return None if endpoint is None else (endpoint, self._connect(endpoint))

    def row(self, replica: PartitionReplica, fetch: Fetch) -> FetchPartition:
        partition = replica.partition
        return FetchPartition(
            partition,
            fetch.offset,
            MAX_PARTITION_BYTES,
            fetch.leader_epoch,
            replica.topic_id,
            fetch.last_fetched_epoch,
            replica.log_start_offset,
        )

    def request(self, wait_ms: int, most_bytes: int) -> FetchRequest:
        """What is asked of the partitions is the link's."""
        member = self._member()
        return FetchRequest(
            (),
            wait_ms,
            max_bytes=most_bytes,
            isolation=Isolation.LOG_END,
            replica=Fetcher(member.node_id, member.life),
        )


class _Asked:
    """What stands of one replica."""

    __slots__ = ("fetch", "replica", "row")

    def __init__(self, replica: PartitionReplica, fetch: Fetch, row: FetchPartition) -> None:
        self.replica = replica
        self.fetch = fetch
        self.row = row


class _Manner(NamedTuple):
    """How a lane that copies asks now."""

    piece_bytes: int | None = None
    """Of each partition whose next batch is not larger; None: as much as of those in sync."""
    rests: bool = False
    """Whether acknowledgements wait for the node meanwhile."""
    most_bytes: int = MAX_BYTES
    """Of one answer."""


class _Delay(NamedTuple):
    """A replica that is not asked for before a time, having waited so long."""

    until: float
    seconds: float


class _Lane:
    """A connection to one leader, for some of those who follow it. The thread ends with the node."""

    def __init__(self, fetchers: Fetchers, node_id: int, kind: _Kind) -> None:
        self.node_id = node_id
        self.copies = kind is _Kind.BEHIND
        self._fetchers = fetchers
        self._wait_ms = MAX_WAIT_MS if kind is _Kind.IN_SYNC else _SHORT_WAIT_MS
        self._lock = threading.Lock()
        self._replicas: dict[PartitionReplica, None] = {}
        self._news: dict[PartitionReplica, bool] = {}
        """Those that may have something else to ask since they were looked at, and whether they have come
        since: another lane may still wait for an answer for them."""
        self._expected: dict[PartitionReplica, None] = {}
        """Those for which the lane of newcomers asks until this one has its answer."""
        self._asks = False
        """Whether it has begun to say what it asks, and has no answer yet."""
        self._asked: dict[TopicPartition, _Asked] = {}
        """What stands. The thread's."""
        self._manner = _Manner()
        """The thread's."""
        self._look_at = 0.0
        """When to look at all of them again. The thread's."""
        self._large: set[PartitionReplica] = set()
        """Those whose next batch is larger than what the limit lets them ask for: of a request only the first
        partition that has anything gives a batch beyond its limit (KIP-74). The thread's."""
        self._delayed: dict[PartitionReplica, _Delay] = {}
        """Those that had trouble."""
        self._others: list[PartitionReplica] = []
        """Those that belong into the other lane, as the last answer has shown. The thread's."""
        self._used_at = 0.0
        """When it asked last. The thread's."""
        self._bell = threading.Event()
        self._is_stopped = False
        self._endpoint: Endpoint | None = None
        self._link: Link | None = None
        self._pause = _PAUSE_SECONDS
        self.trouble: str | None = None
        """What was told last."""
        self._unreached_since: float | None = None
        self.thread = start_thread(
            self._run,
            f"logstore-replica-{kind.value}-{node_id}",
            what="to copy from a leader",
        )

    # Called by others

    @property
    def is_empty(self) -> bool:
        return not self._replicas

    def add(self, replicas: Iterable[PartitionReplica]) -> None:
        """Ask for these, too, from the next request on."""
        with self._lock:
            self._add_locked(replicas)
        self._bell.set()

    def add_before_it_asks(self, replicas: Iterable[PartitionReplica]) -> bool:
        """Returns whether it was so: now it may wait for an answer."""
        with self._lock:
            if self._asks:
                return False
            self._add_locked(replicas)
        self._bell.set()
        return True

    def _add_locked(self, replicas: Iterable[PartitionReplica]) -> None:
        added = dict.fromkeys(replicas)
        self._replicas |= added
        self._news |= dict.fromkeys(added, True)
        for each in added:
            self._delayed.pop(each, None)

    def expect(self, replicas: Iterable[PartitionReplica]) -> None:
        """Take these over from the lane of newcomers when there is an answer."""
        with self._lock:
            self._expected |= dict.fromkeys(replicas)
        self._bell.set()

    def note_news(self, replica: PartitionReplica) -> None:
        with self._lock:
            self._delayed.pop(replica, None)
            self._news.setdefault(replica, False)
        self._bell.set()

    def remove(self, replica: PartitionReplica) -> None:
        with self._lock:
            self._replicas.pop(replica, None)
            self._delayed.pop(replica, None)
            self._news[replica] = False

    def ring(self) -> None:
        self._bell.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._bell.set()

    # The thread

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                seconds = self._step()
            except LogstoreError as error:
                self._note_trouble(f"{type(error).__name__}: {error}", "")
                self._drop_link()
                seconds = self._next_pause()
            if seconds and not self._is_stopped:
                self._bell.wait(seconds)
                self._bell.clear()
        self._drop_link()

    def _next_pause(self) -> float:
        """How long to wait after one more attempt that did not reach the leader."""
        seconds, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return seconds

    def _step(self) -> float:
        """One request. Returns for how many seconds there is nothing to do, or no way to do it."""
        self._take_expected()
        soonest, is_idle = self._due()
        if is_idle:
            self._release_removed()
            if self.is_empty:
                self.trouble = None
            if time.monotonic() - self._used_at >= _LINGER_SECONDS:
                self._drop_link()
            return soonest
        link = self._find_link()
        if link is None:
            return self._next_pause()
        most_ms = min(self._wait_ms, math.ceil(soonest * 1000))
        manner = self._choose_manner()
        link.change(*self._changes(manner))
        held_ms = self._fetchers.limit.wait_ms if self.copies else 0
        if held_ms or not self._asked:  # what was asked stands until the limit lets more come
            return min(_PAUSE_SECONDS, (held_ms or most_ms) / 1000)
        began = time.thread_time()
        news = self._ask(link, most_ms, manner.most_bytes)
        if news is None:  # the node ends
            return 0.0
        self._used_at = time.monotonic()
        if not self._take(news):
            return self._next_pause()
        self._pause, self._unreached_since = _PAUSE_SECONDS, None
        if manner.rests:
            time.sleep((time.thread_time() - began) * _REST)
        return 0.0

    def _take_expected(self) -> None:
        with self._lock:
            self._asks = False
            expected, self._expected = self._expected, {}
        if expected:
            self._fetchers.take_over(expected, self.node_id)

    def _due(self) -> tuple[float, bool]:
        """In how many seconds the first of the replicas that are not to be asked for yet is, and whether
        there are no others."""
        with self._lock:
            if not self._delayed:
                return _LONGEST_PAUSE_SECONDS, not self._replicas
            now = time.monotonic()
            later = [delay.until - now for delay in self._delayed.values() if delay.until > now]
            return min(later, default=_LONGEST_PAUSE_SECONDS), len(later) == len(self._replicas)

    def _release_removed(self) -> None:
        """There is nothing to ask: those that have gone since may be asked for by another lane."""
        with self._lock:
            removed = [each for each in self._news if each not in self._replicas]
            for each in removed:
                del self._news[each]
        forgotten = [each.partition for each in removed if self._release(each)]
        if self._link is not None:
            self._link.change((), forgotten)

    def _release(self, replica: PartitionReplica) -> bool:
        """Wait for no answer for it any more. Returns whether one was awaited."""
        self._large.discard(replica)
        asked = self._asked.get(replica.partition)
        if asked is None or asked.replica is not replica:
            return False
        del self._asked[replica.partition]
        replica.on_answer(asked.fetch, None)  # another lane may ask then
        return True

    def _choose_manner(self) -> _Manner:
        limit = self._fetchers.limit
        if not self.copies:
            return _Manner()
        if not limit.is_set:
            rests = self._fetchers.is_awaited
            return _Manner(_PIECE_BYTES if rests else None, rests)
        piece_bytes = limit.piece_bytes(len(self._replicas) or 1)
        return _Manner(min(piece_bytes, MAX_PARTITION_BYTES), most_bytes=min(limit.answer_bytes, MAX_BYTES))

    def _changes(self, manner: _Manner) -> tuple[list[FetchPartition], list[TopicPartition]]:
        """What to ask the leader of those of which there is news, and what to ask it no more."""
        now = time.monotonic()
        with self._lock:
            self._asks = True
            looked_at, self._news = self._news, {}
            if manner != self._manner or now >= self._look_at:
                looked_at = dict.fromkeys(self._replicas, False) | looked_at
                self._manner, self._look_at = manner, now + _LOOK_SECONDS
            elif self._delayed:
                looked_at = dict.fromkeys(self._delayed, False) | looked_at
            later = {each for each, delay in self._delayed.items() if delay.until > now}
            present = {each: each in self._replicas and each not in later for each in looked_at}
        caught_up = [
            each for each, is_there in present.items() if is_there and self.copies and each.is_in_sync
        ]
        present |= dict.fromkeys(caught_up, False)
        wanted: dict[TopicPartition, FetchPartition | None] = {}
        for replica in [each for each, is_there in present.items() if not is_there]:
            if self._release(replica):
                wanted[replica.partition] = None
        self._fetchers.change_lane(caught_up, self)
        for replica in [each for each, is_there in present.items() if is_there]:
            asked = self._plan(replica, is_new=looked_at[replica])
            wanted[replica.partition] = None if asked is None else self._row(asked, manner)
        rows = [row for row in wanted.values() if row is not None]
        return rows, [each for each, row in wanted.items() if row is None]

    def _plan(self, replica: PartitionReplica, *, is_new: bool) -> _Asked | None:
        """What a replica asks; None if nothing."""
        before = self._asked.get(replica.partition)
        if before is not None and before.replica is replica and replica.asks(before.fetch):
            return before
        self._asked.pop(replica.partition, None)
        try:
            fetch = replica.plan_fetch(anew=is_new)
        except LogstoreError as error:
            self._put_off(replica, error)
            return None
        if fetch is None:
            return None
        if fetch.leader_id != self.node_id:  # it follows another since
            replica.on_answer(fetch, None)
            return None
        asked = _Asked(replica, fetch, self._fetchers.row(replica, fetch))
        self._asked[replica.partition] = asked
        return asked

    def _row(self, asked: _Asked, manner: _Manner) -> FetchPartition:
        if manner.piece_bytes is None or asked.replica in self._large:
            return asked.row
        return asked.row._replace(max_bytes=manner.piece_bytes)

    def _ask(self, link: Link, wait_ms: int, most_bytes: int) -> FetchNews | None:
        """None if the node ends before the leader has answered."""
        pending = link.fetch(self._fetchers.request(wait_ms, most_bytes))
        pending.on_wake(self._bell.set)
        while True:
            news = pending.poll()
            if news is not None:
                return news
            if self._is_stopped:
                pending.cancel()
                return None
            self._bell.wait()
            self._bell.clear()
            pending.on_wake(self._bell.set)

    def _find_link(self) -> Link | None:
        endpoint = self._fetchers.endpoint_of(self.node_id)
        if endpoint != self._endpoint:
            self._drop_link()
        if endpoint is None:  # it is gone
            self._unreached_since = None
        if self._link is None:
            found = self._fetchers.link_to(self.node_id)
            if found is not None:
                self._endpoint, self._link = found
        return self._link

    def _drop_link(self) -> None:
        link, self._link, self._endpoint = self._link, None, None
        if link is not None:
            link.close()
        self._look_at = 0.0

    def _take(self, news: FetchNews) -> bool:
        """Returns whether the leader was reached, whatever it said."""
        outcomes = news.partitions
        if news.error in _UNREACHED:
            self._note_unreached(news)
            return False
        if news.error is not NONE:
            outcomes = tuple(
                [FetchedPartition(each, news.error, message=news.message) for each in self._asked]
            )
        for outcome in outcomes:
            asked = self._asked.get(outcome.partition)
            if asked is not None:
                self._take_one(asked, outcome)
        if self._others:
            self._fetchers.change_lane(self._others, self)
            self._others.clear()
        return True

    def _take_one(self, asked: _Asked, outcome: FetchedPartition) -> None:
        replica = asked.replica
        with self._lock:
            self._news.setdefault(replica, False)
        try:
            is_answer = replica.on_answer(asked.fetch, outcome)
        except LogstoreError as error:
            self._put_off(replica, error)
            return
        if is_answer:
            self._note_answer(asked, outcome)
        else:
            self._delay_refused(replica)
            self._note_refusal(replica, outcome)

    def _note_answer(self, asked: _Asked, outcome: FetchedPartition) -> None:
        replica = asked.replica
        if outcome.data:
            self._large.discard(replica)
        if not replica.is_in_sync:
            if outcome.data:
                self._fetchers.limit.note(len(outcome.data))
                if not self.copies:
                    self._others.append(replica)
            elif outcome.high_watermark > asked.fetch.offset:
                self._large.add(replica)
        replica.note_well()
        self._end_delay(replica)
        if not self._delayed:
            self.trouble = None

    def _end_delay(self, replica: PartitionReplica) -> None:
        if self._delayed:
            with self._lock:
                self._delayed.pop(replica, None)

    def _delay_refused(self, replica: PartitionReplica) -> None:
        """A leader that has not heard yet that it leads will have, soon. Others have news meanwhile, and do
        not wait."""
        before = self._delayed.get(replica)
        seconds = _PAUSE_SECONDS if before is None else min(before.seconds * 2, _LONGEST_PAUSE_SECONDS)
        self._delay(replica, seconds)

    def _put_off(self, replica: PartitionReplica, error: LogstoreError) -> None:
        replica.note_trouble(error)
        self._delay(replica, _LONGEST_PAUSE_SECONDS)

    def _delay(self, replica: PartitionReplica, seconds: float) -> None:
        with self._lock:
            if replica in self._replicas:  # it may have been removed meanwhile
                self._delayed[replica] = _Delay(time.monotonic() + seconds, seconds)

    def _note_refusal(self, replica: PartitionReplica, outcome: FetchedPartition) -> None:
        if outcome.error is not NONE and outcome.error not in _WHILE_LEADERS_CHANGE:
            why = outcome.message or _ADVICE.get(outcome.error, "")
            self._note_trouble(f"{outcome.error.name} {why}".rstrip(), f"{replica.partition}: ")

    def _note_unreached(self, news: FetchNews) -> None:
        """Once, until it was reached: what each attempt says may differ."""
        now = time.monotonic()
        if self._unreached_since is None:
            self._unreached_since = now
        elif now - self._unreached_since >= _LONG_SECONDS and self.trouble is None:
            self._note_trouble(news.message or news.error.name, "")

    def _note_trouble(self, text: str, of_what: str) -> None:
        """Once while it is the same; it may be the same of each of a thousand partitions, and of other
        lanes."""
        if self._fetchers.note_trouble(self, text):
            warn("node %d does not answer as a leader: %s%s", self.node_id, of_what, text)


_ADVICE: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this node needs the right CLUSTER_ACTION there: make it a "
    "super user, or give it an ACL"
}
_WHILE_LEADERS_CHANGE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_UNREACHED: Final = frozenset({ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION})
"""Nobody is there; or this node's certificate, or the leader's, is not accepted."""
