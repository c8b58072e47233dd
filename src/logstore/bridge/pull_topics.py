"""Topics of a cluster, followed: each partition is copied with the same offsets and the same bytes.

One thread, the caller's, fetches from all leaders at once and appends. All that it has to know after an end,
of whatever kind, is in the logs themselves: the next offset is the end of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from logstore.arguments import check_flag, plain_text, shown
from logstore.bridge.cluster import ClusterQuestions, ClusterTopic, ClusterTopics
from logstore.bridge.followed_topics import FollowedTopics
from logstore.bridge.pace import Pace
from logstore.bridge.partition_copy import CopyCounts, PartitionCopy
from logstore.bridge.progress import NOT_ASKED, PartitionProgress, PullProgress
from logstore.bridge.trouble import OneRun, Trouble, is_denied, is_no_login
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.requests import FetchedPartition
from logstore.connected import RemoteStore
from logstore.errors import (
    CorruptionError,
    DiskFullError,
    LogstoreError,
    RetriableError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.names import check_topic_name
from logstore.model import TopicPartition
from logstore.store import Store
from logstore.turns import SafeEvent
from logstore.warning import warn

REFRESH_MS: Final = 5_000
"""How often to look for new partitions, and for topics that are gone. Kafka's clients: 5 minutes."""
_WAIT_MS: Final = 500
"""How long a fetch waits for records, as in Kafka. A stop takes as long."""
_MOST_MISSES: Final = 3
_REST_SECONDS: Final = 1.0
"""How long a partition that cannot be copied is left out."""
_PASSING: Final = (RetriableError, UnknownTopicError)
"""What is waited for."""
_PASSING_OF_STANDBY: Final = (*_PASSING, DiskFullError)
"""Nobody starts a standby again when there is room."""


def pull(source: RemoteStore, store: Store, *topics: str) -> PullBridge:
    """Make a :class:`PullBridge`, which copies topics of a cluster into a store. Nothing happens before
    :meth:`PullBridge.run`.

    ::

        with logstore.open("copy") as store, logstore.connect("kafka-1:9092") as cluster:
            bridge.pull(cluster, store, "orders").run()

    Args:
        source: the cluster.
        store: the store, open for writing.
        topics: their names.

    Raises:
        UsageError: no topic is named, or an internal one is.
        InvalidTopicError: Kafka would refuse a name.
        ReadOnlyError, ClosedError: the store cannot be written, or one of both is closed.
    """
    return PullBridge(source, store, check_names(topics))


def check_names(topics: Iterable[str]) -> tuple[str, ...]:
    """The names, each once.

    Raises:
        UsageError: there is none; or one is internal: each cluster and store has its own; or they are one
            text, not a list.
        InvalidTopicError: Kafka would refuse one.
    """
    if isinstance(topics, str):
        raise UsageError(f"topics is {shown(topics)}; give a list of names, such as [{shown(topics)}]")
    given = [plain_text(name) for name in topics]
    if lists := [name for name in given if isinstance(name, (list, tuple, set, frozenset))]:
        raise UsageError(
            f"{shown(lists[0])} is no name of a topic; give each name by itself: *{shown(lists[0])}"
        )
    names = tuple(dict.fromkeys(given))
    for name in names:
        check_topic_name(name)
        if name in INTERNAL_TOPICS:
            raise UsageError(f"topic {name!r} is internal: the cluster and the store have one each")
    if not names:
        raise UsageError("no topic is named; name those that are to be copied")
    return names


