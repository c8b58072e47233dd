"""The share groups of a directory: their members, and the partitions that they work on (KIP-932).

Every member may take records of every partition of its topics: a record goes to the worker that asks first.
Groups have no generations and no rebalances. The protocol is Kafka's, with fewer duties: a broker elsewhere
cannot see that a member is gone, and removes it after a while; here its locks run out, which is all that
matters to the others.

Locks: ``_lock`` guards the groups and their members. Those of partitions are taken without it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.share.held import HeldPartition, ShareStorage, records_of
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgedPartition,
    DescribedShareGroup,
    Done,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchedPartition,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupMember,
)
from logstore.broker.share.stored import ShareState
from logstore.broker.share.waiting import WaitingFetch
from logstore.errors import CorruptionError, LogstoreError, StorageError, UnknownTopicError, UsageError
from logstore.format.messages.share_records import ShareKey
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition

_NO_LIMIT: Final = 2**31

MEMBER_SECONDS: Final = 3600
"""A member that was not heard of for so long is gone."""


WhenDurable = Callable[[Sequence[ShareKey], Done[ErrorCode]], None]
"""Calls back when no power cut can take what was stored of partitions in groups."""


class _Member:
    def __init__(self, joins: ShareGroupHeartbeat, heard_ms: int) -> None:
        self.client_id = joins.client_id
        self.topics = joins.topics
        self.epoch = 1
        self.heard_ms = heard_ms


class _Group:
    def __init__(self, name: str) -> None:
        self.name = name
        self.config: ShareGroupConfig | None = None
        """Of its members; None before the first."""
        self.members: dict[str, _Member] = {}
        self.held: dict[TopicPartition, HeldPartition] = {}


class ShareCoordinator:
    """Of one directory. All methods may be called from many threads."""

    def __init__(
        self,
        directory: LogDirectory,
        storage: ShareStorage,
        stored: Mapping[ShareKey, ShareState],
        when_durable: WhenDurable,
    ) -> None:
        self._directory = directory
        self._clock = directory.context.clock
        self._storage = storage
        self._when_durable = when_durable
        self._stored = dict(stored)
        """What no group has taken up yet."""
        self._known = {(key.group_id, key.topic_id) for key in stored}
        """The topics of each group."""
        self._lock = threading.Lock()
        self._groups: dict[str, _Group] = {}

    def close(self) -> None:
        """What failed goes to the dead-letter topics."""
        for held in self._all_held():
            held.close()

    def _all_held(self) -> list[HeldPartition]:
        with self._lock:
            return [held for group in self._groups.values() for held in group.held.values()]

    # Members

    def heartbeat(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        """A member joins (epoch 0), is alive, or leaves (epoch -1)."""
        if not beat.group or not beat.member_id:
            return ShareGroupHeartbeatResult(ErrorCode.INVALID_GROUP_ID, message="a group needs a name")
        if beat.member_epoch == LEAVING:
            return self._leave(beat)
        try:
            return self._join(beat)
        except LogstoreError as error:
            return ShareGroupHeartbeatResult(code_of(error), message=str(error))

    def _join(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        """
        Raises:
            LogstoreError: there is no such topic, or the state of a partition cannot be stored.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            group = self._groups.get(beat.group)
            member = None if group is None else group.members.get(beat.member_id)
            if member is None and beat.member_epoch != JOINING:
                return ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
            topics = beat.topics if member is None or beat.topics else member.topics
            entries = [self._directory.topic(name) for name in topics]
            if group is None:
                group = _Group(beat.group)
            if member is None:
                self._check_config_locked(group, beat, now_ms)
                member = _Member(beat, now_ms)
            member.topics, member.heard_ms = topics, now_ms
            self._hold_locked(group, entries, group.config or beat.config)
            group.config = group.config or beat.config
            group.members[beat.member_id] = member
            self._groups[beat.group] = group
        assignment = tuple(
            TopicPartition(entry.name, number) for entry in entries for number in entry.held_partitions
        )
        return ShareGroupHeartbeatResult(ErrorCode.NONE, beat.member_id, member.epoch, assignment)

    def _check_config_locked(self, group: _Group, joins: ShareGroupHeartbeat, now_ms: int) -> None:
        """Members that are gone do not count, and the settings of the others hold.

        Raises:
            UsageError: the member wants others, or a dead-letter topic that would lose records.
            UnknownTopicError: there is no such dead-letter topic.
        """
        for name, member in list(group.members.items()):
            if now_ms - member.heard_ms > MEMBER_SECONDS * 1000:
                del group.members[name]
        if not group.members:
            group.config = None
        dead_letter_topic = joins.config.dead_letter_topic
        if dead_letter_topic is not None:
            self._check_dead_letter_topic(dead_letter_topic, joins.topics)
        if group.config is None or group.config == joins.config:
            return
        differences = ", ".join(
            f"{name} is {have!r} and not {want!r}"
            for name, have, want in zip(joins.config._fields, group.config, joins.config, strict=True)
            if have != want
        )
        raise UsageError(
            f"the workers of group {group.name!r} have other settings: {differences}; "
            "give this one the same, or close the others first"
        )

    def _check_dead_letter_topic(self, name: str, topics: Sequence[str]) -> None:
        if name in topics:
            raise UsageError(
                f"dead_letter_topic is {name!r}, whose jobs this group does: they would go round and round; "
                "name another topic"
            )
        try:
            topic = self._directory.topic(name)
        except UnknownTopicError as error:
            raise UnknownTopicError(f"dead_letter_topic: {error}") from None
        if topic.config.compacts:
            raise UsageError(
                f"dead_letter_topic {name!r} is compacted, which keeps one record for each key: failed jobs "
                "would be lost; choose a topic with cleanup_policy='delete'"
            )

    def _leave(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        with self._lock:
            group = self._groups.get(beat.group)
            if group is None or group.members.pop(beat.member_id, None) is None:
                return ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
            held = list(group.held.values())
        for each in held:
            each.release(beat.member_id)
        return ShareGroupHeartbeatResult(ErrorCode.NONE, beat.member_id, LEAVING)

    # Partitions

    def _hold_locked(self, group: _Group, entries: Sequence[TopicEntry], config: ShareGroupConfig) -> None:
        """Take up the partitions of topics that the group does not have yet.

        Raises:
            LogstoreError: where a group begins could not be stored.
        """
        changes: list[tuple[ShareKey, ShareState]] = []
        fresh: dict[TopicPartition, HeldPartition] = {}
        if group.config is None:
            for each in group.held.values():
                each.configure(config)
        for entry in entries:
            is_known = (group.name, entry.topic_id) in self._known
            for number in entry.held_partitions:
                partition = TopicPartition(entry.name, number)
                key = ShareKey(group.name, entry.topic_id, number)
                held = group.held.get(partition)
                if held is not None and held.key == key:
                    continue  # else a topic of the same name was deleted
                state = self._stored.get(key)
                if state is None:
                    state = self._first_state(partition, config, is_known)
                    changes.append((key, state))
                records = records_of(state, config.delivery_count_limit)
                fresh[partition] = HeldPartition(
                    self._directory, self._storage, key, partition, records, config
                )
        if changes:
            self._storage.write(changes)
        group.held.update(fresh)
        for each in fresh.values():
            self._stored.pop(each.key, None)
            self._known.add((group.name, each.key.topic_id))

    def _first_state(self, partition: TopicPartition, config: ShareGroupConfig, is_known: bool) -> ShareState:
        """Where the group begins. ``is_known``: whether it had other partitions of the topic before; then
        this one is new, and no record of it was there when the group began."""
        begins_at_end = config.auto_offset_reset == "latest" and not is_known
        try:
            log = self._directory.log(partition)
        except (CorruptionError, StorageError):
            if begins_at_end:
                raise
            return ShareState(0, 0, 0)  # the others can be worked on; what is deleted is passed over later
        if begins_at_end:
            is_committed = config.isolation is Isolation.COMMITTED
            start = log.last_stable_offset if is_committed else log.high_watermark
        else:
            start = log.log_start_offset
        return ShareState(0, max(log.leader_epoch, 0), start)

    # Records

    def fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        """Take what is available; if nothing is, wait for it."""
        with self._lock:
            group = self._groups.get(request.group)
            member = None if group is None else group.members.get(request.member_id)
            if group is None or member is None or group.config is None:
                return Answered(ShareFetchResult(ErrorCode.UNKNOWN_MEMBER_ID))
            member.heard_ms = self._clock.monotonic_ms()
            config = group.config
            held = [group.held[each] for each in request.partitions if each in group.held]

        def attempt(some: Iterable[HeldPartition]) -> ShareFetchResult | None:
            found = _take(some, request)
            if not found:
                return None
            return ShareFetchResult(ErrorCode.NONE, tuple(found), config.record_lock_duration_ms)

        result = attempt(held)
        if result is not None:
            return Answered(result)
        if request.max_wait_ms <= 0:
            return Answered(ShareFetchResult(ErrorCode.NONE))
        scheduler = self._directory.context.scheduler
        return WaitingFetch(attempt, ShareFetchResult(ErrorCode.NONE), held, scheduler, request.max_wait_ms)

    def acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        """Take in what became of records."""
        with self._lock:
            group = self._groups.get(request.group)
            if group is None or request.member_id not in group.members:
                return Answered(refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
            group.members[request.member_id].heard_ms = self._clock.monotonic_ms()
            held = [group.held.get(each.partition) for each in request.partitions]
        outcomes: list[AcknowledgedPartition] = []
        for each, (partition, batches) in zip(held, request.partitions, strict=True):
            if each is not None:
                outcomes.append(each.acknowledge(request.member_id, batches))
            else:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                outcomes.append(AcknowledgedPartition(partition, code, batches))
        if not request.durable:
            return Answered(ShareAcknowledgeResult(tuple(outcomes)))
        return self._answer_durable([each.key for each in held if each is not None], outcomes)

    def _answer_durable(
        self, keys: Sequence[ShareKey], outcomes: Sequence[AcknowledgedPartition]
    ) -> Pending[ShareAcknowledgeResult]:
        promise: Promise[ShareAcknowledgeResult] = Promise()

        def complete(code: ErrorCode) -> None:
            taken_in = (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
            found = [
                each._replace(error=code, was_stored=True)
                if code is not ErrorCode.NONE and each.error in taken_in
                else each
                for each in outcomes
            ]
            promise.complete(ShareAcknowledgeResult(tuple(found)))

        self._when_durable(keys, complete)
        return promise

    # For administrators

    def describe(self, name: str) -> DescribedShareGroup:
        """The members of a group, and how far it is."""
        with self._lock:
            group = self._groups.get(name)
            members = (
                ()
                if group is None
                else tuple(
                    ShareGroupMember(member_id, member.client_id, member.topics)
                    for member_id, member in group.members.items()
                )
            )
            held = [] if group is None else list(group.held.values())
            stored = {key: each for key, each in self._stored.items() if key.group_id == name}
        if group is None and not stored:
            return DescribedShareGroup(ErrorCode.GROUP_ID_NOT_FOUND, name)
        try:
            held += self._held_as_stored(stored)
            partitions = tuple(sorted(each.describe() for each in held if each.is_current))
        except LogstoreError as error:
            return DescribedShareGroup(code_of(error), name, message=str(error))
        return DescribedShareGroup(
            ErrorCode.NONE, name, "Stable" if members else "Empty", members, partitions
        )

    def _held_as_stored(self, stored: Mapping[ShareKey, ShareState]) -> list[HeldPartition]:
        """Partitions that no member has asked for yet, to look at."""
        topics = {entry.topic_id: entry.name for entry in self._directory.topics()}
        config = ShareGroupConfig(delivery_count_limit=_NO_LIMIT)
        return [
            HeldPartition(
                self._directory,
                self._storage,
                key,
                TopicPartition(topics[key.topic_id], key.partition),
                records_of(each, config.delivery_count_limit),
                config,
            )
            for key, each in stored.items()
            if key.topic_id in topics
        ]

    def names(self) -> tuple[str, ...]:
        """The groups that there are."""
        with self._lock:
            stored = {key.group_id for key in self._stored}
            return tuple(sorted(stored.union(self._groups)))

    def delete(self, name: str) -> ErrorCode:
        """Forget a group without members, and how far it was."""
        with self._lock:
            group = self._groups.get(name)
            if group is not None and group.members:
                return ErrorCode.NON_EMPTY_GROUP
            keys = [key for key in self._stored if key.group_id == name]
            keys += [] if group is None else [each.key for each in group.held.values()]
            if group is None and not keys:
                return ErrorCode.GROUP_ID_NOT_FOUND
            # If a power cut undid it, jobs that are given again from now on would count as done.
            return self._forget_locked(keys, flush=True)

    def forget_topic(self, topic_id: uuid.UUID) -> ErrorCode:
        """A topic was deleted: what groups know of its records goes, too."""
        with self._lock:
            keys = [key for key in self._stored if key.topic_id == topic_id]
            keys += [
                held.key
                for group in self._groups.values()
                for held in group.held.values()
                if held.key.topic_id == topic_id
            ]
            return self._forget_locked(keys, flush=False)  # its id is never used again

    def _forget_locked(self, keys: Sequence[ShareKey], *, flush: bool) -> ErrorCode:
        try:
            self._storage.write(((key, None) for key in keys), flush=flush)
        except LogstoreError as error:
            return code_of(error)
        gone = set(keys)
        for key in keys:
            self._stored.pop(key, None)
            self._known.discard((key.group_id, key.topic_id))
        for group in list(self._groups.values()):
            group.held = {name: held for name, held in group.held.items() if held.key not in gone}
            if not group.held and not group.members:
                del self._groups[group.name]
        return ErrorCode.NONE


def _take(held: Iterable[HeldPartition], request: ShareFetchRequest) -> list[ShareFetchedPartition]:
    left = request.max_records
    found: list[ShareFetchedPartition] = []
    for each in held:
        if left <= 0:
            break
        taken = each.take(request.member_id, left, request.max_bytes)
        left -= taken.acquired_count
        if taken.fetched is not None:
            found.append(taken.fetched)
    return found


def refused(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResult:
    """Nothing of a request was taken in."""
    return ShareAcknowledgeResult(
        tuple(AcknowledgedPartition(each.partition, code, each.batches) for each in request.partitions)
    )
