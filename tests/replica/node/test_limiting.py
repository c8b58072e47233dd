"""How fast a node catches up, and how that is changed while it runs. Costs nothing."""

from __future__ import annotations

import pytest

from logstore.errors import InvalidConfigError
from logstore.replica.node.limiting import FOLLOWER_RATE, LEADER_RATE, CatchUpLimit


class Time:
    now_ms = 0

    def __call__(self):
        return self.now_ms


def seconds_for(limit, time, size_bytes, at_a_time=1_000):
    """How long a replica takes to copy so much."""
    begin = time.now_ms
    for _ in range(size_bytes // at_a_time):
        while limit.is_used_up:
            time.now_ms += 10
        limit.note(at_a_time)
    return (time.now_ms - begin) / 1_000


def test_a_limit_is_set_and_ended_while_the_node_runs():
    time = Time()
    limit = CatchUpLimit(None, time)
    assert seconds_for(limit, time, 100_000) == 0
    limit.change({FOLLOWER_RATE: "10000", LEADER_RATE: "5"})
    assert limit.settings() == {FOLLOWER_RATE: "10000", LEADER_RATE: "5"}
    assert seconds_for(limit, time, 100_000) == pytest.approx(10, abs=2)
    limit.change({FOLLOWER_RATE: "20000"})
    assert seconds_for(limit, time, 100_000) == pytest.approx(5, abs=2)
    limit.change({FOLLOWER_RATE: None, LEADER_RATE: None})
    assert (limit.settings(), seconds_for(limit, time, 100_000)) == ({}, 0)


def test_the_limit_of_the_start_comes_back():
    time = Time()
    limit = CatchUpLimit(10_000, time)
    limit.change({FOLLOWER_RATE: "1000000"})
    assert seconds_for(limit, time, 100_000) == 0
    limit.change({FOLLOWER_RATE: None})
    assert seconds_for(limit, time, 100_000) == pytest.approx(10, abs=2)


@pytest.mark.parametrize("wrong", [{FOLLOWER_RATE: "-1"}, {FOLLOWER_RATE: "fast"}, {"log.retention.ms": "1"}])
def test_what_is_refused_changes_nothing(wrong):
    limit = CatchUpLimit(None, Time())
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        limit.change({LEADER_RATE: "1", **wrong})
    limit.change({"replica.alter.log.dirs.io.max.bytes.per.second": None})
    limit.change({FOLLOWER_RATE: "1"}, validate_only=True)
    assert limit.settings() == {}
