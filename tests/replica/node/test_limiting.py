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
        while limit.wait_ms:
            time.now_ms += limit.wait_ms
        limit.note(at_a_time)
    return (time.now_ms - begin) / 1_000


def test_a_limit_is_set_and_ended_while_the_node_runs():
    time = Time()
    limit = CatchUpLimit(None, time)
    assert seconds_for(limit, time, 100_000) == 0
    limit.change({FOLLOWER_RATE: "10000", LEADER_RATE: "5"})
    assert limit.settings() == {FOLLOWER_RATE: "10000", LEADER_RATE: "5"}
    assert seconds_for(limit, time, 100_000) == pytest.approx(10, abs=0.2)
    limit.change({FOLLOWER_RATE: "20000"})
    assert seconds_for(limit, time, 100_000) == pytest.approx(5, abs=0.2)
    limit.change({FOLLOWER_RATE: None, LEADER_RATE: None})
    assert (limit.settings(), seconds_for(limit, time, 100_000)) == ({}, 0)


def test_the_limit_of_the_start_comes_back():
    time = Time()
    limit = CatchUpLimit(10_000, time)
    limit.change({FOLLOWER_RATE: "1000000"})
    assert seconds_for(limit, time, 100_000) == pytest.approx(0.1, abs=0.01)
    limit.change({FOLLOWER_RATE: None})
    assert seconds_for(limit, time, 100_000) == pytest.approx(10, abs=0.2)


@pytest.mark.parametrize("wrong", [{FOLLOWER_RATE: "-1"}, {FOLLOWER_RATE: "fast"}, {"log.retention.ms": "1"}])
def test_what_is_refused_changes_nothing(wrong):
    limit = CatchUpLimit(None, Time())
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        limit.change({LEADER_RATE: "1", **wrong})
    limit.change({"replica.alter.log.dirs.io.max.bytes.per.second": None})
    limit.change({FOLLOWER_RATE: "1"}, validate_only=True)
    assert limit.settings() == {}


@pytest.mark.parametrize("partition_count", [1, 3])
def test_pieces_come_at_even_distances(partition_count):
    time = Time()
    limit = CatchUpLimit(30_000_000, time)
    time.now_ms = 60_000  # who was idle has saved nothing
    for _ in range(10):
        assert limit.wait_ms == 0
        for _ in range(partition_count):
            limit.note(limit.piece_bytes(partition_count))
        assert 10 <= limit.wait_ms <= 11
        time.now_ms += limit.wait_ms


def test_pieces_have_a_least_size_and_waits_a_longest_time():
    limit = CatchUpLimit(1_000_000, Time())
    assert limit.piece_bytes(1_000) == 64 * 1024
    limit.note(2**30)
    assert limit.wait_ms == 10_000


@pytest.mark.parametrize(("rate", "answer_bytes"), [(5_000_000, 5_000_000), (1_000, 64 * 1024)])
def test_an_answer_has_no_more_than_comes_in_a_second(rate, answer_bytes):
    assert CatchUpLimit(rate, Time()).answer_bytes == answer_bytes
