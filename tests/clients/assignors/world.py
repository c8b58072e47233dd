"""A group that lives: members join, leave, subscribe anew and miss rounds; topics grow and go.

Kafka's sticky assignor depends on the order in which Java's hash maps yield the members. Those have names of
single characters here that follow each other, which is an order that hash maps keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from logstore.clients.assignors import ASSIGNORS, RebalanceProtocol, Subscription
from logstore.model import TopicPartition

NAMES = "@ABCDEFGHIJKLMNO"


class Group(NamedTuple):
    """What an assignor gets."""

    assignor: str
    counts: Mapping[str, int]
    members: Mapping[str, Subscription]
    rounds: int = 1
    """How often members join: each time with what they got, and nothing else."""


class Member:
    """What a member knows of itself."""

    def __init__(self, topics: set[str], instance_id: str | None) -> None:
        self.topics = topics
        self.instance_id = instance_id
        self.partitions: list[TopicPartition] = []
        self.generation = -1


class World:
    """One group with its topics. ``rng`` decides what happens."""

    def __init__(
        self,
        assignor: str,
        rng: Random,
        *,
        same_topics: bool,
        names: str = NAMES,
        max_members: int = 7,
        max_topics: int = 5,
        max_partitions: int = 9,
    ) -> None:
        self.assignor = ASSIGNORS[assignor]
        self.rng = rng
        self.same_topics = same_topics
        self.names = names
        self.max_members = max_members
        self.max_partitions = max_partitions
        self.generation = 0
        self.counts = {
            name: rng.randint(1, max_partitions) for name in "abcdefg"[: rng.randint(1, max_topics)]
        }
        self.topics = self._some_topics()
        self.members: dict[str, Member] = {}
        for _ in range(rng.randint(1, max_members)):
            self.join()

    def _some_topics(self) -> set[str]:
        names = [*self.counts, "no-such-topic"]
        return set(self.rng.sample(names, self.rng.randint(1, len(names))))

    def join(self) -> None:
        free = sorted(set(self.names) - set(self.members))
        if not free or len(self.members) >= self.max_members:
            return
        name = self.rng.choice(free)
        topics = self.topics if self.same_topics else self._some_topics()
        instance_id = f"i{self.rng.randint(0, 99)}-{name}" if self.rng.random() < 0.3 else None
        self.members[name] = Member(set(topics), instance_id)

    def leave(self) -> None:
        if len(self.members) > 1:
            del self.members[self.rng.choice(sorted(self.members))]

    def grow(self) -> None:
        self.counts[self.rng.choice(sorted(self.counts))] += self.rng.randint(1, self.max_partitions)

    def shrink(self) -> None:
        """A topic is deleted."""
        if len(self.counts) > 1:
            del self.counts[self.rng.choice(sorted(self.counts))]

    def subscribe(self) -> None:
        topics = self.topics = self._some_topics()
        chosen = self.members if self.same_topics else [self.rng.choice(sorted(self.members))]
        for name in chosen:
            self.members[name].topics = set(topics)

    def change(self) -> None:
        for _ in range(self.rng.randint(0, 2)):
            self.rng.choice([self.join, self.leave, self.grow, self.shrink, self.subscribe])()

    def group(self) -> Group:
        """What the leader sees, in any order."""
        names = sorted(self.members)
        self.rng.shuffle(names)
        keeps = RebalanceProtocol.COOPERATIVE in self.assignor.protocols
        subscriptions = {}
        for name in names:
            member = self.members[name]
            subscriptions[name] = Subscription(
                topics=frozenset(member.topics),
                owned=tuple(member.partitions) if keeps else (),
                generation=member.generation,
                user_data=self.assignor.subscription_user_data(
                    member.topics, member.partitions, member.generation
                ),
                instance_id=member.instance_id,
            )
        return Group(self.assignor.name, dict(self.counts), subscriptions)

    def live(self, *, missing: float = 0.0) -> Group:
        """Some rounds with changes, and the group before the next one. Sometimes a member misses a round."""
        for _ in range(self.rng.randint(0, 3)):
            self.apply(self.assign(self.group()), missing=missing)
            self.change()
        return self.group()

    def assign(self, group: Group) -> dict[str, list[TopicPartition]]:
        return {
            member: list(partitions)
            for member, partitions in self.assignor.assign(group.counts, group.members).items()
        }

    def apply(self, assigned: Mapping[str, list[TopicPartition]], *, missing: float = 0.0) -> None:
        """The members get their assignments, except those that miss the round."""
        self.generation += 1
        for name, partitions in assigned.items():
            if self.rng.random() >= missing:
                self.members[name].partitions = list(partitions)
                self.members[name].generation = self.generation

    def dispute(self) -> None:
        """Two members claim a partition in the same generation, which a fault of a client can bring about."""
        if len(self.members) > 1:
            one, other = self.rng.sample(sorted(self.members), 2)
            if self.members[one].partitions:
                claimed = self.rng.choice(self.members[one].partitions)
                self.members[other].partitions = [*self.members[other].partitions, claimed]
                self.members[other].generation = self.members[one].generation
