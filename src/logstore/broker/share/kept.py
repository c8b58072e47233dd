"""What leaders of partitions and coordinators of groups ask the share coordinator, which keeps the states of
share-partitions for a whole cluster (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.format.messages.share_records import ShareKey

AS_SET: Final = -1
"""The start offset of a group that has not begun: it begins where its settings say."""

STORED: Final = "stored"
"""The state by which ListGroups asks the share coordinator for its groups. No group is in it."""

Codes = Mapping[ShareKey, ErrorCode]
"""What became of each share-partition."""


def first_error(codes: Codes) -> ErrorCode:
    """That of the first share-partition that has one; ``NONE`` if none has."""
    return next((code for code in codes.values() if code is not ErrorCode.NONE), ErrorCode.NONE)


class Beginning(NamedTuple):
    """A group is to work on a partition."""

    key: ShareKey
    start_offset: int = AS_SET
    anew: bool = False
    """Whatever it has done: its leader hears that what it knows does not count any more."""


JUST_LOOKS: Final = -1
"""The leader epoch of one who reads a state, and takes nothing up."""


NOT_TAKEN_UP: Final = -1
"""The leader epoch of a state that no leader has read since it was begun."""


class Reading(NamedTuple):
    """A leader takes a share-partition up. Those of earlier epochs are fenced then."""

    key: ShareKey
    leader_epoch: int


class ReadState(NamedTuple):
    """What it finds."""

    error: ErrorCode
    state: ShareState = ShareState(0, 0, AS_SET)
    last_epoch: int = NOT_TAKEN_UP
    """The leader epoch in which it was taken up last."""


class Writing(NamedTuple):
    """What has changed, as the leader of an epoch says."""

    key: ShareKey
    state_epoch: int
    change: ShareChange
    """With the leader epoch."""


class Names(NamedTuple):
    """The groups that have begun."""

    error: ErrorCode
    names: tuple[str, ...] = ()


class ShareStates(Protocol):
    """The share coordinator. It answers when all in-sync replicas have what it has written."""

    def begin(self, wanted: Sequence[Beginning]) -> Pending[Codes]:
        """Of what a group has begun already, nothing changes, unless it begins anew. Of a topic that it works
        on already, new partitions are read from their beginning."""
        ...

    def read(self, wanted: Sequence[Reading]) -> Pending[Mapping[ShareKey, ReadState]]: ...

    def write(self, changes: Sequence[Writing]) -> Pending[Codes]:
        """A change may be written twice: it says what is, and not what is to be added."""
        ...

    def delete(self, keys: Sequence[ShareKey]) -> Pending[Codes]: ...

    def names(self) -> Pending[Names]: ...
