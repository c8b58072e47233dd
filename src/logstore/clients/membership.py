"""A consumer's membership in a group: it joins, gets partitions, stays alive, and leaves.

Has no thread: :meth:`Membership.step` does what can be done now, and tells what it waits for. The consumer
calls it in each poll. A member that is not heard of for ``max_poll_interval_ms`` loses its partitions to the
others. The protocol is Kafka's classic one.

The rebalance protocol is that of the assignors (KIP-429). Eager members give up everything before they join.
Cooperative ones keep what they have, give up what others get, and join once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.broker.groups.requests import (
    DescribedGroup,
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from logstore.broker.pending import Pending
from logstore.broker.storing.groups import HERE
from logstore.clients.assignors import Assignor, RebalanceProtocol, Subscription, common_protocol
from logstore.clients.polling import LONG_MS
from logstore.clients.seats import ConsumerSeat
from logstore.clients.settings import ConsumerConfig
from logstore.clock import Clock
from logstore.errors import FencedError
from logstore.format.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    by_topic,
    decode_assignment,
    encode_assignment,
    ungrouped,
)
from logstore.format.names import OFFSETS_TOPIC
from logstore.model import TopicPartition

_CLIENT_ID: Final = "logstore"
_RETRY_MS: Final = 100
_ANSWER_MS: Final = 20
"""How often to look for the answer to a sign of life: a broker elsewhere takes a while."""


class _Phase(Enum):
    """What a member does."""

    OUTSIDE = "outside"
    """It is to join."""
    JOINING = "joining"
    SYNCING = "syncing"
    MEMBER = "member"


class Membership:
    """Of one consumer."""

    def __init__(
        self,
        broker: Broker,
        group: str,
        topics: Sequence[str],
        *,
        assignors: Sequence[Assignor],
        instance_id: str | None,
        config: ConsumerConfig,
        clock: Clock,
        count_partitions: Callable[[Sequence[str]], dict[str, int]],
        give_up: Callable[[Sequence[TopicPartition], bool], object],
        take: Callable[[Sequence[TopicPartition]], object],
    ) -> None:
        """
        Args:
            count_partitions: how many partitions topics have.
            give_up: called with partitions that are no longer the member's; and whether they are lost, so
                that nothing can be committed for them any more.
            take: called with new partitions.
        """
        self._broker = broker
        self._group = group
        self._topics = frozenset(topics)
        self._assignors = tuple(assignors)
        self._protocol = common_protocol(assignors)
        self._instance_id = instance_id
        self._config = config
        self._clock = clock
        self._count_partitions = count_partitions
        self._give_up = give_up
        self._take = take
        self._phase = _Phase.OUTSIDE
        self._is_fenced = False
        """Whether another member has taken its place: it must not take it back."""
        self._joining: Pending[JoinGroupResult] | None = None
        self._syncing: Pending[SyncGroupResult] | None = None
        self._beating: Pending[ErrorCode] | None = None
        """A sign of life that was not answered yet."""
        self._looking: Pending[tuple[DescribedGroup, ...]] | None = None
        """What a leader that has come back asks: who has which partitions."""
        self._joined: JoinGroupResult | None = None
        self._counts: dict[str, int] = {}
        self._next_ms = -1
        """When to try again, or to give a sign of life."""
        self.seat = ConsumerSeat(group)
        self.generation = -1
        self.owned: tuple[TopicPartition, ...] = ()
        """The partitions that it has."""
        self._last: tuple[TopicPartition, ...] = ()
        """Its last assignment, also after it was given up for the next."""
        self._last_generation = -1

    @property
    def member_id(self) -> str:
        """The name that the group gave it; empty outside of it."""
        return self.seat.member_id

    # What the consumer asks

    @property
    def is_member(self) -> bool:
        """Whether its partitions are known."""
        return self._phase is _Phase.MEMBER

    @property
    def waits_for(self) -> Pending[Any] | None:
        """What it waits for, if it is joining."""
        return self._joining or self._syncing

    def wait_ms(self) -> int:
        """In how many milliseconds :meth:`step` has something to do, if :attr:`waits_for` is not answered
        before."""
        if self.waits_for is not None:
            return LONG_MS
        if self._beating is not None:
            return _ANSWER_MS
        return max(self._next_ms - self._clock.monotonic_ms(), 0)

    def step(self) -> bool:
        """Do what can be done now. Returns whether that was anything but waiting.

        Raises:
            FencedError: another member has the same ``group_instance_id`` now.
            LogstoreError: the group does not take the member; says why.
        """
        if self._is_fenced:
            raise self._fenced()
        if self._phase is _Phase.MEMBER:
            return self._stay_alive()
        if self._phase is _Phase.OUTSIDE:
            return self._join()
        return self._finish_joining() if self._phase is _Phase.JOINING else self._finish_syncing()

    @property
    def is_removed(self) -> bool:
        """Whether the group has said that it is no member any more: nothing can be committed."""
        return self._last_generation < 0

    def give_up_all(self) -> None:
        """Before it leaves, or joins with an eager protocol."""
        owned, self.owned = self.owned, ()
        if owned:
            self._give_up(owned, False)

    def leave(self) -> None:
        """Leave, so that others get the partitions at once. A static member stays, for it comes back."""
        for pending in (self._joining, self._syncing):
            if pending is not None:
                pending.cancel()
        self._joining = self._syncing = None
        if self.member_id and self._instance_id is None:
            self._broker.leave_group(LeaveGroup(self._group, (LeavingMember(self.member_id),)))
        self._forget()

    # Joining

    def _join(self) -> bool:
        if self._clock.monotonic_ms() < self._next_ms:
            return False
        if self._protocol is RebalanceProtocol.EAGER:
            self.give_up_all()
        metadata = [
            GroupProtocol(
                each.name,
                Subscription(
                    topics=self._topics,
                    owned=self.owned,
                    generation=self._last_generation,
                    user_data=each.subscription_user_data(self._topics, self._last, self._last_generation),
                ).encode(),
            )
            for each in self._assignors
        ]
        request = JoinGroup(
            self._group,
            PROTOCOL_TYPE,
            tuple(metadata),
            self._config.max_poll_interval_ms,
            self._config.max_poll_interval_ms,
            self.member_id,
            self._instance_id,
            client_id=self._config.client_id or _CLIENT_ID,
            client_host=HERE,
            can_skip_assignment=True,
            requires_member_id=not self.member_id,  # who leaves before it is in has to have a name
        )
        self._joining, self._phase = self._broker.join_group(request), _Phase.JOINING
        self._finish_joining()
        return True

    def _finish_joining(self) -> bool:
        result = None if self._joining is None else self._joining.poll()
        if result is None:
            return False
        self._joining = None
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.seat.member_id = result.member_id
            return self._join()
        if result.error is not ErrorCode.NONE:
            return self._refused(result.error, result.message)
        self.seat.member_id, self.generation, self._joined = result.member_id, result.generation, result
        assignments, self._counts = {}, {}
        if result.leader_id == result.member_id and not result.skip_assignment:
            assignments = self._assign(result)
        request = SyncGroup(
            self._group,
            result.generation,
            result.member_id,
            self._instance_id,
            result.protocol_type,
            result.protocol,
            assignments,
        )
        self._syncing, self._phase = self._broker.sync_group(request), _Phase.SYNCING
        self._finish_syncing()
        return True

    def _assign(self, joined: JoinGroupResult) -> dict[str, bytes]:
        """What the leader decides for all."""
        assignor = next(each for each in self._assignors if each.name == joined.protocol)
        members = {
            each.member_id: Subscription.decode(each.metadata, instance_id=each.instance_id)
            for each in joined.members
        }
        topics = sorted(set().union(*(each.topics for each in members.values())))
        self._counts = self._count_partitions(topics)
        assigned = assignor.assign(self._counts, members)
        return {
            member_id: encode_assignment(ConsumerProtocolAssignment(by_topic(sorted(partitions))))
            for member_id, partitions in assigned.items()
        }

    def _finish_syncing(self) -> bool:
        result = None if self._syncing is None else self._syncing.poll()
        if result is None:
            return False
        self._syncing = None
        if result.error is not ErrorCode.NONE:
            return self._refused(result.error)
        self._phase = _Phase.MEMBER
        self._next_ms = self._clock.monotonic_ms() + self._config.heartbeat_interval_ms
        assigned = (
            ()
            if not result.assignment
            else ungrouped(decode_assignment(result.assignment).assigned_partitions)
        )
        self._last, self._last_generation = tuple(assigned), self.generation
        if self._joined is not None and self._joined.skip_assignment:
            self._looking = self._broker.describe_groups((self._group,))
        gone = tuple(each for each in self.owned if each not in assigned)
        new = tuple(each for each in assigned if each not in self.owned)
        self.owned = tuple(assigned)
        try:
            if gone:
                self._outside()  # so that others can have them
                self._give_up(gone, False)
        finally:
            self._take(new)
        return True

    # Being a member

    def _is_outdated(self) -> bool:
        """Whether topics have got or lost partitions while this member was away. As it leads the group, no
        other member looks. Until the answer comes, it keeps its assignment."""
        found = None if self._looking is None else self._looking.poll()
        if found is None:
            return False
        self._looking = None
        if any(each.error is not ErrorCode.NONE or each.state != "Stable" for each in found):
            return False
        members = [member for each in found for member in each.members]
        topics = self._topics.union(*(Subscription.decode(each.metadata).topics for each in members))
        self._counts = self._count_partitions(sorted(topics))
        assigned = {
            partition
            for each in members
            if each.assignment
            for partition in ungrouped(decode_assignment(each.assignment).assigned_partitions)
        }
        return assigned != {
            TopicPartition(topic, number) for topic, count in self._counts.items() for number in range(count)
        }

    def _stay_alive(self) -> bool:
        if self._is_outdated():
            self._outside()
            return True
        now_ms = self._clock.monotonic_ms()
        if self._beating is None:
            if now_ms < self._next_ms:
                return False
            self._next_ms = now_ms + self._config.heartbeat_interval_ms
            beat = Heartbeat(self._group, self.generation, self.member_id, self._instance_id)
            self._beating = self._broker.heartbeat(beat)
        answer = self._beating.poll()
        if answer is None:
            return False
        self._beating = None
        if answer is not ErrorCode.NONE:
            self._refused(answer)
            return True
        if self._is_leader and self._count_partitions(sorted(self._counts)) != self._counts:
            self._outside()
            return True
        return False

    @property
    def _is_leader(self) -> bool:
        return self._joined is not None and self._joined.leader_id == self.member_id and bool(self._counts)

    def refused(self, error: ErrorCode) -> None:
        """The coordinator has refused something of the member: it joins once more, if that helps.

        Raises:
            FencedError: another member has its ``group_instance_id``.
        """
        self._refused(error)

    def _refused(self, error: ErrorCode, message: str | None = None) -> bool:
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lose()
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.seat.member_id = ""
            self._outside()
            return True
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._outside()
            return True
        if error is ErrorCode.KAFKA_STORAGE_ERROR:  # a full or failed disk: to go on trying would hide it
            self._outside()
            raise error_of(
                error,
                f"group {self._group!r} cannot be stored, so nobody joins it: look after the disk, and at "
                f"the topic {OFFSETS_TOPIC}, which may have to be reopened; then poll again",
            )
        if error in RETRIABLE:
            self._outside()
            self._next_ms = self._clock.monotonic_ms() + _RETRY_MS
            return False
        self._lose()
        self._forget()
        if error is ErrorCode.FENCED_INSTANCE_ID:
            self._is_fenced = True
            raise self._fenced()
        why = message or error.name
        if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            why += (
                ": its members have none of the assignors of this one. Give it one of theirs, such as "
                "assignors=['range']; or wait until they are gone: those that have died, or were there when "
                "the directory was copied, count until their session time-out, 45 s by default"
            )
        raise error_of(error, f"group {self._group!r} does not take the consumer: {why}")

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another consumer of group {self._group!r} has the group_instance_id {self._instance_id!r} now; "
            "each needs its own, and this one is out"
        )

    def _lose(self) -> None:
        """Others may have the partitions already."""
        owned, self.owned = self.owned, ()
        self._last, self._last_generation = (), -1
        if owned:
            self._give_up(owned, True)

    def _outside(self) -> None:
        self._phase, self._next_ms = _Phase.OUTSIDE, -1
        self._beating = self._looking = None

    def _forget(self) -> None:
        self.seat.member_id, self.generation, self.owned = "", -1, ()
        self._outside()