class PullBridge:
    """Follows topics of a cluster. Made by :func:`pull`; :meth:`run` does the work.

    While a topic is followed, its logs have the role of followers: the high watermark is the cluster's, and
    nothing else may append to them.
    """

    def __init__(
        self, source: RemoteStore, store: Store, topics: Sequence[str] | None, leader: Sequence[str] = ()
    ) -> None:
        """
        Args:
            topics: None follows all that there are, and those that come, except for internal ones. One that
                is deleted at the cluster is then followed no more.
            leader: its addresses, for a standby: it goes on without a topic that cannot be copied.
        """
        self._stopping = SafeEvent()
        self._cluster = ClusterQuestions(source, self._stopping)
        self._pace = Pace(self._cluster.most_fetch_bytes, self._cluster.config.request_timeout_ms)
        self._store = store
        self._topics = FollowedTopics(store, self._cluster, tuple(leader))
        self._is_standby = bool(leader)
        self._passing = _PASSING_OF_STANDBY if leader else _PASSING
        self._names = None if topics is None else tuple(topics)
        self._counts = CopyCounts()
        self._copies: dict[TopicPartition, PartitionCopy] = {}
        self._order: list[PartitionCopy] = []
        """In which to fetch: those first that got nothing last time."""
        self._refresh_at = 0.0
        self._broken_count = 0
        """Of connections, as it was when this was last looked at."""
        self._broken_since = 0.0
        """Since when no fetch was answered, as connections broke; 0 if the last one was answered."""
        self._misses = 0
        self._was_reached = False
        """Whether the cluster has ever answered."""
        self._were_listed = False
        """Whether all its topics have been looked at once."""
        self._leaders: dict[str, ClusterTopic] = {}
        self._refused: dict[str, LogstoreError] = {}
        """Of a standby: what cannot be followed, as it was when the topics were last looked at."""
        self._stopped: dict[str, LogstoreError] = {}
        """Of a standby: what could not be copied any more, until the topic is deleted here."""
        self._trouble = Trouble("pulling " + ("all topics" if topics is None else ", ".join(topics)))
        self._trouble_of_some = Trouble("a part of the copy")
        self._one_run = OneRun()
        store.directory.check_open()

    def run(self, *, until_end: bool = False) -> PullProgress:
        """Copy what is there and what comes, until :meth:`stop`. With ``until_end`` only what is there.

        If the cluster does not answer, a warning says so, and it is asked again, less and less often, at
        least twice a minute; with ``until_end`` for ``request_timeout_ms`` of the connection. A warning tells
        of partitions that nobody leads at the moment, too, and the others are copied meanwhile.

        Cost: one fetch at a time, of up to 50 MiB where the line is fast, and that of
        :meth:`.Log.append_replicated`. Memory: the answer to a fetch.

        Returns:
            What was done in this run, and in earlier ones of this object.

        Raises:
            UnknownTopicError: the cluster does not have a topic, or has it no longer.
            UsageError: the topic here is of another cluster, or is not a copy; the topic of the cluster was
                deleted and made again; or the cluster does not allow it. Or it runs already.
            OutOfOrderError: the log here is not a beginning of the cluster's: the two have diverged.
            RetriableError: with ``until_end``: the cluster does not answer.
            CorruptionError: a batch is damaged at the cluster.
            StorageError: the disk failed.
        """
        check_flag(until_end, "until_end")
        with self._one_run:
            self._refresh_at = 0.0
            for trouble in (self._trouble, self._trouble_of_some):
                trouble.begin_run()
            for copy in self._order:
                copy.goal = None
            try:
                self._run(until_end)
            finally:
                self._stopping.clear()
        return self.progress

    def _run(self, until_end: bool) -> None:
        limit_ms = self._cluster.config.request_timeout_ms if until_end else None
        while not self._stopping.wait(self._cluster.delay):  # earlier, no broker would hear it
            try:
                if self._step(until_end):
                    self._trouble.end()
                    return
                self._count_misses()
            except self._passing as error:
                if self._stopping.is_set():
                    return  # its connection may be closed already
                if self._names is not None and isinstance(error, UnknownTopicError):
                    raise
                self._refresh_at = 0.0  # a topic may have been deleted in between
                self._trouble.note(error, limit_ms)
                self._trouble.wait(self._stopping)
            else:
                self._tell_of_resting(limit_ms)

    def stop(self) -> None:
        """End the run, or the next one, if none is going on: within a second, or within two while the cluster
        does not answer. From any thread, and from a signal handler."""
        self._stopping.set()

    @property
    def progress(self) -> PullProgress:
        """What was done up to now. From any thread."""
        counts = self._counts
        were_unknown = self._why_ends_are_unknown()  # they may be found while the others are looked at
        partitions = tuple(
            PartitionProgress(each.partition, each.position, each.end_offset)
            for _, each in sorted(self._copies.copy().items())
        )
        trouble = self._trouble.reason or self._trouble_of_some.reason
        stopped = self._refused | self._stopped
        return PullProgress(
            partitions,
            counts.batches,
            counts.bytes,
            counts.truncated,
            counts.skipped,
            trouble or were_unknown or self._why_ends_are_unknown() or _why_not_all(stopped),
            stopped,
        )

    def _why_ends_are_unknown(self) -> str | None:
        """Told as trouble, as nothing is left of a partition whose end at the cluster is not known: a copy
        that has just begun would look like one that has everything."""
        if not self._were_listed:
            return NOT_ASKED
        unknown = [copy.partition for copy in self._copies.copy().values() if not copy.is_end_known]
        if not unknown:
            return None
        others = f"; and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        return f"{unknown[0]}: not compared with the cluster's log yet{others}"

    def what_is_missing(self) -> str | None:
        """What the copies may lack of what the cluster had when it was last asked; None if that is nothing,
        as far as is known. When the run has ended."""
        if not self._were_listed:
            return f"{NOT_ASKED}: topics may be missing, and the ends of others"
        copies = sorted(self._copies.values(), key=lambda copy: copy.partition)
        behind = [copy for copy in copies if copy.is_end_known and copy.end_offset > copy.position]
        unknown = [copy for copy in copies if not copy.is_end_known]
        told: list[str] = []
        if behind:
            left = sum(copy.end_offset - copy.position for copy in behind)
            told.append(
                f"{left} offsets of {len(behind)} partitions were not copied, such as those from "
                f"{behind[0].position} on of {behind[0].partition}"
            )
        if unknown:
            told.append(
                f"{len(unknown)} partitions were not compared with the cluster's, such as "
                f"{unknown[0].partition}, which ends at {unknown[0].position} here"
            )
        not_all = _why_not_all(self._refused | self._stopped)
        if not_all is not None:
            told.append(not_all)
        return "; ".join(told) or None

    # One step

    def _count_misses(self) -> None:
        """After a step. A leader that has moved, or has deleted what is next, is looked at again at once; if
        that does not help, after a while."""
        if all(each.is_compared or self._rests(each) for each in self._order):
            self._misses = 0
            self._trouble.end()
            return
        self._refresh_at = 0.0
        self._misses += 1
        if self._misses > _MOST_MISSES:
            raise RetriableError("the cluster does not agree with itself who leads a partition, and how far")

    def _step(self, until_end: bool) -> bool:
        """Fetch once. Returns whether all was copied, if that is the end."""
        if time.monotonic() >= self._refresh_at:
            self._refresh()
        self._compare()
        order = [each for each in self._order if each.is_compared and not self._rests(each)]
        if not order:
            self._stopping.wait(_WAIT_MS / 1000)
            return until_end and not self._order
        self._look_back_after_breaks()
        answers = self._fetch(order, 0 if until_end else _WAIT_MS)
        if self._look_back_after_breaks() or answers is None:
            return False  # the answer may be another process's than the one whose log was compared
        all_empty = not any(answer.data for answer in answers)
        for copy, answer in zip(order, answers, strict=True):
            if self._is_copied(copy):
                take = partial(copy.take, answer, had_room=all_empty)
                self._attempt(copy.partition.topic, take, copy)
        asked = set(order)
        left_out = [each for each in self._order if each not in asked]
        self._order = [each for each in [*_hungry_first(order, answers), *left_out] if self._is_copied(each)]
        pairs = zip(order, answers, strict=True)
        is_all = all(copy.is_at_end(answer, all_empty=all_empty) for copy, answer in pairs)
        return until_end and is_all and not left_out

    def _fetch(
        self, copies: Sequence[PartitionCopy], max_wait_ms: int
    ) -> tuple[FetchedPartition, ...] | None:
        """None if a connection has broken meanwhile. It may have carried too much at a time.

        Raises:
            RetriableError: there is no answer, or connections have broken for as long as one may take.
        """
        began = time.monotonic()
        wanted = [each.wanted for each in copies]
        try:
            answers = self._cluster.fetch(wanted, max_wait_ms, self._pace.step_bytes, self._has_broken)
        except RetriableError:
            self._pace.failed()
            if not self._has_broken():
                raise
            self._broken_since = self._broken_since or began
            if (time.monotonic() - self._broken_since) * 1000 >= self._cluster.config.request_timeout_ms:
                raise
            return None
        self._broken_since = 0.0
        byte_count = sum(len(answer.data) for answer in answers)
        elapsed_ms = (time.monotonic() - began) * 1000
        if 2 * byte_count < self._pace.step_bytes:
            elapsed_ms -= max_wait_ms  # the broker may have waited for more
        self._pace.took(byte_count, elapsed_ms)
        return answers

    def _has_broken(self) -> bool:
        return self._cluster.broken_count != self._broken_count

    def _look_back_after_breaks(self) -> bool:
        """Whether a connection to the cluster has broken since this was asked last: each copy then looks
        whether its last batch is still the cluster's."""
        before, self._broken_count = self._broken_count, self._cluster.broken_count
        if before == self._broken_count:
            return False
        for copy in self._copies.values():
            copy.look_back()
        return True

    def _compare(self) -> None:
        for copy in self._order.copy():
            if not copy.is_compared and self._is_copied(copy) and not self._rests(copy):
                self._attempt(
                    copy.partition.topic, partial(copy.compare, self._epoch_of(copy.partition)), copy
                )
                if self._rests(copy):
                    return  # the same may hold for others, so look at them all first

    @staticmethod
    def _rests(copy: PartitionCopy) -> bool:
        """Whether it is not asked for now."""
        return not copy.is_led or time.monotonic() < copy.rests_until

    def _let_rest(self, copy: PartitionCopy, error: LogstoreError) -> None:
        copy.rests_until, copy.why_it_rests = time.monotonic() + _REST_SECONDS, str(error)
        copy.is_compared = False

    def _tell_of_resting(self, limit_ms: int | None) -> None:
        """
        Raises:
            RetriableError: partitions are left out for longer.
        """
        resting = [each for each in self._order if not each.is_led or each.why_it_rests]
        if not resting:
            self._trouble_of_some.end()
            return
        if self._stopping.is_set():
            return  # its connection may be closed already
        self._refresh_at = min(self._refresh_at, time.monotonic() + _REST_SECONDS)
        others = f"; and {len(resting) - 1} more" if len(resting) > 1 else ""
        first = resting[0]
        why = first.why_it_rests if first.is_led else "nobody leads it at the cluster"
        error = RetriableError(f"{first.partition}: {why}{others}")
        self._trouble_of_some.note(error, limit_ms)

    def _is_copied(self, copy: PartitionCopy) -> bool:
        return self._copies.get(copy.partition) is copy

    def _attempt(self, name: str, work: Callable[[], None], copy: PartitionCopy | None = None) -> None:
        """Do a part of the work for a topic, or for one of its partitions. What was deleted here is looked at
        again. A standby goes on without a topic that cannot be copied. A partition that has to wait holds
        up no others; that of a standby also until it is allowed again: nobody starts it again then."""
        try:
            work()
        except LogstoreError as error:
            if not self._topics.are_here(name, None if copy is None else copy.log):
                self._forget(name)
                self._refresh_at = 0.0
            elif copy is not None and self._may_pass(error) and not self._stopping.is_set():
                self._let_rest(copy, error)
            elif not self._is_standby or not _is_of_topic(error):
                raise
            elif isinstance(error, UnknownTopicError):  # the next look tells whether it was deleted
                for copy in self._copies_of(name):
                    copy.is_compared = False
            else:
                self._stopped[name] = error
                self._forget(name)
                _tell_end(name, error)

    def _may_pass(self, error: LogstoreError) -> bool:
        return isinstance(error, RetriableError) or (self._is_standby and is_denied(error))

    def _copies_of(self, name: str) -> list[PartitionCopy]:
        return [copy for copy in self._copies.values() if copy.partition.topic == name]

    def _forget(self, name: str) -> None:
        """Copy a topic no more."""
        for copy in self._copies_of(name):
            del self._copies[copy.partition]
        self._order = [each for each in self._order if each.partition.topic != name]

    def _epoch_of(self, partition: TopicPartition) -> int:
        return self._leaders[partition.topic].leader_epochs[partition.partition]

    def _refresh(self) -> None:
        """Look at the topics: which partitions there are, and in which epochs their leaders are.

        Raises:
            UnknownTopicError, UsageError: a topic is gone, or is another. A standby goes on without it.
        """
        if not self._was_reached:
            self._cluster.reach()
        found = self._topics_there()
        self._was_reached = True
        refused = self._missing(found) | found.refused
        if refused and not self._is_standby:
            raise next(iter(refused.values()))
        for name in self._leaders.keys() - found.topics.keys():
            self._let_go(name)
        self._stopped = {name: error for name, error in self._stopped.items() if name in self._store}
        refused |= self._topics.prepare(found)
        if refused and not self._is_standby:
            raise next(iter(refused.values()))
        for name, error in refused.items():
            self._forget(name)
            if type(error) is not type(self._refused.get(name)):
                _tell_end(name, error)
        self._leaders, self._refused = found.topics, refused
        self._refresh_at = time.monotonic() + REFRESH_MS / 1000
        for name, topic in found.topics.items():
            if name not in refused and name not in self._stopped:
                self._attempt(name, partial(self._take_up, topic))
        self._were_listed = True

    def _topics_there(self) -> ClusterTopics:
        """Asked a second time if one is missing that was there, or should be, and is not known to be gone."""
        names = self._leaders.keys() if self._names is None else set(self._names) - self._refused.keys()
        counts = {name: self._topics.count_here(name) for name in names}
        return self._cluster.topics_now(self._names, counts, names)

    def _missing(self, found: ClusterTopics) -> dict[str, LogstoreError]:
        """The named topics that the cluster does not have."""
        missing: dict[str, LogstoreError] = {}
        for name in self._names or ():
            if name not in found.topics and name not in found.refused:
                was_there = name in self._leaders
                is_awaited = self._is_standby and name not in self._store
                missing[name] = UnknownTopicError(
                    f"the cluster {found.cluster_id} has no topic {name!r}"
                    + ": it was deleted there. What was copied is still here" * was_there
                    + "; it is copied as soon as it is created there" * is_awaited
                )
        return missing

    def _let_go(self, name: str) -> None:
        """A topic was deleted at the cluster."""
        if self._names is None and name in self._store:
            warn(
                "topic %r was deleted at the cluster, or may not be seen; what was copied is still here",
                name,
            )
        self._forget(name)

    def _take_up(self, topic: ClusterTopic) -> None:
        """Copy the partitions of a topic that are new, or were opened again."""
        new: list[PartitionCopy] = []
        for log in self._topics.logs(topic.name):
            copy = self._copies.get(log.partition)
            if copy is None or copy.log is not log:
                copy = self._copies[log.partition] = PartitionCopy(
                    self._cluster, log, topic.topic_id, self._counts
                )
                new.append(copy)
            elif copy.leader_epoch != self._epoch_of(log.partition):
                copy.is_compared = False
            copy.is_led = topic.is_led[log.partition.partition]
        if new:
            self._order = [each for each in self._order if self._is_copied(each)] + new


def _why_not_all(stopped: Mapping[str, LogstoreError]) -> str | None:
    """Why the copies are not all that the cluster has, although they are followed up to its end."""
    if not stopped:
        return None
    name = min(stopped)
    others = f"; and {len(stopped) - 1} more" if len(stopped) > 1 else ""
    return f"topic {name!r} is not copied: {stopped[name]}{others}"


def _is_of_topic(error: LogstoreError) -> bool:
    """Whether one topic is to blame, so that the others can be copied all the same."""
    return isinstance(error, (UsageError, CorruptionError)) and not is_no_login(error)


def _tell_end(name: str, error: LogstoreError) -> None:
    warn("topic %r is not copied: %s", name, error)


def _hungry_first(order: Sequence[PartitionCopy], answers: Sequence[FetchedPartition]) -> list[PartitionCopy]:
    """A full answer has nothing of the partitions that were asked for last."""
    pairs = list(zip(order, answers, strict=True))
    hungry = [copy for copy, answer in pairs if not answer.data]
    return hungry + [copy for copy, answer in pairs if answer.data]
