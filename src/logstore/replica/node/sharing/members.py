"""The members of share groups, at the node that coordinates groups. They are not stored: those of an earlier
coordinator hear that they are unknown, and join again.

Lock: ``_lock`` guards the groups and their members. Nothing is called with it held.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Container, Sequence

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.group import Group, refusal_of
from logstore.broker.share.kept import AS_SET, Beginning, Codes, first_error
from logstore.broker.share.requests import (
    HEARTBEAT_INTERVAL_MS,
    LEAVING,
    DescribedShareGroup,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    TopicIdPartition,
)
from logstore.clock import Clock
from logstore.errors import LogstoreError
from logstore.format.messages.share_records import ShareKey
from logstore.model import TopicPartition
from logstore.replica.node.sharing.asking import StateAsker
from logstore.replica.node.telling import SHARE_STATES
from logstore.wire.handlers.then import then_ask


class ShareMembers:
    """Of one term of the coordinator. All methods may be called from many threads."""

    def __init__(
        self,
        topics: Callable[[], Topics],
        states: StateAsker,
        newest_config_of: Callable[[str], ShareGroupConfig],
        clock: Clock,
    ) -> None:
        """``newest_config_of``: see :meth:`.ClusterGroupSettings.newest_config_of`."""
        self._topics = topics
        self._newest_config_of = newest_config_of
        self._states = states
        self._clock = clock
        self._lock = threading.Lock()
        self._groups: dict[str, Group] = {}
        self._begun: dict[str, set[tuple[uuid.UUID, int]]] = {}
        """The partitions of which the share coordinator knows that the group works on them."""

    def heartbeat(self, beat: ShareGroupHeartbeat) -> Pending[ShareGroupHeartbeatResult]:
        """A member joins (epoch 0), is alive, or leaves (epoch -1). It is given partitions when the share
        coordinator knows of them."""
        refusal = refusal_of(beat)
        if refusal is not None:
            return Answered(refusal)
        if beat.member_epoch == LEAVING:
            return Answered(self._leave(beat))
        with self._lock:
            topics = self._topics_of_locked(beat)
            partitions = [each for topic in topics for each in self._partitions_of(topic)]
            begun = self._begun.get(beat.group, set())
            missing = [each for each in partitions if _place(each) not in begun]
        if not missing:
            return Answered(self._hear(beat))
        keys = [ShareKey(beat.group, each.topic_id, each.partition.partition) for each in missing]

        def go_on(codes: Codes) -> Pending[ShareGroupHeartbeatResult]:
            failed = first_error(codes)
            if failed is not NONE:
                message = (
                    f"{SHARE_STATES} does not take now how far the group is: {failed.name} at its leader"
                )
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                return Answered(ShareGroupHeartbeatResult(code, message=message))
            with self._lock:
                self._begun.setdefault(beat.group, set()).update(map(_place, missing))
            return Answered(self._hear(beat))

        # Leaders may not know yet of settings that the group was just given, and neither may this node.
        try:
            begins_at_end = self._newest_config_of(beat.group).auto_offset_reset == "latest"
        except LogstoreError as error:
            message = f"how the group is to begin is not known now: {error}"
            return Answered(ShareGroupHeartbeatResult(ErrorCode.COORDINATOR_NOT_AVAILABLE, message=message))
        start = AS_SET if begins_at_end else 0
        return then_ask(self._states.begin([Beginning(key, start) for key in keys]), go_on)

    def _topics_of_locked(self, beat: ShareGroupHeartbeat) -> tuple[str, ...]:
        if beat.topics is not None:
            return beat.topics
        group = self._groups.get(beat.group)
        member = None if group is None else group.members.get(beat.member_id)
        return () if member is None else member.topics

    def _partitions_of(self, name: str) -> Sequence[TopicIdPartition]:
        topic = self._topics().get(name)
        if topic is None:
            return ()
        return [
            TopicIdPartition(TopicPartition(name, number), topic.topic_id)
            for number in range(topic.partition_count)
        ]

    def _hear(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            group = self._groups.get(beat.group) or Group(beat.group)
            group.expire(now_ms)  # their locks run out where the partitions are led
            code = group.check(beat)
            if code is not NONE:
                return ShareGroupHeartbeatResult(code)
            topics = self._topics_of_locked(beat)
            begun = self._begun.get(beat.group, set())
            partitions = {
                topic: tuple(each for each in self._partitions_of(topic) if _place(each) in begun)
                for topic in topics
            }
            member, is_new = group.hear(beat, topics, partitions, now_ms)
            self._groups[beat.group] = group
            return ShareGroupHeartbeatResult(
                NONE,
                beat.member_id,
                member.epoch,
                member.assignment,
                is_new=is_new,
                heartbeat_interval_ms=min(HEARTBEAT_INTERVAL_MS, beat.session_timeout_ms // 3),
            )

    def _leave(self, beat: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult:
        with self._lock:
            group = self._groups.get(beat.group)
            if group is None or not group.remove(beat.member_id):
                return ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID)
            return ShareGroupHeartbeatResult(NONE, beat.member_id, LEAVING)

    # For administrators

    def names(self) -> set[str]:
        """The groups that have members."""
        return {each.group for each in self.describe_all() if each.members}

    def describe(self, name: str) -> DescribedShareGroup | None:
        """A group that has members."""
        with self._lock:
            group = self._groups.get(name)
            found = None if group is None else self._describe_locked(name, group)
        return found if found is not None and found.members else None

    def describe_all(self) -> list[DescribedShareGroup]:
        """Also groups without members, as far as they had some lately."""
        with self._lock:
            return [self._describe_locked(*each) for each in self._groups.items()]

    def _describe_locked(self, name: str, group: Group) -> DescribedShareGroup:
        group.expire(self._clock.monotonic_ms())
        members = tuple(member.describe(member_id) for member_id, member in group.members.items())
        state = "Stable" if members else "Empty"
        return DescribedShareGroup(NONE, name, state, members, epoch=group.epoch)

    def forget(self, name: str) -> ErrorCode:
        """A group without members is to be deleted."""
        with self._lock:
            group = self._groups.get(name)
            if group is not None:
                group.expire(self._clock.monotonic_ms())
                if group.members:
                    return ErrorCode.NON_EMPTY_GROUP
            self._groups.pop(name, None)
            self._begun.pop(name, None)
            return NONE

    def forget_topics(self, name: str, topic_ids: Container[uuid.UUID]) -> None:
        """A group without members begins with these topics anew."""
        with self._lock:
            begun = self._begun.get(name, set())
            self._begun[name] = {each for each in begun if each[0] not in topic_ids}

    def keys_of(self, name: str) -> list[ShareKey]:
        """All partitions that there are, as those of one group."""
        return [
            ShareKey(name, topic.topic_id, number)
            for topic in self._topics().values()
            for number in range(topic.partition_count)
        ]


def _place(partition: TopicIdPartition) -> tuple[uuid.UUID, int]:
    return partition.topic_id, partition.partition.partition
