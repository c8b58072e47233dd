"""Members of share groups (KIP-932), and their heartbeats.

A coordinator names partitions by the ids of their topics; the seam by names and ids.

Lock: ``ShareMembers._lock`` guards who there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgedPartition,
    DescribedShareGroup,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResult,
    ShareFetchRequest,
    ShareFetchResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
    TopicIdPartition,
)
from logstore.logdir.group_settings import AUTO_OFFSET_RESET, DEAD_LETTER_TOPIC
from logstore.model import TopicPartition
from logstore.warning import inform, warn
from logstore.wire.remote.connections.questions import RemotePending
from logstore.wire.remote.routing.asking import Gathered, ask, ask_all
from logstore.wire.remote.routing.cluster import Cluster, Leader
from logstore.wire.remote.routing.coordinators import Coordinators, Kind
from logstore.wire.remote.shares.share_member import ShareMember
from logstore.wire.remote.translate import shares
from logstore.wire.remote.translate.shares import (
    LAST_EPOCH,
    AcknowledgeInSession,
    Beat,
    Configure,
    Configured,
)

_REFUSED_FOR_GOOD = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
"""The broker does not know a setting, or does not allow it. Other refusals may be of a moment."""
_BROKERS_RESET: Final = "latest"
"""Where a share group begins that was told nothing."""
_BEGINS_ELSEWHERE: Final = (
    "share group %r is new, and %s=%s was not set: %s. Unless an administrator has set it, jobs in front of "
    "its first worker are passed over. The user needs ALTER_CONFIGS on the group"
)
_NOT_A_MEMBER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
_ASSIGNED_MS = 20
_LONGEST_ASSIGNING_MS = 5_000


class ShareMembers:
    """All members of share groups that are clients of one program."""

    def __init__(self, cluster: Cluster, coordinators: Coordinators, client_id: str) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._client_id = client_id
        self._lock = threading.Lock()
        self._members: dict[tuple[str, str], ShareMember] = {}

    def _member(self, group: str, member_id: str) -> ShareMember | None:
        with self._lock:
            return self._members.get((group, member_id))

    def fetch(self, request: ShareFetchRequest) -> RemotePending[ShareFetchResult]:
        """See :meth:`.Broker.share_fetch`."""
        member = self._member(request.group, request.member_id)
        if member is not None:
            return member.fetch(request)
        pending: RemotePending[ShareFetchResult] = RemotePending()
        pending.complete(ShareFetchResult(ErrorCode.UNKNOWN_MEMBER_ID))
        return pending

    def acknowledge(self, request: ShareAcknowledgeRequest) -> RemotePending[ShareAcknowledgeResult]:
        """See :meth:`.Broker.share_acknowledge`."""
        member = self._member(request.group, request.member_id)
        if member is not None:
            return member.acknowledge(request)
        pending: RemotePending[ShareAcknowledgeResult] = RemotePending()
        code = ErrorCode.UNKNOWN_MEMBER_ID
        lost = (AcknowledgedPartition(each.partition, code, each.batches) for each in request.partitions)
        pending.complete(ShareAcknowledgeResult(tuple(lost), code))
        return pending

    # Heartbeats

    def heartbeat(self, request: ShareGroupHeartbeat) -> RemotePending[ShareGroupHeartbeatResult]:
        """See :meth:`.Broker.share_group_heartbeat`. A member that joins first gives the group its settings,
        as far as the broker lets it: of the protocol they are not."""
        pending: RemotePending[ShareGroupHeartbeatResult] = RemotePending()
        if request.member_epoch == LEAVING:
            with self._lock:
                member = self._members.pop((request.group, request.member_id), None)
            if member is None:
                self._leave_for(request, pending)
            else:
                member.leave(request.group, request.member_id, lambda: self._beat(request, pending))
        elif request.member_epoch != JOINING:
            self._beat(request, pending)
        elif request.waits_for_topics:
            self._configure(request, pending, lambda: self._beat(request, pending))
        else:
            self._check_topics(request, pending)
        return pending

    def _leave_for(
        self, request: ShareGroupHeartbeat, pending: RemotePending[ShareGroupHeartbeatResult]
    ) -> None:
        """Leave for a member that was dropped. It had connections of its own. Its session on each node ends
        first: otherwise the jobs that it holds stay locked until their locks run out."""
        asked = AcknowledgeInSession(
            ShareAcknowledgeRequest(request.group, request.member_id, ()), LAST_EPOCH
        )
        ask_all(
            self._cluster,
            shares.ACKNOWLEDGE,
            asked,
            self._client_id,
            lambda _: self._beat(request, pending),
        )

    def _check_topics(
        self, request: ShareGroupHeartbeat, pending: RemotePending[ShareGroupHeartbeatResult]
    ) -> None:
        """A group takes topics that are not there yet; a member of the seam is told."""

        def look(leaders: dict[TopicPartition, Leader]) -> None:
            codes = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)  # it is there
            failed = next((each for each in leaders.values() if each.error not in codes), None)
            if failed is not None:
                message = failed.message or failed.error.name
                pending.complete(ShareGroupHeartbeatResult(failed.error, message=message))
            else:
                until = time.monotonic() + _LONGEST_ASSIGNING_MS / 1000
                self._configure(request, pending, lambda: self._beat(request, pending, until=until))

        self._cluster.when_known([TopicPartition(name, 0) for name in request.topics or ()], look)

    def _configure(
        self,
        request: ShareGroupHeartbeat,
        pending: RemotePending[ShareGroupHeartbeatResult],
        then: Callable[[], object],
    ) -> None:
        """``pending`` is answered if the broker does not take what must not be left out, or takes nothing
        now: a group that begins without them may begin behind its first records."""
        if request.config is None:
            then()
            return

        def look(found: dict[str, DescribedShareGroup], _: int) -> None:
            described = found.get(request.group)
            if described is not None and described.members:  # the settings are theirs
                then()
            elif described is not None and described.error in RETRIABLE:  # there may be members
                pending.complete(ShareGroupHeartbeatResult(described.error, message=described.message))
            else:
                is_new = described is not None and described.error is ErrorCode.GROUP_ID_NOT_FOUND
                self._set(request, pending, then, is_new=is_new)

        target = self._coordinators.of(Kind.GROUP, request.group)
        ask(self._cluster, target, shares.DESCRIBE, (request.group,), request.client_id, look)

    def _set(
        self,
        request: ShareGroupHeartbeat,
        pending: RemotePending[ShareGroupHeartbeatResult],
        then: Callable[[], object],
        *,
        is_new: bool,
    ) -> None:
        config = request.config
        assert config is not None
        wanted = Configure(request.group, config)
        names = shares.settings_of(config)

        def all_done(refusals: list[ShareGroupHeartbeatResult | None]) -> None:
            refusal = next((each for each in refusals if each is not None), None)
            if refusal is None:
                then()
            else:
                pending.complete(refusal)

        gathered: Gathered[ShareGroupHeartbeatResult | None] = Gathered(len(names), all_done)
        for name in names:

            def done(told: Configured, _: int, name: str = name) -> None:
                refusal = None
                if told.error in _REFUSED_FOR_GOOD and name == DEAD_LETTER_TOPIC:
                    why = f"dead_letter_topic {names[name]!r}: {told.why}"  # its failed jobs would be lost
                    refusal = ShareGroupHeartbeatResult(ErrorCode.INVALID_CONFIG, message=why)
                elif told.error in _REFUSED_FOR_GOOD:
                    inform("share group %r: %s is left as it is: %s", request.group, name, told.why)
                    if is_new and name == AUTO_OFFSET_RESET and names[name] != _BROKERS_RESET:
                        warn(_BEGINS_ELSEWHERE, request.group, name, names[name], told.why)
                elif told.error is not ErrorCode.NONE:
                    refusal = ShareGroupHeartbeatResult(told.error, message=f"{name} was not set: {told.why}")
                gathered.add(refusal)

            translation = shares.configure(name)
            target = self._coordinators.of(Kind.GROUP, request.group)
            ask(self._cluster, target, translation, wanted, request.client_id, done)

    def _beat(
        self,
        request: ShareGroupHeartbeat,
        pending: RemotePending[ShareGroupHeartbeatResult],
        *,
        until: float = 0.0,
    ) -> None:
        target = self._coordinators.of(Kind.GROUP, request.group)
        client_id = request.client_id or self._client_id

        def done(beat: Beat, throttle_ms: int) -> None:
            if until and request.member_epoch != JOINING and beat.error in _NOT_A_MEMBER:
                # It waits for partitions, and the coordinator has begun anew meanwhile.
                self._beat(request._replace(member_epoch=JOINING), pending, until=until)
                return
            if beat.error is not ErrorCode.NONE or request.member_epoch == LEAVING:
                result = ShareGroupHeartbeatResult(
                    beat.error, beat.member_id, beat.member_epoch, message=beat.message
                )
                pending.complete_throttled(result, throttle_ms)
                return
            topics = self._note(request, beat)
            names = [TopicPartition(name, 0) for name in topics]
            self._cluster.when_known(
                names, lambda _: self._assigned(request, beat, pending, until, may_look_again=True)
            )

        ask(self._cluster, target, shares.HEARTBEAT, request, client_id, done)

    def _note(self, request: ShareGroupHeartbeat, beat: Beat) -> tuple[str, ...]:
        """What a member subscribes to, and was given; returns the topics."""
        key = (request.group, request.member_id)
        with self._lock:
            member = self._members.get(key)
            if member is None:
                member = self._members[key] = ShareMember(self._cluster, self._client_id)
            if request.topics is not None:
                member.topics = request.topics
            if beat.assignment is not None:
                member.assigned = beat.assignment
            return member.topics

    def _assigned(
        self,
        request: ShareGroupHeartbeat,
        beat: Beat,
        pending: RemotePending[ShareGroupHeartbeatResult],
        until: float,
        *,
        may_look_again: bool,
    ) -> None:
        """``until``: how long a member without partitions asks again. A coordinator assigns some soon after a
        member has joined. ``may_look_again``: for names of topics that were made meanwhile."""
        member = self._member(request.group, request.member_id)
        if member is None:  # it has left
            pending.complete(ShareGroupHeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        names = {value: name for name, value in self._cluster.topic_ids(member.topics).items()}
        if may_look_again and any(topic_id not in names for topic_id, _ in member.assigned):
            self._cluster.note_stale(member.topics)
            places = [TopicPartition(name, 0) for name in member.topics]
            self._cluster.when_known(
                places, lambda _: self._assigned(request, beat, pending, until, may_look_again=False)
            )
            return
        loop = self._cluster.dialer.loop
        is_patient = time.monotonic() < until and not loop.is_closed
        if not member.assigned and member.topics and is_patient:
            later = request._replace(member_epoch=beat.member_epoch)
            loop.try_later(_ASSIGNED_MS, lambda: self._beat(later, pending, until=until))
            return
        assignment = sorted(
            TopicIdPartition(TopicPartition(names[topic_id], number), topic_id)
            for topic_id, number in member.assigned
            if topic_id in names
        )
        result = ShareGroupHeartbeatResult(
            ErrorCode.NONE,
            beat.member_id,
            beat.member_epoch,
            tuple(assignment),
            is_new=beat.assignment is not None,
            heartbeat_interval_ms=beat.heartbeat_interval_ms,
        )
        pending.complete(result)
