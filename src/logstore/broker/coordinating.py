"""The consumer groups of a directory, of the classic protocol and of the newer one: which of the two
coordinators a request is for, and how a group goes from one to the other.

Lock: ``_opening`` guards the making of the coordinators, which read what is stored. ``_deciding`` is held
while a group may be made or change over, and by the requests of members that must not meet that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.committing import offset_commit, offset_delete, offset_fetch
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.converting import to_newer
from logstore.broker.consumer_groups.coordinator import ConsumerGroupCoordinator
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import (
    JOINING,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribedConsumerGroup,
    TopicIdPartition,
)
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.failures import code_of
from logstore.broker.groups.coordinator import GroupCoordinator
from logstore.broker.groups.requests import (
    CONSUMER,
    DescribedGroup,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListedGroup,
    ListGroupsResult,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.offsets.expiry import CHECK_INTERVAL_MS, NO_GROUP
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.requests import (
    OffsetCommitRequest,
    OffsetCommitResult,
    OffsetDeleteRequest,
    OffsetDeleteResult,
    OffsetFetchRequest,
    OffsetFetchResult,
)
from logstore.broker.storing.consumer_groups import (
    TopicsOfDirectory,
    open_consumer_groups,
    stored_consumer_states,
)
from logstore.broker.storing.group_settings import consumer_config
from logstore.broker.storing.groups import TopicStorage, open_coordinator, stored_states
from logstore.errors import LogstoreError, UsageError
from logstore.format.messages.consumer_protocol import PROTOCOL_TYPE
from logstore.logdir.directory import LogDirectory
from logstore.schedule import Task

T = TypeVar("T")
_OfGroup = TypeVar("_OfGroup", SyncGroup, Heartbeat, LeaveGroup)


class _Coordinators(NamedTuple):
    classic: GroupCoordinator
    newer: ConsumerGroupCoordinator


class ConsumerGroups:
    """All consumer groups of a directory. Requests that change groups open the coordinators, the first one
    with a look at all that is stored."""

    def __init__(
        self,
        directory: LogDirectory,
        own_settings: Callable[[str], Mapping[str, str]],
        topics: Callable[[], Topics] | None = None,
    ) -> None:
        """
        Args:
            own_settings: the settings that a group was given.
            topics: says which topics there are, if they are not those of the directory.
        """
        self._config = directory.config
        self._own_settings = own_settings
        self._config_of_others = consumer_config({}, self._config)
        self._topics = topics or TopicsOfDirectory(directory)
        self.committed = CommittedOffsets(directory, empty_since=self._empty_since)
        """The offsets that groups have committed."""
        self._storage = TopicStorage(self.committed, directory.context.scheduler)
        self._expiry: Task | None = None
        if self._config.offsets_retention_minutes >= 0:
            scheduler = directory.context.scheduler
            self._expiry = scheduler.every(CHECK_INTERVAL_MS, "expire groups", self.expire)
        self._open: _Coordinators | None = None
        self._opening = threading.Lock()
        self._deciding = threading.RLock()  # storing may run what waits for it in the same thread
        policy = self._config.group_consumer_migration_policy
        self._upgrades = policy in ("upgrade", "bidirectional")
        self._downgrades = policy in ("downgrade", "bidirectional")

    def _config_of(self, group_id: str) -> ConsumerGroupConfig:
        own = self._own_settings(group_id)
        return consumer_config(own, self._config) if own else self._config_of_others

    # Life

    def _coordinators(self) -> _Coordinators:
        """
        Raises:
            LogstoreError: the groups cannot be read.
        """
        if self._open is None:
            with self._opening:
                if self._open is None:
                    newer = open_consumer_groups(
                        self.committed, self._topics, self._config_of, self._make_classic_again
                    )
                    classic = open_coordinator(
                        self.committed,
                        self._storage,
                        config=self._config,
                        besides=set(newer.names()),
                    )
                    self._open = _Coordinators(classic, newer)
                    for group_id in filter(newer.has_only_classic, newer.names()):
                        self._make_classic_again(group_id)
        return self._open

    def _coordinators_of(self, group_ids: Collection[str] | None) -> _Coordinators:
        """The coordinators, of which the classic one knows then which of these groups, or of all, have
        committed offsets: those who need no members commit and delete beside it.

        Raises:
            LogstoreError: the groups cannot be read.
        """
        found = self._coordinators()
        committed = self.committed
        with_offsets = (
            committed.all_groups() if group_ids is None else set(filter(committed.has_any, group_ids))
        )
        found.classic.match_offsets([each for each in with_offsets if not found.newer.has(each)], group_ids)
        return found

    def close(self) -> None:
        """Store what has changed, and answer what waits."""
        if self._open is not None:
            self._storage.write_all()
            self._end(self._open)

    def leave(self) -> None:
        """Another node leads the groups from now on: answer what waits, and store nothing."""
        self.committed.retire()
        if self._expiry is not None:
            self._expiry.cancel()
        self._storage.drop_all()
        if self._open is not None:
            self._end(self._open)

    @staticmethod
    def _end(coordinators: _Coordinators) -> None:
        coordinators.classic.close()
        coordinators.newer.close()

    def _empty_since(self, group_id: str) -> int | None:
        """For the expiry of offsets. Those of a group of the newer protocol go one by one, as in Kafka."""
        if self._open is None:
            return NO_GROUP
        classic, newer = self._open
        if newer.has(group_id):
            return None if newer.has_members(group_id) else NO_GROUP
        return classic.empty_since(group_id)

    def expire(self) -> None:
        """Forget the groups of the classic protocol that have neither members nor offsets. Those of the newer
        one are gone by then: with the last of the two. Runs in the background every ten minutes, with
        ``offsets_retention_minutes``. Before the first request of a group nothing is forgotten.

        Raises:
            LogstoreError: offsets cannot be read.
        """
        if self._open is not None:
            self._open.classic.expire(self.committed.has_any)

    def states(self) -> dict[str, str]:
        """The state of each group. Before the first request of a group: those that are stored, as they were
        then; nothing is begun by this.

        Raises:
            CorruptionError, UnsupportedVersionError: the groups cannot be read.
        """
        if self._open is None:
            newer = stored_consumer_states(self.committed)
            return stored_states(self.committed) | {name: state.value for name, state in newer.items()}
        return {each.group_id: each.state for each in self._listed(self._coordinators_of(None))}

    # Offsets

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResult:
        """Commit offsets, if the member is one, in its generation or epoch."""
        try:
            code = self._check_commit(self._coordinators(), request)
        except LogstoreError as error:
            return OffsetCommitResult(dict.fromkeys(request.offsets, code_of(error)), str(error))
        if code is not ErrorCode.NONE:
            return OffsetCommitResult(dict.fromkeys(request.offsets, code))
        return offset_commit(self._topics(), self.committed, request)

    def _check_commit(self, coordinators: _Coordinators, request: OffsetCommitRequest) -> ErrorCode:
        classic, newer = coordinators
        group, epoch, member_id = request.group, request.generation, request.member_id
        is_transactional = request.transaction is not None
        if newer.has(group):
            is_of_nobody = is_transactional and epoch < 0 and not member_id
            code = newer.check_commit(
                group, epoch, member_id, self._with_ids(request), is_of_nobody=is_of_nobody
            )
            if code is not ErrorCode.GROUP_ID_NOT_FOUND:  # else it is gone since
                return code
        return classic.check_commit(
            group, epoch, member_id, request.instance_id, is_transactional=is_transactional
        )

    def _with_ids(self, request: OffsetCommitRequest) -> Iterator[TopicIdPartition]:
        topics = self._topics()
        for name, partition in request.offsets:
            topic = topics.get(name)
            if topic is not None:  # else the commit says so
                yield TopicIdPartition(topic.topic_id, partition)

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResult:
        """What a group has committed. Members of the newer protocol say who they are."""
        if request.member_id is not None:
            try:
                newer = self._coordinators().newer
            except LogstoreError as error:
                return OffsetFetchResult(code_of(error), message=str(error))
            if newer.has(request.group):
                code = newer.check_fetch(request.group, request.member_epoch, request.member_id)
                if code is not ErrorCode.NONE:
                    return OffsetFetchResult(code)
        return offset_fetch(self.committed, request)

    def offset_delete(self, request: OffsetDeleteRequest) -> Pending[OffsetDeleteResult]:
        """Delete offsets, but not of topics that members subscribe to. An empty group goes with its last."""
        topics = {each.topic for each in request.partitions}
        try:
            classic, newer = self._coordinators_of((request.group,))
        except LogstoreError as error:
            return Answered(OffsetDeleteResult(code_of(error), message=str(error)))
        if newer.has(request.group):
            code, refused = ErrorCode.NONE, newer.subscribed_topics(request.group) & topics
        else:
            code, refused = classic.check_offset_delete(request.group, topics)
        if code is not ErrorCode.NONE:
            return Answered(OffsetDeleteResult(code))
        result = offset_delete(self._topics(), self.committed, request, refused)
        is_done = ErrorCode.NONE in result.errors.values()
        if not is_done or refused or self.committed.has_any(request.group):
            return Answered(result)
        promise: Promise[OffsetDeleteResult] = Promise()
        self._delete((request.group,), lambda _: promise.complete(result))  # unless it has members
        return promise

    # Members of the classic protocol

    def join_group(self, request: JoinGroup) -> Pending[JoinGroupResult]:
        """Join. An empty group of the newer protocol becomes a classic one; one with members takes it in."""

        def join(coordinators: _Coordinators, done: Callable[[JoinGroupResult], object]) -> None:
            classic, newer = coordinators
            with self._deciding:
                code = classic.check_join(request) or self._make_classic(coordinators, request.group_id)
                if code is ErrorCode.NONE:
                    classic.join_group(request, done)
                elif code is ErrorCode.NON_EMPTY_GROUP:
                    done(newer.join_classic(request))
                else:
                    done(JoinGroupResult(code, request.member_id))

        return self._ask(join, JoinGroupResult)

    def _make_classic(self, coordinators: _Coordinators, group_id: str) -> ErrorCode:
        if not coordinators.newer.has(group_id):
            return ErrorCode.NONE
        code = coordinators.newer.give_up(group_id)
        return ErrorCode.NONE if code is ErrorCode.GROUP_ID_NOT_FOUND else code

    def sync_group(self, request: SyncGroup) -> Pending[SyncGroupResult]:
        return self._ask_either(
            request, ConsumerGroupCoordinator.sync_classic, GroupCoordinator.sync_group, SyncGroupResult
        )

    def heartbeat(self, request: Heartbeat) -> Pending[ErrorCode]:
        return self._ask_either(
            request, ConsumerGroupCoordinator.heartbeat_classic, GroupCoordinator.heartbeat, lambda code: code
        )

    def leave_group(self, request: LeaveGroup) -> Pending[LeaveGroupResult]:
        """Members leave, or an administrator removes them: of either protocol."""

        return self._ask_either(
            request, ConsumerGroupCoordinator.leave_group, GroupCoordinator.leave_group, LeaveGroupResult
        )

    # Members of the newer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeat
    ) -> Pending[ConsumerGroupHeartbeatResult]:
        """A member joins, is alive, or leaves. With the first that joins, a classic group becomes one of the
        newer protocol; if it has members, only if ``group_consumer_migration_policy`` lets it."""
        try:
            coordinators = self._coordinators()
        except LogstoreError as error:
            return Answered(ConsumerGroupHeartbeatResult(code_of(error), message=str(error)))
        if request.member_epoch != JOINING:
            return Answered(coordinators.newer.heartbeat(request))
        with self._deciding:
            if coordinators.newer.has(request.group_id):
                return Answered(coordinators.newer.heartbeat(request))
            try:
                return Answered(self._join_newer(coordinators, request))
            finally:
                coordinators.classic.keep(request.group_id)

    def _join_newer(
        self, coordinators: _Coordinators, request: ConsumerGroupHeartbeat
    ) -> ConsumerGroupHeartbeatResult:
        group_id = request.group_id
        code = coordinators.classic.check_empty(group_id)
        former: Group | None = None
        if code is ErrorCode.NON_EMPTY_GROUP:
            try:
                former = self._former(coordinators.classic, group_id)
            except UsageError as error:
                what = f"group {group_id!r} has members of the classic protocol, and {error}"
                return ConsumerGroupHeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, message=what)
        elif code is not ErrorCode.NONE:
            return ConsumerGroupHeartbeatResult(code)
        result = coordinators.newer.heartbeat(request, former)
        if coordinators.newer.has(group_id):  # else it was refused
            for joins, done in coordinators.classic.let_go(group_id):
                done(coordinators.newer.join_classic(joins))
        return result

    def _former(self, classic: GroupCoordinator, group_id: str) -> Group | None:
        """A classic group as one of the newer protocol; None if no member of it knows that it is one.

        Raises:
            UsageError: it cannot become one.
        """
        if not self._upgrades:
            policy = self._config.group_consumer_migration_policy
            raise UsageError(f"group_consumer_migration_policy is {policy!r}: wait until it is empty")
        handed = classic.handed(group_id)
        if handed is None or not handed.snapshot.members:
            return None
        return to_newer(handed, self._topics())

    def _make_classic_again(self, group_id: str) -> None:
        """The last member of the newer protocol has gone: those that are left go on as a classic group."""
        with self._deciding:
            if self._open is None or not self._downgrades:
                return
            classic, newer = self._open
            handed = newer.hand_back(group_id, self._storage.store_handed)
            if handed is not None:
                classic.take_in(handed)

    # Administrators

    def list_groups(self) -> Pending[ListGroupsResult]:
        try:
            coordinators = self._coordinators_of(None)
        except LogstoreError as error:
            return Answered(ListGroupsResult(code_of(error), message=str(error)))
        return Answered(ListGroupsResult(ErrorCode.NONE, self._listed(coordinators)))

    def _listed(self, coordinators: _Coordinators) -> tuple[ListedGroup, ...]:
        found: list[tuple[ListedGroup, ...]] = []
        coordinators.classic.list_groups((), found.append)
        newer = coordinators.newer.states()
        return tuple(each for each in found[0] if each.group_id not in newer) + tuple(
            ListedGroup(name, PROTOCOL_TYPE, state.value, CONSUMER) for name, state in newer.items()
        )

    def describe_groups(self, group_ids: tuple[str, ...]) -> Pending[tuple[DescribedGroup, ...]]:
        """Those of the classic protocol; others are ``Dead``."""
        try:
            classic, _ = self._coordinators_of(group_ids)
        except LogstoreError as error:
            code, message = code_of(error), str(error)
            return Answered(tuple(DescribedGroup(code, each, "", message=message) for each in group_ids))
        promise: Promise[tuple[DescribedGroup, ...]] = Promise()
        classic.describe_groups(group_ids, promise.complete)
        return promise

    def describe_consumer_groups(
        self, group_ids: tuple[str, ...]
    ) -> Pending[tuple[DescribedConsumerGroup, ...]]:
        """Those of the newer protocol; others are not found."""
        try:
            newer = self._coordinators().newer
        except LogstoreError as error:
            code, message = code_of(error), str(error)
            return Answered(tuple(DescribedConsumerGroup(code, each, message=message) for each in group_ids))
        return Answered(tuple(map(newer.describe, group_ids)))

    def delete_groups(self, group_ids: tuple[str, ...]) -> Pending[dict[str, ErrorCode]]:
        try:
            self._coordinators_of(group_ids)
        except LogstoreError as error:
            return Answered(dict.fromkeys(group_ids, code_of(error)))
        promise: Promise[dict[str, ErrorCode]] = Promise()
        self._delete(group_ids, promise.complete)
        return promise

    def _delete(self, group_ids: tuple[str, ...], done: Callable[[dict[str, ErrorCode]], object]) -> None:
        classic, newer = self._coordinators()
        found = {each: newer.delete(each) for each in group_ids if newer.has(each)}
        others = [each for each in group_ids if each not in found]
        classic.delete_groups(others, lambda codes: done({each: (found | codes)[each] for each in group_ids}))

    def _ask_either(
        self,
        request: _OfGroup,
        of_newer: Callable[[ConsumerGroupCoordinator, _OfGroup], T],
        of_classic: Callable[[GroupCoordinator, _OfGroup, Callable[[T], object]], None],
        refusal: Callable[[ErrorCode], T],
    ) -> Pending[T]:
        """What the coordinator answers that has the group; it does not change over meanwhile."""

        def ask(groups: _Coordinators, done: Callable[[T], object]) -> None:
            with self._deciding:
                if groups.newer.has(request.group_id):
                    done(of_newer(groups.newer, request))
                else:
                    of_classic(groups.classic, request, done)

        return self._ask(ask, refusal)

    def _ask(
        self,
        ask: Callable[[_Coordinators, Callable[[T], object]], object],
        refusal: Callable[[ErrorCode], T],
    ) -> Pending[T]:
        """What a coordinator answers, or its refusal if the groups cannot be read."""
        try:
            coordinators = self._coordinators()
        except LogstoreError as error:
            return Answered(refusal(code_of(error)))
        promise: Promise[T] = Promise()
        ask(coordinators, promise.complete)
        return promise
