"""A process that shared a directory was killed. The next one did not know the workers of the others, and told
one of them so twice: in the answer to a fetch, after which the worker was about to join again, and in that to
a heartbeat sent before. The worker took the second for an answer to its joining: ``poll()`` and ``work()``
ended with a ``UsageError`` (UNKNOWN_MEMBER_ID). It joins, and goes on."""

from __future__ import annotations

import logstore
from logstore.broker.pending import Promise
from logstore.broker.share.requests import LEAVING, ShareGroupHeartbeat
from logstore.testing import ManualClock, MemoryFiles


class SlowHeartbeats:
    """A broker that answers the first heartbeat when a test says so."""

    def __init__(self, broker):
        self._broker = broker
        self.late = Promise()
        self.beat = None

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def share_group_heartbeat(self, beat):
        if self.beat is not None:
            return self._broker.share_group_heartbeat(beat)
        self.beat = beat
        return self.late

    def answer(self):
        self.late.complete(self._broker.share_group_heartbeat(self.beat).poll())


def test_a_worker_that_is_told_twice_that_it_is_no_member_joins_again():
    clock = ManualClock()
    with logstore.open("/store", files=MemoryFiles(), clock=clock) as store:
        log = store.create_topic("jobs")[0]
        with store.queue("jobs", group="workers", metadata_max_age_ms=1_000) as queue:
            assert queue.poll(0) == []
            broker, queue._broker = queue._broker, (slow := SlowHeartbeats(queue._broker))
            clock.advance(1_000)
            assert queue.poll(0) == []  # with a heartbeat
            leaving = ShareGroupHeartbeat("workers", queue.member_id, LEAVING)
            broker.share_group_heartbeat(leaving)  # as a broker that does not know it
            log.append(b"1")
            assert queue.poll(0) == []  # the fetch tells it
            slow.answer()
            assert [job.value for job in queue.poll(0)] == [b"1"]
