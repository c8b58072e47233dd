"""Workers that take a few records at a time: what is remembered between two takes changes nothing.

The two property tests take a second each.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.share.partition import NEVER, Acknowledgement, Batch, SharePartition
from logstore.testing import ManualClock, MemoryFiles


class Forgetful(SharePartition):
    """Looks at all spans each time."""

    def _find_available(self, now_ms):
        self._looked_to, self._put_off_ms = self.start_offset, NEVER
        return super()._find_available(now_ms)


def act(records, action, now_ms):
    """Apply an action; returns what it planned."""
    kind, number, other = action
    span = records.spans[number % len(records.spans)] if records.spans else None
    plan = []
    if kind == "take":
        start = records.next_to_read(now_ms, 50)
        if start is None:
            return None
        stop = start + other + 1
        plan = records.plan_acquire(
            "m",
            [Batch(start, stop - 1)],
            start,
            stop,
            most=other + 1,
            deadline_ms=now_ms + 100,
            now_ms=now_ms,
        )
    elif kind == "delete":
        plan = records.plan_deleted(records.start_offset + other)
    elif kind == "expire":
        plan = records.plan_expire(now_ms)
    elif span is not None:
        says = Acknowledgement.ACCEPT if kind == "accept" else Acknowledgement.RELEASE
        at = now_ms + other * 10 if kind == "put off" else 0
        last = min(span.first + number % 3, span.last)
        found = records.plan_acknowledge("m", span.first, last, says, monotonic_ms=now_ms, available_at_ms=at)
        plan = [] if isinstance(found, ErrorCode) else found
    records.apply(plan)
    return plan


ACTIONS = st.tuples(
    st.sampled_from(["take", "take", "take", "accept", "release", "put off", "put off", "delete", "expire"]),
    st.integers(0, 40),
    st.integers(0, 6),
)


@given(st.lists(st.tuples(ACTIONS, st.integers(-30, 60)), max_size=80))
@settings(max_examples=200)
def test_the_next_record_is_the_one_that_a_look_at_all_spans_finds(steps):
    quick, slow = (make(0, delivery_count_limit=3) for make in (SharePartition, Forgetful))
    now_ms = 1_000
    for action, passed_ms in steps:
        now_ms = max(now_ms + passed_ms, 1_000)
        assert act(quick, action, now_ms) == act(slow, action, now_ms)
        assert quick.next_due_ms(now_ms, now_ms) <= slow.next_due_ms(now_ms, now_ms)
        assert quick.next_to_read(now_ms, 50) == slow.next_to_read(now_ms, 50)
        assert quick.spans == slow.spans


def test_thousands_that_are_put_off_are_looked_at_once(monkeypatch):
    records = SharePartition(0, delivery_count_limit=3)
    for offset in range(2_000):
        batch = [Batch(offset, offset)]
        records.apply(
            records.plan_acquire("m", batch, offset, offset + 1, most=1, deadline_ms=1_000, now_ms=0)
        )
        records.apply(
            records.plan_acknowledge(
                "m", offset, offset, Acknowledgement.RELEASE, monotonic_ms=0, available_at_ms=5_000 + offset
            )
        )
    assert records.next_to_read(0, 50) == 2_000

    class Counted(list):
        count = 0

        def __getitem__(self, at):
            Counted.count += isinstance(at, int)
            return super().__getitem__(at)

    monkeypatch.setattr(records, "_spans", Counted(records._spans))
    for _ in range(100):
        assert records.next_to_read(0, 50) == 2_000
    assert Counted.count < 1_000
    assert records.next_to_read(5_000, 50) == 0


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 20)),
    st.tuples(st.just("take"), st.integers(1, 8)),
    st.tuples(st.just("take"), st.just(1)),
    st.tuples(st.just("release"), st.just(0)),
    st.tuples(st.sampled_from(["erase", "truncate", "delete", "roll", "compact"]), st.integers(0, 12)),
)


_TWO: list = [("append", 1), ("append", 1), ("take", 1)]


@given(st.lists(STEPS, max_size=40))
@example([*_TWO, ("truncate", 0), ("append", 1), ("take", 1)])
@example([*_TWO, ("erase", 0), ("take", 1)])
@settings(max_examples=30)
def test_a_worker_gets_what_the_log_has_now(steps):
    config = logstore.TopicConfig(cleanup_policy="compact,delete", min_cleanable_dirty_ratio=0.01)
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        log = store.create_topic("jobs", config=config)[0]
        queue = store.queue("jobs", group="workers", linger_ms=0, delivery_count_limit=100)
        taken_to = count = 0
        for kind, number in steps:
            if kind == "append":
                log.extend(
                    [(b"%d" % (each % 7), b"value %d" % each) for each in range(count, count + number)]
                )
                count += number
            elif kind in ("take", "release"):
                found = queue.poll(0, max_jobs=max(number, 1))
                have = {record.offset: record for record in log.read(log.log_start_offset)}
                for job in found:
                    assert job.record == have[job.offset]
                    taken_to = max(taken_to, job.offset + 1)
                    job.accept() if kind == "take" else job.release()
            elif kind == "erase":
                log.erase(offsets=range(taken_to + number, min(taken_to + number + 3, log.log_end_offset)))
            elif kind == "truncate":
                log.truncate_to(min(taken_to + number, log.log_end_offset))
            elif kind == "delete":
                log.delete_before(min(taken_to + number, log.log_end_offset))
            elif kind == "roll":
                log.roll()
            else:
                log.compact(now=True)


@pytest.mark.parametrize("reopens", [False, True])
@pytest.mark.parametrize("is_erased", [False, True])
def test_records_that_take_the_offsets_of_others_after_a_truncation_come(reopens, is_erased):
    files, clock = MemoryFiles(), ManualClock()
    store = logstore.open("/store", files=files, clock=clock)
    log = store.create_topic("jobs")[0]
    log.extend([b"0", b"1", b"2"])
    if is_erased:
        log.erase(offsets=range(1, 3))
    with store.queue("jobs", group="workers", linger_ms=0) as queue:
        for job in queue.poll(0):
            job.accept()
        assert queue.poll(0) == []
        log.truncate_to(1)
        assert queue.poll(0) == []
        if not reopens:
            log.extend([b"new"])
            assert [(job.offset, job.value) for job in queue.poll(0)] == [(1, b"new")]
    store.close()
    store = logstore.open("/store", files=files, clock=clock)
    if reopens:
        store["jobs"][0].extend([b"new", b"newer", b"newest"])
    with store.queue("jobs", group="workers", linger_ms=0) as queue:
        found = [(job.offset, job.value) for job in queue.poll(0)]
    values = [b"new", b"newer", b"newest"] if reopens else [b"new"]
    assert found == [*enumerate(values, 1)]
    store.close()


def test_what_a_worker_has_of_a_log_that_is_truncated_is_another_record_then():
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        log = store.create_topic("jobs")[0]
        log.extend([b"0", b"1", b"2"])
        with store.queue("jobs", group="workers", linger_ms=0) as queue:
            first = queue.poll(0)
            log.truncate_to(1)
            assert queue.poll(0) == []
            log.extend([b"new"])
            assert [job.value for job in queue.poll(0)] == [b"new"]
            first[0].accept()
            assert queue.poll(0) == []


@pytest.mark.parametrize("limit_bytes", [1, 400, 1_000_000])
def test_a_worker_that_wants_few_bytes_gets_no_more_because_another_read_them(limit_bytes):
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        log = store.create_topic("jobs")[0]
        for number in range(50):
            log.extend([b"%d" % number * 50])
        with (
            store.queue("jobs", group="workers") as first,
            store.queue("jobs", group="workers", max_partition_fetch_bytes=limit_bytes) as second,
        ):
            assert [job.offset for job in first.poll(0, max_jobs=1)] == [0]
            sizes = [len(job.value) for job in second.poll(0, max_jobs=10)]
            assert len(sizes) == 1 or sum(sizes) <= limit_bytes
            assert len(sizes) == {1: 1, 400: 3, 1_000_000: 10}[limit_bytes]
