"""What all nodes know of a partition: who leads it, and who has everything that was acknowledged.

It is one value, kept by the coordinator and replaced by compare-and-set: by the leader when the ISR changes,
and by the controller when nodes come and go.

A *life* of a node is the time from one registration with the coordinator to the next. It is a number that
rises. A node that stops without flushing may come back without the end of its logs, although it had told the
leader that it has it. So who is in the ISR is said together with the life in which that was found out, and
each registration says since which life nothing was lost. That closes the hole that KIP-966 describes, and
KIP-903's, in which the leader takes an old life for the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Member(NamedTuple):
    """A node in one of its lives."""

    node_id: int
    life: int


class Registration(NamedTuple):
    """What a living node has told the coordinator."""

    node_id: int
    life: int
    whole_since: int
    """The first of its lives since which it has lost nothing that it had written. If it was not stopped
    cleanly, that is the present one."""
    durable_since: int
    """The first of its lives since which it has lost nothing that it had flushed. If its disk is damaged, has
    been replaced, or is an older copy of its own, that is the present one."""
    is_leaving: bool = False
    """Whether it is about to stop, and wants to lead nothing any more."""
    rack: str | None = None
    disk_since: int = 0
    """The first of its lives with this disk. If that is damaged, most of it may still be there."""

    @property
    def member(self) -> Member:
        return Member(self.node_id, self.life)

    def has_kept(self, member: Member, *, is_durable: bool) -> bool:
        """Whether the node still has what it had as ``member``. ``is_durable``: it tells of nothing that it
        has not flushed."""
        since = self.durable_since if is_durable else self.whole_since
        return since <= member.life <= self.life

    def has_disk_of(self, member: Member) -> bool:
        """Whether it has the disk that it had as ``member``."""
        return self.disk_since <= member.life <= self.life


Living = Mapping[int, Registration]
"""The registrations of the nodes that are alive, by node id."""


class PartitionState(NamedTuple):
    """Of one partition. The order of ``replicas`` is that of preference."""

    replicas: tuple[int, ...]
    leader: Member | None
    leader_epoch: int
    isr: tuple[Member, ...]
    """The replicas that have all records below the high watermark, the leader included."""
    eligible: tuple[Member, ...] = ()
    """Replicas that left the ISR when it had no more than ``min_insync_replicas`` members. The high watermark
    has stood still since, so that they have all records below it, too (KIP-966)."""
    version: int = 0
    """The coordinator's. Each change is made against it."""
    adding: tuple[int, ...] = ()
    """Those of the replicas that the partition is about to get: it moves (KIP-455)."""
    removing: tuple[int, ...] = ()
    """Those of the replicas that it is about to lose, when it has got the others."""

    def member(self, node_id: int) -> Member | None:
        """The node as it is in the ISR."""
        return next((each for each in self.isr if each.node_id == node_id), None)

    def with_isr(self, isr: Iterable[Member], min_isr: int) -> PartitionState:
        """With this ISR, and with those that leave it among the eligible ones, if they have to be."""
        members = tuple(sorted(set(isr), key=lambda each: self._rank(each.node_id)))
        if len(members) >= self.least(min_isr):
            return self._replace(isr=members, eligible=())
        have = {each.node_id for each in members}
        rest = {each.node_id: each for each in (*self.eligible, *self.isr) if each.node_id not in have}
        eligible = tuple(rest[node_id] for node_id in sorted(rest, key=self._rank))
        return self._replace(isr=members, eligible=eligible)

    def least(self, min_isr: int) -> int:
        """The fewest members of the ISR with which records are acknowledged. A partition that moves waits for
        no more than before."""
        return min(min_isr, len(self.replicas) - len(self.adding))

    def _rank(self, node_id: int) -> int:
        return self.replicas.index(node_id) if node_id in self.replicas else len(self.replicas)
