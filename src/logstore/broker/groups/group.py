"""A group and its members: who is in it, who leads, which protocol they have in common.

Knows the rules of membership and the generation. Does not know what a change leads to: answers, timers and
storage are the business of :mod:`~logstore.broker.groups.active`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import (
    DescribedGroup,
    DescribedMember,
    Done,
    GroupProtocol,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    SyncGroupResult,
)
from logstore.broker.groups.snapshots import GroupSnapshot, HandedGroup, MemberSnapshot
from logstore.broker.groups.states import Event, State, next_state
from logstore.broker.groups.subscriptions import decode_all_topics, decode_topics, has_to_give_up
from logstore.broker.timers import Countdown
from logstore.format.messages.consumer_protocol import PROTOCOL_TYPE as CONSUMER


class Member:
    """A member of a group, and the request in which it waits."""

    __slots__ = (
        "assignment",
        "instance_id",
        "is_new",
        "join_done",
        "joins",
        "known_generation",
        "member_id",
        "session",
        "sync_done",
    )

    def __init__(self, joins: JoinGroup, member_id: str, session: Countdown, assignment: bytes = b"") -> None:
        self.joins = joins
        """Its latest JoinGroup: its protocols, timeouts and client."""
        self.member_id = member_id
        self.instance_id = joins.instance_id
        self.session = session
        """Until when it must be heard of."""
        self.assignment = assignment
        self.is_new = False
        """Whether it does not know its id yet, and so cannot send heartbeats."""
        self.known_generation: int | None = None
        """What it takes for the generation, if it has not joined since its group had the newer protocol."""
        self.join_done: Done[JoinGroupResult] | None = None
        self.sync_done: Done[SyncGroupResult] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due to it, and so no heartbeat."""
        return (self.join_done is not None and not self.is_new) or self.sync_done is not None

    @property
    def knows_its_id(self) -> bool:
        """Whether it was told, or is about to be as a static one that has restarted."""
        return bool(self.joins.member_id) or not self.is_new

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says for a protocol; empty if it does not support it."""
        return self.joins.metadata(protocol)


class Group:
    """Members, and the generation that they are in."""

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.since_ms = now_ms
        """When it came into its state, by the wall clock."""
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        """In the order in which they came."""
        self.pending: dict[str, Countdown] = {}
        """Ids that were given out, and with which no member has joined yet: until when that may happen."""
        self.topics: frozenset[str] | None = None
        """What a generation of consumers subscribes to; None if that is not known."""
        self.joined_count = 0
        """How many members wait for the next generation."""
        self._static: dict[str, str] = {}
        """Instance id -> member id."""
        self._support: Counter[str] = Counter()
        """Protocol -> the number of members that support it."""

    def move(self, event: Event, now_ms: int) -> State:
        """Follow the table of states. Returns the state that it was in."""
        before = self.state
        self.state = next_state(before, event)
        if self.state is not before:
            self.since_ms = now_ms
        return before

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a member, whose protocols fit and whose instance id is not taken. The first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        self._count(member.joins, 1)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member: Member) -> None:
        """Take out a member, which waits for nothing. If it led, the oldest one leads."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member.joins, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)

    def update(self, member: Member, joins: JoinGroup) -> None:
        """A member joins again, perhaps with other protocols."""
        self._count(member.joins, -1)
        member.joins = joins
        self._count(joins, 1)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id. If it leads, it still does."""
        if self.leader_id == member.member_id:
            self.leader_id = member_id
        del self.members[member.member_id]
        member.member_id = member_id
        self.members[member_id] = member
        assert member.instance_id is not None
        self._static[member.instance_id] = member_id

    def wait_for_join(self, member: Member, done: Done[JoinGroupResult]) -> None:
        """The member waits for the next generation; for nothing else before."""
        assert member.join_done is None
        member.join_done = done
        member.known_generation = None
        self.joined_count += 1

    def take_join(self, member: Member) -> Done[JoinGroupResult] | None:
        """The member waits no longer. Returns what is to be told the result."""
        done, member.join_done = member.join_done, None
        self.joined_count -= done is not None
        return done

    def _count(self, joins: JoinGroup, number: int) -> None:
        for name in {name for name, _ in joins.protocols}:
            self._support[name] += number
            if not self._support[name]:
                del self._support[name]

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that has this instance id now."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether it is a member; FENCED_INSTANCE_ID if another one has its instance id now."""
        if instance_id is not None and instance_id in self._static:
            is_fenced = self._static[instance_id] != member_id
            return ErrorCode.FENCED_INSTANCE_ID if is_fenced else ErrorCode.NONE
        is_known = instance_id is None and member_id in self.members
        return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_MEMBER_ID

    # Protocols

    def accepts(self, joins: JoinGroup) -> bool:
        """Whether the type is the group's, and one of the protocols is supported by all members."""
        if self.state is State.EMPTY:
            return bool(joins.protocol_type and joins.protocols)
        return joins.protocol_type == self.protocol_type and any(
            self._support[name] == len(self.members) for name, _ in joins.protocols
        )

    def elect_protocol(self) -> str:
        """The protocol with the most votes. Each member votes for its favourite of those that all support;
        in a tie the oldest member decides."""
        common = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(
            next(name for name, _ in member.joins.protocols if name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def needs_assignment(self, member: Member, before: JoinGroup) -> bool:
        """Whether a consumer that has restarted subscribes to other topics than before, or had still to give
        up a partition and join again, which it no longer knows (KIP-429). The rest of its metadata differs
        after each restart and says nothing."""
        if self.protocol_type != CONSUMER:
            return False
        old = before.metadata(self.protocol)
        has_other_topics = decode_topics(old) != decode_topics(member.metadata(self.protocol))
        return has_other_topics or has_to_give_up(old, member.assignment)

    # Generations

    @property
    def have_all_joined(self) -> bool:
        """Whether all are there: no member, and no holder of a fresh member id."""
        return not self.pending and self.joined_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members'."""
        return max((member.joins.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_leader(self) -> bool:
        """Make sure that the leader has joined. False if no member has."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join_done is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_done is not None), None)
        if joined is not None:
            self.leader_id = joined.member_id
        return joined is not None

    def begin_generation(self, now_ms: int) -> None:
        """The next generation, of the members that there are."""
        self.generation += 1
        self.protocol = self.elect_protocol() if self.members else None
        self.learn_topics()
        self.move(Event.ALL_JOINED if self.members else Event.NONE_LEFT, now_ms)

    def learn_topics(self) -> None:
        """Read what the members subscribe to."""
        self.topics = None
        if self.protocol_type == CONSUMER:
            self.topics = decode_all_topics(
                member.metadata(self.protocol) for member in self.members.values()
            )

    def restore(self, snapshot: GroupSnapshot) -> None:
        """Become what was stored; the members are there already."""
        self.state = State.STABLE if self.members else State.EMPTY
        self.since_ms = snapshot.state_timestamp_ms
        self.generation = snapshot.generation
        self.protocol_type = snapshot.protocol_type or None
        self.protocol = snapshot.protocol
        self.leader_id = snapshot.leader_id
        self.learn_topics()

    # Views

    def joined(self, member: Member, *, skip_assignment: bool = False) -> JoinGroupResult:
        """What a member is told of this generation; the leader gets the list of members."""
        is_leader = member.member_id == self.leader_id
        members = self.members.values() if is_leader else ()
        return JoinGroupResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader_id or "",
            skip_assignment and is_leader,
            tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol)) for m in members),
        )

    def rejoined(self, member: Member, old_leader_id: str) -> JoinGroupResult:
        """What a static member is told that has restarted, while the assignment stays. If it leads, it must
        not assign again: a client that can be told so is (KIP-814); to others it looks as if its former self
        still led."""
        if member.joins.can_skip_assignment:
            return self.joined(member, skip_assignment=True)
        return self.joined(member)._replace(leader_id=old_leader_id, members=())

    def synced(self, member: Member) -> SyncGroupResult:
        """What a member is told of the assignment."""
        return SyncGroupResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    def assignments(self) -> dict[str, bytes]:
        """The parts of all members, by member id."""
        return {member.member_id: member.assignment for member in self.members.values()}

    def snapshot(self, assignments: Mapping[str, bytes]) -> GroupSnapshot:
        """What is stored of it, with this assignment."""
        return GroupSnapshot(
            self.group_id,
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader_id,
            self.since_ms,
            tuple(
                MemberSnapshot(
                    member.member_id,
                    member.instance_id,
                    member.joins.client_id,
                    member.joins.client_host,
                    member.joins.rebalance_timeout_ms,
                    member.joins.session_timeout_ms,
                    member.metadata(self.protocol),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def generation_of(self, member: Member) -> int:
        """The generation that a member is in."""
        return self.generation if member.known_generation is None else member.known_generation

    def join_of(self, member: Member) -> JoinGroup:
        """The latest JoinGroup of a member, with the id that it has."""
        return member.joins._replace(member_id=member.member_id) if member.knows_its_id else member.joins

    def handed(self) -> HandedGroup:
        """What goes on with the newer protocol. A member that waits in its first JoinGroup without an id is
        left out: it does not know the one that it has here, and joins again as another."""
        known = [each for each in self.members.values() if each.knows_its_id]
        snapshot = self.snapshot(self.assignments())
        kept = {each.member_id for each in known}
        return HandedGroup(
            snapshot._replace(members=tuple(each for each in snapshot.members if each.member_id in kept)),
            tuple(map(self.join_of, known)),
            tuple(map(self.generation_of, known)),
        )

    def describe(self) -> DescribedGroup:
        """What an administrator sees. What members say and have is shown only of a stable group, as in
        Kafka: otherwise it belongs to no generation."""
        is_stable = self.state is State.STABLE
        return DescribedGroup(
            ErrorCode.NONE,
            self.group_id,
            self.state.value,
            self.protocol_type or "",
            (self.protocol or "") if is_stable else "",
            tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.joins.client_id,
                    member.joins.client_host,
                    member.metadata(self.protocol) if is_stable else b"",
                    member.assignment if is_stable else b"",
                )
                for member in self.members.values()
            ),
        )


def joins_of(snapshot: GroupSnapshot, member: MemberSnapshot) -> JoinGroup:
    """The request with which a stored member could have joined."""
    timeout_ms = member.rebalance_timeout_ms
    return JoinGroup(
        snapshot.group_id,
        snapshot.protocol_type,
        (GroupProtocol(snapshot.protocol or "", member.subscription),),
        member.session_timeout_ms,
        timeout_ms if timeout_ms >= 0 else member.session_timeout_ms,
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
    )
