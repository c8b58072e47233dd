"""`follow()` went on at its offset after the log was truncated in front of it and had grown past it again.
The new records up to there never came, and nothing said so, in the writer's process and in others."""

from __future__ import annotations

import random

import pytest
from tests.logdir.helpers import open_store

from logstore.config import TopicConfig
from logstore.errors import OffsetOutOfRangeError
from logstore.model import Isolation
from logstore.partition.reading.view import MAX_CUTS, Truncations
from logstore.partition.state.sidecars import CUTS_NAME


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store") as store:
        yield store


@pytest.fixture(params=["writer", "elsewhere"])
def place(request, tmp_path, store):
    """Gives the topic for the writer's process, or as another one sees it."""
    if request.param == "writer":
        yield lambda: store["t"]
    else:
        with open_store(tmp_path / "store", read_only=True) as reading:
            yield lambda: reading["t"]


def append(log, name, count):
    for _ in range(count):
        log.extend([b"%s%d" % (name, log.log_end_offset)])


@pytest.mark.parametrize("segment_bytes", [100_000, 200])
@pytest.mark.parametrize("cut", [0, 3, 9])
@pytest.mark.parametrize("whole", [True, False])
def test_a_follower_hears_of_a_cut_in_front_of_it(store, place, segment_bytes, cut, whole):
    log = store.create_topic("t", config=TopicConfig(segment_bytes=segment_bytes))[0]
    append(log, b"old", 10)
    following = place().follow("earliest", timeout=0) if whole else place()[0].follow(0, timeout=0)
    assert [next(following).offset for _ in range(10)] == list(range(10))
    log.truncate_to(cut)
    append(log, b"new", 12)
    with pytest.raises(OffsetOutOfRangeError, match=f"truncated to offset {cut} "):
        next(following)
    assert [record.value for record in place()[0].follow(cut, timeout=0)] == [
        b"new%d" % offset for offset in range(cut, cut + 12)
    ]


def test_a_cut_behind_a_follower_is_none_of_its_business(store, place):
    log = store.create_topic("t")[0]
    append(log, b"old", 10)
    following = place()[0].follow(10, timeout=5)
    append(log, b"new", 2)
    assert next(following).offset == 10
    assert next(following).offset == 11
    append(log, b"cut", 5)
    log.truncate_to(12)
    append(log, b"new", 1)
    assert next(following).value == b"new12"


def test_a_follower_that_has_read_nothing_hears_of_it_too(store, place):
    """It waits for what comes at the end, and what came there is in front of it."""
    log = store.create_topic("t")[0]
    append(log, b"old", 10)
    following = place()[0].follow(timeout=0)
    log.truncate_to(3)
    append(log, b"new", 20)
    with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 3 "):
        next(following)


def test_starting_over_is_a_cut(store, place):
    log = store.create_topic("t")[0]
    append(log, b"old", 10)
    following = place()[0].follow(0, timeout=0)
    assert [next(following).offset for _ in range(10)] == list(range(10))
    log.truncate_fully_and_start_at(5)
    append(log, b"new", 12)
    with pytest.raises(OffsetOutOfRangeError, match="truncated"):
        next(following)


class Follower:
    """Takes steps, and is told by the test where the log was cut in between."""

    def __init__(self, log):
        self.restart(log)

    def restart(self, log):
        self.position, self.count = log.log_start_offset, log.truncation_count
        self.lowest_cut = None

    def step(self, log):
        found, self.position, self.count = log.advance_from(
            self.position, self.count, isolation=Isolation.HIGH_WATERMARK
        )
        return list(found)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("seed", range(6))
def test_followers_get_every_record_or_hear_of_a_cut(tmp_path, store, seed, policy):
    """Beside everything that may change a log. An error without a cut is wrong, too."""
    rng = random.Random(seed)
    config = TopicConfig(segment_bytes=rng.choice((300, 2_000)), cleanup_policy=policy)
    log = store.create_topic("t", config=config)[0]
    truth = {}
    with open_store(tmp_path / "store", read_only=True) as reading:
        places = [lambda: store["t"][0], lambda: reading["t"][0]]
        followers = [(Follower(place()), place) for place in places for _ in range(3)]
        heard = 0
        for number in range(150):
            log = store["t"][0]
            start, end = log.log_start_offset, log.log_end_offset
            action = rng.choice(["append"] * 10 + ["truncate", "roll", "delete", "rewrite", "reopen", "step"])
            if action == "append":
                for _ in range(rng.randint(1, 6)):
                    (offset,) = log.extend([(b"%d" % rng.randrange(9), b"v%d" % number)])
                    truth[offset] = b"v%d" % number
            elif action == "truncate" and start < end:
                cut = rng.randint(max(start, end - 8), end - 1)
                log.truncate_to(cut)
                left = {record.offset for record in log.read()}  # a batch may go as a whole
                truth = {offset: value for offset, value in truth.items() if offset < cut and offset in left}
                for follower, _ in followers:
                    if follower.lowest_cut is None or log.log_end_offset < follower.lowest_cut:
                        follower.lowest_cut = log.log_end_offset
            elif action == "roll":
                log.roll()
            elif action == "delete":
                log.delete_before(min(start + rng.randint(0, 2), end))
            elif action == "rewrite" and "compact" in policy:
                log.compact(now=True)
            elif action == "rewrite":
                gone = range(rng.randint(start, end), end)[:2]
                log.erase(offsets=[gone])
                truth = {offset: value for offset, value in truth.items() if offset not in gone}
            elif action == "reopen":
                store["t"].reopen(0)
            for follower, place in followers:
                if rng.random() < 0.4:
                    heard += take_step(follower, place(), truth, is_compacted="compact" in policy)
        assert heard


def take_step(follower, log, truth, *, is_compacted):
    """Whether it has heard of a cut."""
    before, start, end = follower.position, log.log_start_offset, log.log_end_offset
    is_cut = follower.lowest_cut is not None and follower.lowest_cut < before
    follower.lowest_cut = None
    try:
        found = follower.step(log)
    except OffsetOutOfRangeError:
        assert is_cut or before < start
        follower.restart(log)
        return is_cut
    assert not is_cut
    assert start <= before <= follower.position == end
    values = {record.offset: record.value for record in found}
    expected = {offset: value for offset, value in truth.items() if offset >= before}
    assert values.items() <= expected.items()
    assert is_compacted or values == expected
    return False


def test_cuts_that_are_told_apart_no_more_err_on_the_safe_side():
    cuts, all_cuts, rng = Truncations(), [], random.Random(1)
    for number in range(1, 1_000):
        cuts.count = number
        all_cuts.append(3 * number + rng.randrange(5))
        cuts.note(all_cuts[-1])
        assert len(cuts.cuts) <= MAX_CUTS + 1
        again = Truncations(cuts.cuts)
        assert again.count == number
        for seen in (0, number // 2, number - 5, number - 1, number):
            lowest = min(all_cuts[max(seen, 0) :], default=None)
            said = again.lowest_since(seen)
            assert (said is None) == (lowest is None)
            if lowest is not None:
                assert said == lowest if seen > number - 60 else said <= lowest


def test_damage_of_what_is_stored_of_cuts_is_passed_over(store, place):
    log = store.create_topic("t")[0]
    append(log, b"old", 10)
    log.truncate_to(5)
    with open(f"{log.directory}/{CUTS_NAME}", "wb") as file:
        file.write(b"garbage")
    store["t"].reopen(0)
    assert len(list(place()[0].read())) == 5
    store["t"][0].truncate_to(4)
    assert len(list(place()[0].follow(0, timeout=0))) == 4
