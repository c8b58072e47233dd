"""One partition in a share group against a dict from offset to what is known of it. Costs 4 s."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logstore.broker.codes import ErrorCode
from logstore.broker.share import partition as module
from logstore.broker.share.partition import NEVER, Acknowledgement, Batch, SharePartition, Span
from logstore.broker.share.states import RecordState

AVAILABLE, ACQUIRED, ACKNOWLEDGED, FAILED, ARCHIVED = RecordState
DONE = {ACKNOWLEDGED, ARCHIVED}
MEMBERS = st.sampled_from("abc")
KINDS = st.sampled_from(list(Acknowledgement))
LIMIT = 3
LOCK_MS = 10
MOST_SPANS = 6
"""In place of thousands."""
NEW = Span(0, 0, AVAILABLE)
"""What is known of an offset that was not looked at."""


class Partition(RuleBasedStateMachine):
    """``known``: what is known of each offset from the start offset to the end offset, as a span of it alone.
    ``log``: the batches that there are."""

    def __init__(self):
        super().__init__()
        self.records = SharePartition(0, delivery_count_limit=LIMIT)
        self.known: dict[int, Span] = {}
        self.start = 0
        self.log: list[Batch] = []
        self.log_end = 0
        self.log_start = 0
        self.now_ms = 1_000

    @property
    def end(self):
        return max(self.known, default=self.start - 1) + 1

    def put(self, offset, state, **changes):
        before = self.known.get(offset, NEW)
        self.known[offset] = before._replace(first=offset, last=offset, state=state, **changes)

    def advance(self):
        while self.start in self.known and self.known[self.start].state in DONE:
            del self.known[self.start]
            self.start += 1

    def release(self, offset, available_at_ms, reason):
        state = FAILED if self.known[offset].delivery_count >= LIMIT else AVAILABLE
        at_ms = available_at_ms if state is AVAILABLE else 0
        self.put(offset, state, member_id="", deadline_ms=0, available_at_ms=at_ms, reason=reason)

    def end_of(self, offset, state):
        self.put(offset, state, member_id="", deadline_ms=0, available_at_ms=0)

    # What happens

    @rule(hole=st.sampled_from([0, 0, 1, 3]), size=st.integers(1, 9), is_hidden=st.sampled_from([0, 0, 0, 1]))
    def append(self, hole, size, is_hidden):
        first = self.log_end + hole
        self.log.append(Batch(first, first + size - 1, bool(is_hidden)))
        self.log_end = first + size

    @rule(ms=st.sampled_from([1, 5, 10]))
    def wait(self, ms):
        self.now_ms += ms

    @rule(member=MEMBERS, most=st.integers(1, 12), limit=st.integers(1, 30), batch_count=st.integers(1, 4))
    def acquire(self, member, most, limit, batch_count):
        acquired = sum(each.state is ACQUIRED for each in self.known.values())
        available = self.available()
        is_full = len(self.records.spans) >= MOST_SPANS
        if acquired >= limit or (not available and is_full):
            expected = None
        else:
            expected = available[0] if available else self.end
        start = self.records.next_to_read(self.now_ms, limit)
        assert start == expected
        if start is None or start >= self.log_end:
            return
        batches = [each for each in self.log if each.last >= start][:batch_count]
        is_all = batches[-1:] == self.log[-1:]
        read_to = self.log_end if is_all else batches[-1].last + 1
        deadline_ms = self.now_ms + LOCK_MS
        plan = self.records.plan_acquire(
            member, batches, start, read_to, most=most, deadline_ms=deadline_ms, now_ms=self.now_ms
        )
        gets = [offset for offset in available if start <= offset < read_to][:most]
        left, at = most - len(gets), self.end
        while left > 0 and at < read_to and not is_full:
            if any(each.first <= at <= each.last and not each.is_hidden for each in batches):
                gets.append(at)
                left -= 1
            else:
                self.put(at, ARCHIVED)
            at += 1
        for offset in gets:
            count = self.known.get(offset, NEW).delivery_count + 1
            self.put(
                offset,
                ACQUIRED,
                delivery_count=count,
                member_id=member,
                deadline_ms=deadline_ms,
                available_at_ms=0,
            )
        assert offsets_of(plan, ACQUIRED) == gets
        self.apply(plan)

    def available(self):
        return [
            offset
            for offset, each in sorted(self.known.items())
            if each.state is AVAILABLE and each.available_at_ms <= self.now_ms
        ]

    @rule(
        member=MEMBERS,
        first=st.integers(-1, 12),
        size=st.sampled_from([0, 1, 1, 1, 2, 5]),
        kind=KINDS,
        delay_ms=st.sampled_from([0, 0, 7]),
        reason=st.sampled_from(["", "why"]),
    )
    def acknowledge(self, member, first, size, kind, delay_ms, reason):
        held = [offset for offset in self.known if self.has(member, offset)]
        first = held[first % len(held)] if held and first >= 0 else first + self.start
        last = first + size - 1
        at_ms = self.now_ms + delay_ms if delay_ms else 0
        plan = self.records.plan_acknowledge(
            member,
            first,
            last,
            kind,
            monotonic_ms=self.now_ms,
            deadline_ms=self.now_ms + LOCK_MS,
            available_at_ms=at_ms,
            reason=reason,
        )
        if size == 0 or not all(self.has(member, offset) for offset in range(first, last + 1)):
            assert plan is ErrorCode.INVALID_RECORD_STATE
            return
        for offset in range(first, last + 1):
            if kind is Acknowledgement.RENEW:
                self.put(offset, ACQUIRED, deadline_ms=self.now_ms + LOCK_MS)
            elif kind is Acknowledgement.RELEASE:
                self.release(offset, at_ms, reason)
            elif kind is Acknowledgement.UNUSED:
                count = self.known[offset].delivery_count - 1
                self.put(offset, AVAILABLE, member_id="", deadline_ms=0, delivery_count=count)
            elif kind is Acknowledgement.REJECT:
                self.end_of(offset, FAILED)
                self.put(offset, FAILED, reason=reason)
            else:
                self.end_of(offset, ACKNOWLEDGED if kind is Acknowledgement.ACCEPT else ARCHIVED)
        assert not isinstance(plan, ErrorCode)
        self.apply(plan)

    def has(self, member, offset):
        known = self.known.get(offset, NEW)
        return known.state is ACQUIRED and known.member_id == member and known.deadline_ms > self.now_ms

    @rule(member=MEMBERS)
    def leave(self, member):
        for offset, each in list(self.known.items()):
            if each.state is ACQUIRED and each.member_id == member:
                self.release(offset, 0, each.reason or "its worker left without saying what became of it")
        self.apply(self.records.plan_release(member))

    @rule()
    def expire(self):
        for offset, each in list(self.known.items()):
            if each.state is ACQUIRED and each.deadline_ms <= self.now_ms:
                self.release(offset, 0, each.reason or "the lock ran out")
        self.apply(self.records.plan_expire(self.now_ms))

    @precondition(lambda self: self.records.has_failed)
    @rule(data=st.data())
    def bury(self, data):
        span = data.draw(st.sampled_from(self.records.failed()))
        for offset in range(span.first, span.last + 1):
            self.end_of(offset, ARCHIVED)
        self.apply(self.records.plan_buried(span))

    @rule(ahead=st.integers(0, 10))
    def delete(self, ahead):
        """Retention: also in the middle of spans, and behind all that was looked at."""
        self.log_start = min(max(self.log_start, self.start + ahead), self.log_end)
        for offset in range(self.start, self.log_start):
            self.put(offset, ARCHIVED)
        self.log = [each for each in self.log if each.last >= self.log_start]
        self.apply(self.records.plan_deleted(self.log_start))

    @rule(limit=st.integers(1, LIMIT))
    def restart(self, limit):
        """From what is stored: what was taken or has failed is available, with its count; what was put off
        stays so. Holes are offsets that were never given."""
        spans = list(self.records.spans)
        given = [number for number, each in enumerate(spans) if each.delivery_count or each.state in DONE]
        tail = spans[given[-1] + 1 :] if given else spans  # stored when their worker gave them back unused
        stored = [
            Span(
                each.first,
                each.last,
                each.state if each.state in DONE else AVAILABLE,
                each.delivery_count,
                available_at_ms=each.available_at_ms,
            )
            for each in [*(spans[number] for number in given), *tail]
        ]
        self.records = SharePartition(self.start, stored, delivery_count_limit=LIMIT)
        for offset, each in list(self.known.items()):
            if each.state not in DONE:
                self.put(offset, AVAILABLE, member_id="", deadline_ms=0, reason="")
            if each.state not in DONE and each.delivery_count >= LIMIT:
                self.end_of(offset, FAILED)
                self.put(
                    offset, FAILED, reason="each process that had it was killed"
                )  # others are not stored
        self.apply(self.records.plan_exhausted())

    def apply(self, plan):
        self.records.apply(plan)
        self.advance()

    # What must hold

    @invariant()
    def all_is_as_it_should_be(self):
        spans = self.records.spans
        found = {
            offset: span._replace(first=offset, last=offset)
            for span in spans
            for offset in range(span.first, span.last + 1)
        }
        assert sorted(found) == list(range(self.start, self.end))
        assert (self.records.start_offset, self.records.end_offset) == (self.start, self.end)
        for offset, each in self.known.items():
            assert found[offset].is_like(each), offset
        assert self.records.acquired_count == len(offsets_of(spans, ACQUIRED))
        assert self.records.failed() == [span for span in spans if span.state is FAILED]
        assert self.records.has_failed == bool(self.records.failed())

    @invariant()
    def what_is_alike_is_one_span(self):
        spans = self.records.spans
        assert not [pair for pair in itertools.pairwise(spans) if pair[0].is_like(pair[1])]

    @invariant()
    def nothing_is_due_earlier_than_is_said(self):
        dues = [each.deadline_ms for each in self.known.values() if each.state is ACQUIRED]
        dues += [
            each.available_at_ms
            for each in self.known.values()
            if each.state is AVAILABLE and each.available_at_ms > self.now_ms
        ]
        said = self.records.next_due_ms(self.now_ms, self.now_ms)
        if dues:
            assert said <= max(min(dues) - self.now_ms, 0)
        elif said != NEVER:  # for something that was deleted: once, and not again
            assert self.records.next_due_ms(self.now_ms + said, self.now_ms + said) == NEVER


def offsets_of(spans, state):
    return [offset for each in spans if each.state is state for offset in range(each.first, each.last + 1)]


class TestPartition(Partition.TestCase):
    settings = settings(max_examples=50, stateful_step_count=120)

    @pytest.fixture(autouse=True)
    def few_spans(self, monkeypatch):
        monkeypatch.setattr(module, "MAX_SPANS", MOST_SPANS)


def test_too_many_spans_hold_up_what_is_new_and_nothing_else(monkeypatch):
    monkeypatch.setattr(module, "MAX_SPANS", MOST_SPANS)
    records = SharePartition(0, delivery_count_limit=9)
    log = [Batch(0, MOST_SPANS - 1), Batch(MOST_SPANS, 99)]

    def acquire(start, most):
        return records.plan_acquire("a", log, start, 100, most=most, deadline_ms=LOCK_MS, now_ms=0)

    records.apply(acquire(0, MOST_SPANS))
    for offset in range(MOST_SPANS):
        kind = Acknowledgement.ACCEPT if offset % 2 else Acknowledgement.RELEASE
        plan = records.plan_acknowledge("a", offset, offset, kind, monotonic_ms=0, available_at_ms=offset)
        assert not isinstance(plan, ErrorCode)
        records.apply(plan)
    assert len(records.spans) == MOST_SPANS
    assert records.next_to_read(0, 100) == 0
    assert offsets_of(acquire(0, 50), ACQUIRED) == [0]
    records.apply(acquire(0, 50))
    assert records.next_to_read(0, 100) is None
    assert records.next_to_read(4, 100) == 2
