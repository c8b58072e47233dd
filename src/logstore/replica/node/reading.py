"""From where consumers read: from the leader of a partition; or, if the nodes are told so, from a follower in
their rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.kept import KeptPartition
from logstore.broker.records.fetching import MAY_READ, Look
from logstore.broker.requests import FetchPartition, FetchRequest
from logstore.model import Isolation, TopicPartition
from logstore.replica.coordination.interface import View
from logstore.replica.node.partition import PartitionReplica

_NOT_LED: Final = Look(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_BY_FOLLOWER: Final = Look(has_compared_epochs=True)
_TO_FOLLOWER: Final = Look(hears_high_watermark=True)
_AS_CONSUMERS: Final = frozenset({Isolation.HIGH_WATERMARK, Isolation.COMMITTED})


class Places:
    """See :attr:`.Shelf.look`."""

    def __init__(
        self,
        node_id: int,
        replicas: Mapping[TopicPartition, PartitionReplica],
        view: Callable[[], View],
        why_not_here: Callable[[TopicPartition], ErrorCode],
        *,
        names_followers: bool,
    ) -> None:
        """``why_not_here``: of a partition of which the node has no replica. ``names_followers``: whether it
        sends consumers to followers, as the leader."""
        self._node_id = node_id
        self._replicas = replicas
        self._view = view
        self._why_not_here = why_not_here
        self._names_followers = names_followers

    def look(self, wanted: FetchPartition | KeptPartition, request: FetchRequest) -> Look:
        replica = self._replicas.get(wanted.partition)
        if replica is None:
            return Look(self._why_not_here(wanted.partition))
        is_told = bool(request.rack) and request.replica is None and request.isolation in _AS_CONSUMERS
        if not is_told:
            if not replica.leads:
                return _NOT_LED
            is_near = request.replica is not None and replica.is_named(request.replica.node_id)
            return _TO_FOLLOWER if is_near else MAY_READ
        if not replica.leads:  # a leader has named this node, whatever is set here
            error = replica.check_read(wanted.offset, wanted.leader_epoch)
            return _BY_FOLLOWER if error is NONE else Look(error)
        nearer = self._nearer(replica, wanted.offset, request.rack) if self._names_followers else None
        if nearer is None:
            return MAY_READ
        replica.note_named(nearer)
        return Look(preferred_id=nearer)

    def _nearer(self, replica: PartitionReplica, offset: int, rack: str) -> int | None:
        """The follower in the rack that has most of the log, and is not about to go; None if the leader is
        there itself, or none."""
        living = self._view().living
        own = living.get(self._node_id)
        if own is not None and own.registration.rack == rack:
            return None
        near = {
            node_id
            for node_id, each in living.items()
            if each.registration.rack == rack and not each.registration.is_leaving
        }
        have = replica.followers_with(offset)
        there = {node_id: end_offset for node_id, end_offset in have.items() if node_id in near}
        return max(there, key=there.__getitem__, default=None)
