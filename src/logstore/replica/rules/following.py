"""What a follower does with its leader's answers: append, or cut its own log where both have parted.

Each fetch tells the epoch of the last batch here. If the leader's log has another end for that epoch, the
logs have parted, and the leader says where that epoch, or the one before it, ends in its log. The follower
cuts its log there and asks again, until both agree (KIP-101, KIP-279, KIP-595). It never cuts by its high
watermark: that may be behind what the next leader has.
"""

from __future__ import annotations

from logstore.broker.requests import DivergingEpoch
from logstore.format.header import NO_EPOCH
from logstore.replica.rules.actions import (
    Action,
    DeleteBefore,
    Fetch,
    FetchAnswer,
    RaiseHighWatermark,
    StartAt,
    Take,
    TruncateTo,
)
from logstore.replica.rules.leading import LogFacts


def plan_fetch(leader_id: int, leader_epoch: int, log: LogFacts, *, is_durable: bool) -> Fetch:
    """What to ask next. ``is_durable``: the fetch tells the leader what is durable here, so the log has to be
    flushed before.

    Raises:
        RuntimeError: it was not flushed.
    """
    if is_durable and log.durable_offset < log.log_end_offset:
        raise RuntimeError(f"the log is durable up to {log.durable_offset}, and ends at {log.log_end_offset}")
    return Fetch(leader_id, log.log_end_offset, log.last_epoch(), leader_epoch)


def apply_answer(log: LogFacts, answer: FetchAnswer) -> list[Action]:
    """What to do with an answer to a fetch at the log's present end."""
    if answer.is_out_of_range:
        return [StartAt(answer.log_start_offset)]
    if answer.diverging is not None:
        return [plan_cut(log, answer.diverging, answer.log_start_offset)]
    actions: list[Action] = [Take(answer.leader_epoch)] if answer.has_batches else []
    actions.append(RaiseHighWatermark(answer.high_watermark))  # no further than the log reaches
    if answer.log_start_offset > log.log_start_offset:
        actions.append(DeleteBefore(answer.log_start_offset))
    return actions


def plan_cut(log: LogFacts, diverging: DivergingEpoch, leader_start_offset: int) -> Action:
    """Where to cut the log."""
    if diverging.epoch == NO_EPOCH:  # the leader knows of no epoch
        return StartAt(leader_start_offset)
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    if epoch == NO_EPOCH:
        return StartAt(leader_start_offset)
    offset = min(end_offset, log.log_end_offset)
    if epoch == diverging.epoch:
        offset = min(offset, diverging.end_offset)
    return TruncateTo(offset) if offset > log.log_start_offset else StartAt(max(offset, leader_start_offset))
