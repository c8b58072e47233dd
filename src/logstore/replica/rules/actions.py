"""The actions that a replica asks for. Its driver carries them out in order, before it passes on the next
event."""

from __future__ import annotations

from typing import NamedTuple

from logstore.broker.requests import DivergingEpoch
from logstore.replica.rules.partition_state import PartitionState


class Fetch(NamedTuple):
    """Ask the leader for what comes next. It is asked once; the answer, or that there is none, is told with
    the same request."""

    leader_id: int
    offset: int
    last_fetched_epoch: int
    """The newest epoch here: with it the leader sees whether the logs have parted (KIP-595)."""
    leader_epoch: int


class TruncateTo(NamedTuple):
    """Drop what is from this offset on."""

    offset: int


class StartAt(NamedTuple):
    """Drop everything, and begin at this offset."""

    offset: int


class Take(NamedTuple):
    """Append the batches of the fetch that was just answered, as a follower."""

    leader_epoch: int


class BeginEpoch(NamedTuple):
    """Begin this leader epoch at the log end: the replica leads."""

    leader_epoch: int


class RaiseHighWatermark(NamedTuple):
    """Move the high watermark to this offset; complete what waits for it."""

    offset: int


class DeleteBefore(NamedTuple):
    """Raise the log start offset to that of the leader."""

    offset: int


class Propose(NamedTuple):
    """Store this state with the coordinator, if its version is still that of the state. Then pass on the
    newest state, whatever became of this one."""

    state: PartitionState


class StepDown(NamedTuple):
    """Refuse what waits: the replica does not lead any more."""


Action = (
    Fetch | TruncateTo | StartAt | Take | BeginEpoch | RaiseHighWatermark | DeleteBefore | Propose | StepDown
)


class FetchAnswer(NamedTuple):
    """What a leader says to a fetch, except for the batches."""

    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    diverging: DivergingEpoch | None = None
    is_out_of_range: bool = False
    """The offset is below the leader's log start."""
    has_batches: bool = False
