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
from typing import TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.share.group import Group
from logstore.broker.share.held import NO_LIMIT, HeldPartition, ShareStorage, records_of
from logstore.broker.share.requests import (
    HEARTBEAT_INTERVAL_MS,
    LEAVING,
    AcknowledgedPartition,
    AcknowledgePartition,
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
    TopicIdPartition,
)
from logstore.broker.share.stored import ShareState
from logstore.broker.share.waiting import WaitingFetch
from logstore.errors import CorruptionError, LogstoreError, StorageError, UnknownTopicError, UsageError
from logstore.format.messages.share_records import ShareKey
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.model import Isolation, TopicPartition

T = TypeVar("T")


WhenDurable = Callable[[Sequence[ShareKey], Done[ErrorCode]], None]
"""Calls back when no power cut can take what was stored of partitions in groups."""


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
        self._groups: dict[str, Group] = {}

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
        if not beat.group:
            return ShareGroupHeartbeatResult(ErrorCode.INVALID_GROUP_ID, message="a group needs a name")
        if not beat.member_id or beat.member_epoch < LEAVING or beat.rack_id == "":
            message = "a member needs an id, and an epoch of -1 or above; its rack, if it has one, a name"
            return ShareGroupHeartbeatResult(ErrorCode.INVALID_REQUEST, message=message)
        if beat.member_epoch == LEAVING:
            return self._leave(beat)
        try:
            result, gone = self._join(beat)
        except LogstoreError as error:
            return ShareGroupHeartbeatResult(code_of(error), message=str(error))
        self._release(gone)
        return result

    def _join(
        self, beat: ShareGroupHeartbeat
    ) -> tuple[ShareGroupHeartbeatResult, list[tuple[str, list[HeldPartition]]]]:
        """The answer, and the members that are gone, with the group's partitions.

        Raises:
            LogstoreError: there is no such topic, or the state of a partition cannot be stored.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            group = self._groups.get(beat.group) or Group(beat.group)
            gone = [(each, list(group.held.values())) for each in group.expire(now_ms)]
            code = group.check(beat)
            if code is not ErrorCode.NONE:
                return ShareGroupHeartbeatResult(code), gone
            member = group.members.get(beat.member_id)
            topics = beat.topics
            if topics is None:
                assert member is not None  # one that joins names topics
                topics = member.topics
            entries = self._entries(topics, waits_for_topics=beat.waits_for_topics)
            if member is None:
                if beat.config is not None:
                    self._check_dead_letter_topic(beat.config.dead_letter_topic, topics)
                group.check_config(beat.config)
            config = group.config or beat.config or ShareGroupConfig()
            self._hold_locked(group, entries, config)
            group.config = config
            partitions = {entry.name: _partitions_of(entry) for entry in entries}
            member, is_new = group.hear(beat, topics, partitions, now_ms)
            self._groups[beat.group] = group
            result = ShareGroupHeartbeatResult(
                ErrorCode.NONE,
                beat.member_id,
                member.epoch,
                member.assignment,
                is_new=is_new,
                heartbeat_interval_ms=min(HEARTBEAT_INTERVAL_MS, beat.session_timeout_ms // 3),
            )
        return result, gone

    def _entries(self, topics: Iterable[str], *, waits_for_topics: bool) -> list[TopicEntry]:
        """
        Raises:
            UnknownTopicError: there is no such topic, and the member does not wait for it.
        """
        entries: list[TopicEntry] = []
        for name in topics:
            try:
                entries.append(self._directory.topic(name))
            except UnknownTopicError:
                if not waits_for_topics:
                    raise
        return entries

    def _release(self, gone: Iterable[tuple[str, Iterable[HeldPartition]]]) -> None:
        """What members have that are gone goes to the others."""
        for member_id, held in gone:
            for each in held:
                each.release(member_id)

    def _expire(self, names: Iterable[str]) -> None:
        """Look for members that are gone."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            groups = [self._groups[name] for name in names if name in self._groups]
            gone = [(each, list(group.held.values())) for group in groups for each in group.expire(now_ms)]
        self._release(gone)

    def _check_dead_letter_topic(self, name: str | None, topics: Sequence[str]) -> None:
        """
        Raises:
            UsageError: it would lose records.
            UnknownTopicError: there is no such topic.
        """
        if name is None:
            return
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
            if group is None or not group.remove(beat.member_id):
                return ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
            held = list(group.held.values())
        self._release([(beat.member_id, held)])
        return ShareGroupHeartbeatResult(ErrorCode.NONE, beat.member_id, LEAVING)

    # Partitions

    def _hold_locked(self, group: Group, entries: Sequence[TopicEntry], config: ShareGroupConfig) -> None:
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
        """Take in what became of records, then take what is available; if nothing is, wait for it."""
        with self._lock:
            group = self._group_of_locked(request.group, request.member_id)
            if group is None or group.config is None:
                return Answered(ShareFetchResult(ErrorCode.UNKNOWN_MEMBER_ID))
            config = group.config
            held = [(each, group.held.get(each.partition)) for each in request.partitions]
            said = [(each, group.held.get(each.partition.partition)) for each in request.acknowledgements]
        places = [(each, self._found(each, known)) for each, known in held]
        some = [each for _, each in places if isinstance(each, HeldPartition)]
        found, outcomes = self._exchange(request, places, said)
        lock_ms = config.record_lock_duration_ms
        nothing = ShareFetchResult(ErrorCode.NONE, (), lock_ms, acknowledged=outcomes)
        if request.durable and outcomes:
            keys = [known.key for _, known in said if known is not None]
            return self._answer_durable(
                keys, outcomes, lambda each: nothing._replace(partitions=tuple(found), acknowledged=each)
            )
        has_failed = any(each.error is not ErrorCode.NONE for each in outcomes)
        if found or has_failed or request.max_wait_ms <= 0 or request.max_records <= 0:
            return Answered(nothing._replace(partitions=tuple(found)))

        def attempt(changed: Iterable[HeldPartition], is_late: bool) -> ShareFetchResult | None:
            if not is_late and not _has_enough(some, request):
                return None
            found = _take(changed if request.min_bytes <= 1 else some, request)
            return nothing._replace(partitions=tuple(found)) if found else None

        scheduler = self._directory.context.scheduler
        return WaitingFetch(attempt, nothing, some, scheduler, request.max_wait_ms)

    def _group_of_locked(self, name: str, member_id: str) -> Group | None:
        """The group of a member, which is alive; None if it is not known."""
        group = self._groups.get(name)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return None
        member.heard_ms = self._clock.monotonic_ms()
        return group

    def _found(self, wanted: TopicIdPartition, held: HeldPartition | None) -> HeldPartition | ErrorCode:
        """What the group has under a name, if it was of the topic that is meant when a member last asked."""
        if held is not None and held.key.topic_id == wanted.topic_id:
            return held
        try:
            entry = self._directory.topic(wanted.partition.topic)
        except LogstoreError:
            return ErrorCode.UNKNOWN_TOPIC_ID
        is_same = entry.topic_id == wanted.topic_id
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_same else ErrorCode.UNKNOWN_TOPIC_ID

    def _exchange(
        self,
        request: ShareFetchRequest,
        places: Sequence[tuple[TopicIdPartition, HeldPartition | ErrorCode]],
        said: Sequence[tuple[AcknowledgePartition, HeldPartition | None]],
    ) -> tuple[list[ShareFetchedPartition], tuple[AcknowledgedPartition, ...]]:
        """What became of records, and others for them: of one partition in one step."""
        outcomes: list[AcknowledgedPartition | None] = [None] * len(said)
        numbers = {each.partition: number for number, (each, _) in enumerate(said)}
        has_enough = request.min_bytes <= 1 and request.max_records > 0
        room = _Room(request)
        found: list[ShareFetchedPartition] = []
        for wanted, held in places:
            if not isinstance(held, HeldPartition):
                found.append(ShareFetchedPartition(wanted, held))
                continue
            number = numbers.get(wanted)
            if number is None and not has_enough:
                continue
            about = None if number is None else said[number][0]
            limits = room.limits() if has_enough else (0, 0)
            if about is None and not limits[0]:
                continue
            exchanged = held.exchange(request.member_id, about, *limits)
            room.note(exchanged.fetched)
            if exchanged.fetched is not None:
                found.append(exchanged.fetched)
            if number is not None:
                outcomes[number] = exchanged.acknowledged
        for number, (each, known) in enumerate(said):
            if outcomes[number] is None:
                outcomes[number] = self._acknowledge(request.member_id, each, known)
        if not has_enough and request.max_records > 0:
            some = [each for _, each in places if isinstance(each, HeldPartition)]
            if request.max_wait_ms <= 0 or _has_enough(some, request):
                found += _take(some, request)
        return found, tuple(each for each in outcomes if each is not None)

    def _acknowledge(
        self,
        member_id: str,
        said: AcknowledgePartition,
        known: HeldPartition | None,
    ) -> AcknowledgedPartition:
        held = self._found(said.partition, known)
        if isinstance(held, HeldPartition):
            return held.acknowledge(member_id, said)
        return AcknowledgedPartition(said.partition, held, said.batches)

    def acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        """Take in what became of records."""
        with self._lock:
            group = self._group_of_locked(request.group, request.member_id)
            if group is None or group.config is None:
                return Answered(refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
            lock_ms = group.config.record_lock_duration_ms
            said = [(each, group.held.get(each.partition.partition)) for each in request.partitions]
            rest = list(group.held.values()) if request.releases_rest else []
        outcomes = tuple(self._acknowledge(request.member_id, each, known) for each, known in said)
        self._release([(request.member_id, rest)])
        result = ShareAcknowledgeResult(outcomes, lock_duration_ms=lock_ms)
        if not request.durable:
            return Answered(result)
        keys = [known.key for _, known in said if known is not None]
        return self._answer_durable(keys, outcomes, lambda each: result._replace(partitions=each))

    def _answer_durable(
        self,
        keys: Sequence[ShareKey],
        outcomes: Sequence[AcknowledgedPartition],
        answer: Callable[[tuple[AcknowledgedPartition, ...]], T],
    ) -> Pending[T]:
        promise: Promise[T] = Promise()

        def complete(code: ErrorCode) -> None:
            taken_in = (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE)
            found = [
                each._replace(error=code, was_stored=True)
                if code is not ErrorCode.NONE and each.error in taken_in
                else each
                for each in outcomes
            ]
            promise.complete(answer(tuple(found)))

        self._when_durable(keys, complete)
        return promise

    # For administrators

    def describe(self, name: str) -> DescribedShareGroup:
        """The members of a group, and how far it is."""
        self._expire([name])
        with self._lock:
            group = self._groups.get(name)
            epoch = 0 if group is None else group.epoch
            members = (
                ()
                if group is None
                else tuple(member.describe(member_id) for member_id, member in group.members.items())
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
        state = "Stable" if members else "Empty"
        return DescribedShareGroup(ErrorCode.NONE, name, state, members, partitions, epoch=epoch)

    def _held_as_stored(self, stored: Mapping[ShareKey, ShareState]) -> list[HeldPartition]:
        """Partitions that no member has asked for yet, to look at."""
        topics = {entry.topic_id: entry.name for entry in self._directory.topics()}
        config = ShareGroupConfig(delivery_count_limit=NO_LIMIT)
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
        self._expire([name])
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


class _Room:
    """How much of a fetch is left."""

    def __init__(self, request: ShareFetchRequest) -> None:
        self._records = request.max_records
        self._bytes = request.max_bytes
        self._partition_bytes = request.max_partition_bytes

    def limits(self) -> tuple[int, int]:
        """How many records and bytes of the next partition; 0 records if there is no room."""
        return self._records if self._bytes > 0 else 0, min(self._bytes, self._partition_bytes)

    def note(self, fetched: ShareFetchedPartition | None) -> None:
        if fetched is not None:
            self._records -= sum(each.last - each.first + 1 for each in fetched.acquired)
            self._bytes -= len(fetched.data)


def _take(held: Iterable[HeldPartition], request: ShareFetchRequest) -> list[ShareFetchedPartition]:
    room = _Room(request)
    found: list[ShareFetchedPartition] = []
    for each in held:
        limits = room.limits()
        if limits[0] <= 0:
            break
        fetched = each.exchange(request.member_id, None, *limits).fetched
        room.note(fetched)
        if fetched is not None:
            found.append(fetched)
    return found


def _has_enough(held: Iterable[HeldPartition], request: ShareFetchRequest) -> bool:
    """Whether as many bytes are available as the request waits for."""
    if request.min_bytes <= 1:
        return True
    room = _Room(request)
    records, size_bytes = room.limits()
    wanted = min(request.min_bytes, request.max_bytes)
    for each in held:
        wanted -= each.available_bytes(records, size_bytes)
        if wanted <= 0:
            return True
    return False


def _partitions_of(entry: TopicEntry) -> tuple[TopicIdPartition, ...]:
    return tuple(
        TopicIdPartition(TopicPartition(entry.name, number), entry.topic_id)
        for number in entry.held_partitions
    )


def refused(request: ShareAcknowledgeRequest, code: ErrorCode) -> ShareAcknowledgeResult:
    """Nothing of a request was taken in."""
    outcomes = (AcknowledgedPartition(each.partition, code, each.batches) for each in request.partitions)
    return ShareAcknowledgeResult(tuple(outcomes), code)
