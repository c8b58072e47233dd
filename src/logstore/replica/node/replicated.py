"""What a coordinator writes in its term: whether it may, and waiting for all in-sync replicas to have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Pending, Promise
from logstore.replica.node.partition import Done, PartitionReplica
from logstore.schedule import Scheduler, Task

_PATIENCE_MS: Final = 5_000
"""How long an answer waits for the replicas: Kafka's ``offsets.commit.timeout.ms``."""
_DELETION_PATIENCE_MS: Final = 20_000
"""How long a deletion waits for them: longer than a hanging node has a session, by default."""


def why_not_written(replica: PartitionReplica, epoch: int) -> ErrorCode:
    """Why the coordinator of this leader epoch may write nothing now; ``NONE`` if it may."""
    code, now = replica.check_produce(by_all=True)
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return NONE if code is NONE and now == epoch else ErrorCode.NOT_COORDINATOR


def when_deleted(replica: PartitionReplica, offset: int, scheduler: Scheduler) -> Pending[ErrorCode]:
    """Of what was deleted below ``offset``. ``NOT_LEADER_OR_FOLLOWER`` if another leads first, and
    ``REQUEST_TIMED_OUT`` if it takes too long."""
    code, epoch = replica.check_produce(by_all=False)
    if code is not NONE:
        return Answered(code)
    return _wait(
        scheduler,
        _DELETION_PATIENCE_MS,
        ErrorCode.REQUEST_TIMED_OUT,
        lambda done: replica.when_deleted(offset, epoch, done),
    )


def when_replicated(replica: PartitionReplica, epoch: int, scheduler: Scheduler) -> Pending[ErrorCode]:
    """Of what the log has now. ``NOT_COORDINATOR`` if the leader epoch ends first, and
    ``COORDINATOR_NOT_AVAILABLE`` if it takes too long: then it may still become of it what was wanted."""
    log = replica.log
    end = log.log_end_offset
    if log.high_watermark >= end and replica.leader_epoch == epoch:
        return Answered(NONE)
    return _wait(
        scheduler,
        _PATIENCE_MS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        lambda done: replica.when_replicated(
            end, epoch, lambda code: done(NONE if code is NONE else ErrorCode.NOT_COORDINATOR)
        ),
    )


def _wait(
    scheduler: Scheduler, patience_ms: int, too_late: ErrorCode, ask: Callable[[Done], object]
) -> Pending[ErrorCode]:
    """What ``ask`` is told; ``too_late`` if that takes longer."""
    promise: Promise[ErrorCode] = Promise()
    late = Task("answer", lambda: promise.complete(too_late), None)

    def done(code: ErrorCode) -> None:
        late.cancel()
        promise.complete(code)

    scheduler.promptly(patience_ms, late)
    ask(done)
    return promise
