"""The three rules of retention did not build on each other: each looked at the whole log, and the one that
would delete most won. A segment with a timestamp in the future, which the log start or the size limit let go,
then kept all expired segments behind it until the next pass.

As in Kafka each rule now looks at what the former has left: log start, size, time. The reference here deletes
one segment at a time, as Kafka's loop does."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.config import TopicConfig
from logstore.partition.writing.retention import SegmentFacts, plan_retention

NOW_MS = 1000


def reference(sizes, newest, *, start, high_watermark, limit_bytes, limit_ms, deletes):
    """How many segments of ten offsets each are deleted."""
    left = [(10 * number, size, at) for number, (size, at) in enumerate(zip(sizes, newest, strict=True))]
    end = 10 * len(left)

    def drop_while(condition):
        while left:
            _, size, _ = left[0]
            following = left[1][0] if len(left) > 1 else None
            upper = end if following is None else following
            is_last_and_empty = following is None and not size
            if upper > high_watermark or is_last_and_empty or not condition(left[0], following):
                return
            left.pop(0)

    drop_while(lambda segment, following: following is not None and following <= start)
    if deletes and limit_bytes >= 0:
        excess = sum(size for _, size, _ in left) - limit_bytes

        def is_too_much(segment, following):
            nonlocal excess
            if excess - segment[1] < 0:
                return False
            excess -= segment[1]
            return True

        drop_while(is_too_much)
    if deletes and limit_ms >= 0:
        drop_while(lambda segment, following: NOW_MS - segment[2] > limit_ms)
    return len(sizes) - len(left)


@settings(max_examples=400)
@given(st.data())
def test_the_plan_is_that_of_a_loop_over_single_segments(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=count - 1, max_size=count - 1))
    sizes.append(data.draw(st.integers(0, 5)))
    newest = data.draw(st.lists(st.sampled_from([0, 500, 2000]), min_size=count, max_size=count))
    offsets = st.integers(0, 10 * count)
    start, high_watermark = data.draw(offsets), data.draw(offsets)
    limit_bytes, limit_ms = data.draw(st.integers(-1, 20)), data.draw(st.sampled_from([-1, 0, 400, 800]))
    policy = data.draw(st.sampled_from(["delete", "compact", "compact,delete"]))
    config = TopicConfig(cleanup_policy=policy, retention_bytes=limit_bytes, retention_ms=limit_ms)
    facts = [
        SegmentFacts(10 * number, 10 * number + 10, size, lambda at=at: at)
        for number, (size, at) in enumerate(zip(sizes, newest, strict=True))
    ]
    planned = plan_retention(
        facts, config=config, log_start_offset=start, high_watermark=high_watermark, now_ms=NOW_MS
    )
    assert planned == reference(
        sizes,
        newest,
        start=start,
        high_watermark=high_watermark,
        limit_bytes=limit_bytes,
        limit_ms=limit_ms,
        deletes=config.deletes,
    )


def test_a_timestamp_in_the_future_that_is_below_the_log_start_keeps_nothing() -> None:
    facts = [SegmentFacts(0, 10, 5, lambda: 5000), SegmentFacts(10, 20, 5, lambda: 0)]
    facts.append(SegmentFacts(20, 30, 5, lambda: NOW_MS))
    config = TopicConfig(retention_ms=100)
    assert plan_retention(facts, config=config, log_start_offset=10, high_watermark=30, now_ms=NOW_MS) == 2
