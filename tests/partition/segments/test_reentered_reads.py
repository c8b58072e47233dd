"""Reads from within a read, in the same thread: of signal handlers and finalizers, which may run between any
two lines. They waited for locks that their own thread had, without end."""

import sys
import threading

import pytest

from logstore import Log, StoreConfig, TopicConfig
from logstore.partition.segments import batch_cache, segment
from tests.partition.helpers_rules import values_of

WITHIN = (segment.OpenSegments, batch_cache.BatchCache)
CODES = {
    code
    for each in WITHIN
    for name in vars(each)
    if (code := getattr(getattr(each, name), "__code__", None)) is not None and name != "__init__"
}


def at_each_line(action, call):
    """Run the action, and the call between any two lines of what guards the caches. Returns how often."""
    counts = {"calls": 0, "inside": 0}

    def trace(frame, event, argument):
        if frame.f_code not in CODES:
            return None
        if event == "line" and not counts["inside"]:
            counts["inside"] = 1
            try:
                call()
                counts["calls"] += 1
            finally:
                counts["inside"] = 0
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return counts["calls"]


@pytest.mark.parametrize("cached_bytes", [100_000, 2_000])
@pytest.mark.parametrize("open_count", [1, 2, 256])
def test_a_read_in_the_middle_of_another_does_not_wait_for_itself(tmp_path, open_count, cached_bytes):
    """0.4 s."""
    config = TopicConfig(segment_bytes=2_000, compression_type="lz4")
    store_config = StoreConfig(max_open_segments=open_count, batch_cache_bytes=cached_bytes)
    values = [b"value %d" % number for number in range(600)]
    log = Log.open(tmp_path / "t-0", config=config, store_config=store_config)
    for start in range(0, 600, 100):
        log.extend(values[start : start + 100])
        log.roll()
    found, calls = [], []

    def read():
        assert log.record_at(150).value == values[150]
        assert log.record_at(550).value == values[550]
        assert values_of(log) == values

    def work():
        calls.append(at_each_line(lambda: (read(), read()), read))
        found.extend(values_of(log))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert calls[0] > 20
    assert found == values
    log.close()  # only now: it would wait, too
