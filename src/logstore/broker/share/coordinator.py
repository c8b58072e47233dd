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
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.dead_letters import OwnLetters, check_is_not_internal
from logstore.broker.share.exchanging import Exchange, WhenDurable, refused
from logstore.broker.share.group import Group, refusal_of
from logstore.broker.share.held import NO_LIMIT, HeldPartition, ShareStorage, first_offset, records_of
from logstore.broker.share.requests import (
    LEAVING,
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribedShareGroup,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    ShareGroupOffsets,
    ShareOffset,
    ShareOffsetsQuery,
    SharePartitionState,
    TopicIdPartition,
)
from logstore.broker.share.stored import ShareState, cut_back_all
from logstore.errors import CorruptionError, LogstoreError, StorageError, UnknownTopicError, UsageError
from logstore.format.messages.share_records import ShareKey
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.warning import warn


class StoredStates(ShareStorage, Protocol):
    """A storage that knows what it has."""

    def find(self, key: ShareKey) -> ShareState | None:
        """The state of one share-partition; None if it has none.

        Raises:
            LogstoreError: it cannot be read.
        """
        ...


class ShareCoordinator:
    """Of one directory. All methods may be called from many threads."""

    def __init__(
        self,
        directory: LogDirectory,
        storage: StoredStates,
        stored: Mapping[ShareKey, ShareState],
        when_durable: WhenDurable,
    ) -> None:
        self._directory = directory
        self._clock = directory.context.clock
        self._storage = storage
        self._letters = OwnLetters(directory)
        self._exchange = Exchange(directory.context.scheduler, when_durable)
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
        refusal = refusal_of(beat)
        if refusal is not None:
            return refusal
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
                if beat.config is not None and not beat.waits_for_topics:
                    self._check_dead_letter_topic(beat.config.dead_letter_topic)
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
                heartbeat_interval_ms=beat.heartbeat_interval_ms,
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

    def _check_dead_letter_topic(self, name: str | None) -> None:
        """
        Raises:
            UsageError: it would lose records.
            UnknownTopicError: there is no such topic.
        """
        if name is None:
            return
        check_is_not_internal(name)
        try:
            topic = self._directory.topic(name)
        except UnknownTopicError as error:
            raise UnknownTopicError(f"dead_letter_topic: {error}") from None
        if topic.config.compacts:
            raise UsageError(
                f"dead_letter_topic {name!r} is compacted, which keeps one record for each key: failed jobs "
                "would be lost; choose a topic with cleanup_policy='delete'"
            )

    def configure(self, name: str, before: ShareGroupConfig, after: ShareGroupConfig) -> None:
        """An administrator has changed settings of a group. What is another one now holds at once, as with
        Kafka; what the members that are there have brought along stays."""
        with self._lock:
            group = self._groups.get(name)
            if group is None or group.config is None:
                return
            values = zip(group.config, before, after, strict=True)
            config = ShareGroupConfig._make(now if now != then else own for own, then, now in values)
            group.config, held = config, list(group.held.values())
        for each in held:
            each.configure(config)

    def _leave(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        with self._lock:
            group = self._groups.get(beat.group)
            if group is None or not group.remove(beat.member_id):
                return ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
            if beat.has_session:
                group.left.add(beat.member_id)
            held = [] if beat.has_session else list(group.held.values())
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
                if state is None or state.start_offset < 0:  # a broker of Kafka's writes the latter
                    state = self._first_state(partition, config, is_known and state is None)
                    changes.append((key, state))
                records = records_of(state, config.delivery_count_limit)
                fresh[partition] = HeldPartition(
                    self._directory, self._storage, key, partition, records, config, self._letters
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
        return ShareState(0, max(log.leader_epoch, 0), first_offset(log, config, at_end=begins_at_end))

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
        return self._exchange.fetch(
            request,
            config.record_lock_duration_ms,
            [(each, self._found(each, known)) for each, known in held],
            [(each, self._found(each.partition, known)) for each, known in said],
        )

    def _group_of_locked(self, name: str, member_id: str) -> Group | None:
        """The group of a member, which is alive; None if it is not known."""
        group = self._groups.get(name)
        member = None if group is None else group.members.get(member_id)
        if member is None:
            return None
        member.heard_ms = self._clock.monotonic_ms()
        return group

    def _group_left_by_locked(self, request: ShareAcknowledgeRequest) -> Group | None:
        """The group of one who has left, and whose share session goes on, or ends now. librdkafka leaves on
        one connection, and says what became of its last records on another."""
        group = self._groups.get(request.group)
        if group is None or request.member_id not in group.left:
            return None
        if request.releases_rest:
            group.left.remove(request.member_id)
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

    def acknowledge(self, request: ShareAcknowledgeRequest) -> Pending[ShareAcknowledgeResult]:
        """Take in what became of records."""
        with self._lock:
            group = self._group_of_locked(request.group, request.member_id)
            group = group or self._group_left_by_locked(request)
            if group is None or group.config is None:
                return Answered(refused(request, ErrorCode.UNKNOWN_MEMBER_ID))
            lock_ms = group.config.record_lock_duration_ms
            said = [(each, group.held.get(each.partition.partition)) for each in request.partitions]
            rest = list(group.held.values()) if request.releases_rest else []
        return self._exchange.acknowledge(
            request, lock_ms, [(each, self._found(each.partition, known)) for each, known in said], rest
        )

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
                self._letters,
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
            keys = self._keys_locked(name)
        # If a power cut undid it, jobs that are given again from now on would count as done.
        return self._replace(name, dict.fromkeys(keys))

    def offsets(self, query: ShareOffsetsQuery) -> ShareGroupOffsets:
        """Where a group is."""
        found = self.describe(query.group)
        if found.error is not ErrorCode.NONE:
            return ShareGroupOffsets(found.error, query.group, message=found.message)
        states = {each.partition: each for each in found.partitions}
        partitions = tuple(states) if query.partitions is None else query.partitions
        return ShareGroupOffsets(
            ErrorCode.NONE, query.group, tuple(self._offset(each, states.get(each)) for each in partitions)
        )

    def _offset(self, partition: TopicPartition, state: SharePartitionState | None) -> ShareOffset:
        try:
            leader_epoch = max(self._directory.log(partition).leader_epoch, 0)
        except UnknownTopicError:
            return ShareOffset(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except LogstoreError:  # it is damaged; where the group is, is known all the same
            leader_epoch = 0
        if state is None:
            return ShareOffset(partition)
        return ShareOffset(partition, ErrorCode.NONE, state.start_offset, leader_epoch, state.undone_count)

    def alter_offsets(self, request: AlterShareOffsets) -> AlterShareOffsetsResult:
        """Set where a group without members is, or where one begins that has not begun yet."""
        self._expire([request.group])
        states: dict[ShareKey, ShareState | None] = {}
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition, offset in request.offsets:
            try:
                key, state = self._state_at(request.group, partition, offset)
            except LogstoreError as error:
                errors[partition] = code_of(error)
            else:
                errors[partition] = ErrorCode.NONE
                states[key] = state
        code = self._replace(request.group, states, may_begin=True)
        return AlterShareOffsetsResult(code, errors if code is ErrorCode.NONE else {})

    def _state_at(self, group: str, partition: TopicPartition, offset: int) -> tuple[ShareKey, ShareState]:
        """
        Raises:
            LogstoreError: there is no such partition, or no such offset in it.
        """
        log, topic_id = self._directory.log(partition), self._directory.topic(partition.topic).topic_id
        if not 0 <= offset <= log.high_watermark:
            raise UsageError(f"{partition} has offsets up to {log.high_watermark}, and {offset} is none")
        return ShareKey(group, topic_id, partition.partition), ShareState(0, max(log.leader_epoch, 0), offset)

    def delete_offsets(self, request: DeleteShareOffsets) -> DeleteShareOffsetsResult:
        """Forget what a group without members has done of topics."""
        self._expire([request.group])
        ids = {entry.name: entry.topic_id for entry in self._directory.topics()}
        with self._lock:
            keys = self._keys_locked(request.group)
        begun = {key.topic_id for key in keys}
        errors = {
            name: ErrorCode.NONE if ids.get(name) in begun else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for name in request.topics
        }
        meant = {ids[name] for name, code in errors.items() if code is ErrorCode.NONE}
        code = self._replace(request.group, {key: None for key in keys if key.topic_id in meant})
        return DeleteShareOffsetsResult(code, errors if code is ErrorCode.NONE else {})

    def _keys_locked(self, name: str) -> list[ShareKey]:
        """What a group has begun."""
        group = self._groups.get(name)
        keys = [key for key in self._stored if key.group_id == name]
        return keys + ([] if group is None else [held.key for held in group.held.values()])

    def _replace(
        self, name: str, changes: Mapping[ShareKey, ShareState | None], *, may_begin: bool = False
    ) -> ErrorCode:
        """Store other states of a group without members, durably; None for none."""
        with self._lock:
            code = self._why_unchangeable_locked(name, may_begin=may_begin)
            group = self._groups.get(name)
            held = [] if group is None else [each for each in group.held.values() if each.key in changes]
        if code is not ErrorCode.NONE:
            return code
        for each in held:  # requests of members that are gone may still be under way
            each.give_up(ErrorCode.UNKNOWN_MEMBER_ID)
        with self._lock:
            code = self._why_unchangeable_locked(name, may_begin=may_begin)  # a member may have come
            if code is ErrorCode.NONE:
                code = self._store_locked(changes, flush=True)
            try:
                self._take_up_again_locked(name, changes)
            except LogstoreError as error:
                code = code_of(error)
            return code

    def _store_locked(self, changes: Mapping[ShareKey, ShareState | None], *, flush: bool) -> ErrorCode:
        try:
            self._storage.write(changes.items(), flush=flush)
        except LogstoreError as error:
            return code_of(error)
        return ErrorCode.NONE

    def _why_unchangeable_locked(self, name: str, *, may_begin: bool) -> ErrorCode:
        group = self._groups.get(name)
        if group is not None and group.members:
            return ErrorCode.NON_EMPTY_GROUP
        is_known = may_begin or group is not None or self._keys_locked(name)
        return ErrorCode.NONE if is_known else ErrorCode.GROUP_ID_NOT_FOUND

    def _take_up_again_locked(self, name: str, keys: Iterable[ShareKey]) -> None:
        """Go on with what is stored.

        Raises:
            LogstoreError: it cannot be read, or where members begin that have come cannot be stored.
        """
        group = self._groups.get(name)
        self._let_go_locked(keys)
        for key in keys:
            state = self._storage.find(key)
            if state is not None:
                self._stored[key] = state
                self._known.add((name, key.topic_id))
        if group is not None and group.members and group.config is not None:
            topics = {topic for member in group.members.values() for topic in member.topics}
            self._hold_locked(group, self._entries(topics, waits_for_topics=True), group.config)

    def set_back(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take back what groups in use know of records above the ends of logs that were cut there. What
        workers have of it is given again. Where that cannot be stored, it is before anything else is done,
        which raises why."""
        for held in self._all_held():
            if held.is_current and held.partition in ends:
                try:
                    held.set_back(ends[held.partition])
                except LogstoreError as error:
                    warn("queue %r cannot be used yet: %s", held.key.group_id, error)

    def set_others_back(self, ends: Mapping[TopicPartition, int]) -> None:
        """The same of the groups that are not in use.

        Raises:
            LogstoreError: it could not be stored; nothing has changed.
        """
        topics = {entry.topic_id: entry.name for entry in self._directory.topics()}
        with self._lock:
            cut = {key: state for key, state, _ in cut_back_all(self._stored, topics, ends)}
            self._storage.write(cut.items(), flush=True)
            self._stored.update(cut)

    @property
    def is_to_be_set_back(self) -> bool:
        """Whether :meth:`set_back` could not store all, nor anybody since."""
        return any(held.is_to_be_set_back for held in self._all_held())

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
            code = self._store_locked(dict.fromkeys(keys), flush=False)  # its id is never used again
            if code is ErrorCode.NONE:
                self._let_go_locked(keys)
            return code

    def _let_go_locked(self, keys: Iterable[ShareKey]) -> None:
        gone = set(keys)
        for key in gone:
            self._stored.pop(key, None)
            self._known.discard((key.group_id, key.topic_id))
        for group in list(self._groups.values()):
            group.held = {name: held for name, held in group.held.items() if held.key not in gone}
            if not group.held and not group.members:
                del self._groups[group.name]


def _partitions_of(entry: TopicEntry) -> tuple[TopicIdPartition, ...]:
    return tuple(
        TopicIdPartition(TopicPartition(entry.name, number), entry.topic_id)
        for number in entry.held_partitions
    )
