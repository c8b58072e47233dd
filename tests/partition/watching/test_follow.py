"""Following a log from the process that writes it."""

import threading
import time

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ClosedError, OffsetOutOfRangeError, UsageError
from logstore.model import Isolation, ProducerIdentity
from logstore.testing import ManualClock
from tests.logdir.helpers import QuickFiles, open_store


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store", clock=None) as store:
        yield store


@pytest.fixture
def log(store):
    return store.create_topic("t")[0]


class Follower(threading.Thread):
    """Follows in a thread of its own, and notes what it sees and how it ends."""

    def __init__(self, log, *arguments, **options):
        super().__init__()
        self.following = log.follow(*arguments, **options)
        self.seen = []
        self.times_ns = []
        self.error = None
        self.start()

    def run(self):
        try:
            for record in self.following:
                self.times_ns.append(time.monotonic_ns())
                self.seen.append(record.value)
        except Exception as error:
            self.error = error

    def wait_for(self, count):
        deadline = time.monotonic() + 5
        while len(self.seen) < count and time.monotonic() < deadline:
            time.sleep(0.001)
        return self.seen


def test_from_the_start_shows_everything_and_then_what_comes(store, log):
    log.extend([b"a", b"b"])
    follower = Follower(log, 0)
    assert follower.wait_for(2) == [b"a", b"b"]
    log.extend([b"c"])
    assert follower.wait_for(3) == [b"a", b"b", b"c"]
    store.close()
    follower.join(5)


def test_from_the_end_shows_only_what_comes(store, log):
    log.extend([b"a", b"b"])
    follower = Follower(log)
    log.extend([b"c"])
    assert follower.wait_for(1) == [b"c"]
    store.close()
    follower.join(5)


def test_the_end_is_that_of_the_call_and_not_of_the_first_step(log):
    following = log.follow(timeout=0)
    log.extend([b"a"])
    assert [record.value for record in following] == [b"a"]


def test_ends_when_nothing_came_for_the_timeout(log):
    log.extend([b"a"])
    before = time.monotonic()
    assert [record.value for record in log.follow(0, timeout=0.1)] == [b"a"]
    assert 0.1 <= time.monotonic() - before < 20


def test_every_record_begins_the_timeout_anew(log):
    log.extend([b"a"])
    seen = []
    for record in log.follow(0, timeout=0.15):
        seen.append(record.value)
        if len(seen) < 4:
            threading.Timer(0.08, log.extend, [[b"next"]]).start()
    assert len(seen) == 4


def test_a_timeout_of_0_reads_what_is_there(log):
    log.extend([b"a", b"b"])
    assert [record.value for record in log.follow(1, timeout=0)] == [b"b"]


@pytest.mark.parametrize(
    "timeout", [float("inf"), 1e308, 1e9, 10**400], ids=["inf", "1e308", "1e9", "10^400"]
)
def test_whoever_waits_for_centuries_waits(store, log, timeout):
    follower = Follower(log, timeout=timeout)
    time.sleep(0.02)
    log.extend([b"a"])
    assert follower.wait_for(1) == [b"a"]
    store.close()
    follower.join(5)
    assert isinstance(follower.error, ClosedError)


@pytest.mark.parametrize("timeout", [-1, "1", True, float("nan")])
def test_a_timeout_that_is_none_is_refused_by_the_call(log, timeout):
    with pytest.raises(UsageError, match="timeout"):
        log.follow(timeout=timeout)


@pytest.mark.parametrize("start", [3, -1, 2**70, "0", 1.0])
def test_a_start_outside_the_log_is_refused_by_the_call(log, start):
    log.extend([b"a", b"b"])
    with pytest.raises(UsageError):
        log.follow(start)


def test_an_append_wakes_a_follower_of_the_same_process_at_once(store, log):
    follower = Follower(log)
    lags_ms = []
    for number in range(30):
        time.sleep(0.002)
        before = time.monotonic_ns()
        log.extend([b"v"])
        follower.wait_for(number + 1)
        lags_ms.append((follower.times_ns[number] - before) / 1e6)
    store.close()
    follower.join(5)
    assert sorted(lags_ms)[15] < 5, lags_ms


def test_a_gathered_record_is_seen_after_the_linger_time(store, log):
    follower = Follower(log)
    log.append(b"v")
    assert follower.wait_for(1) == [b"v"]
    store.close()
    follower.join(5)


def test_many_followers_see_the_same(store, log):
    followers = [Follower(log, 0) for _ in range(20)]
    for number in range(50):
        log.extend([b"%d" % number])
    expected = [b"%d" % number for number in range(50)]
    assert all(follower.wait_for(50) == expected for follower in followers)
    store.close()
    for follower in followers:
        follower.join(5)


def test_closing_ends_a_waiting_follower_with_closed_error(store, log):
    follower = Follower(log)
    time.sleep(0.02)
    store.close()
    follower.join(5)
    assert isinstance(follower.error, ClosedError)


def test_deleting_the_topic_ends_a_waiting_follower_with_closed_error(store, log):
    follower = Follower(log)
    time.sleep(0.02)
    store.delete_topic("t")
    follower.join(5)
    assert isinstance(follower.error, ClosedError)


def test_a_follower_that_retention_overtook_says_so(store):
    log = store.create_topic("small", config=TopicConfig(segment_bytes=1_000))[0]
    log.extend([b"v" * 100] * 5)
    following = log.follow(0)
    next(following)
    log.extend([b"v" * 100] * 100)
    log.delete_before(90)
    with pytest.raises(OffsetOutOfRangeError):
        list(following)


def test_a_follower_behind_a_truncation_says_so(store, log):
    log.extend([b"v"] * 10)
    follower = Follower(log, 10)
    time.sleep(0.02)
    log.truncate_to(0)
    follower.join(5)
    assert isinstance(follower.error, OffsetOutOfRangeError)


def test_follows_over_rolls(store):
    log = store.create_topic("small", config=TopicConfig(segment_bytes=1_000))[0]
    follower = Follower(log)
    for number in range(60):
        log.extend([b"%d" % number * 40])
    assert follower.wait_for(60) == [b"%d" % number * 40 for number in range(60)]
    assert log.segment_count > 3
    store.close()
    follower.join(5)


def test_committed_waits_for_the_end_of_the_transaction(store, log):
    follower = Follower(log, 0, isolation=Isolation.COMMITTED)
    log.extend([b"aborted"], producer=ProducerIdentity(1, 0, 0, True))
    log.append_end_marker(1, 0, committed=False)
    log.extend([b"committed"], producer=ProducerIdentity(1, 0, 1, True))
    time.sleep(0.02)
    assert follower.seen == []
    log.append_end_marker(1, 0, committed=True)
    assert follower.wait_for(1) == [b"committed"]
    store.close()
    follower.join(5)


def test_durable_waits_for_the_flush(tmp_path):
    config = StoreConfig(topic=TopicConfig(flush_ms=1_000_000))
    with open_store(tmp_path / "s", clock=None, config=config) as store:
        log = store.create_topic("t")[0]
        follower = Follower(log, isolation=Isolation.DURABLE)
        log.extend([b"v"])
        time.sleep(0.02)
        assert follower.seen == []
        log.flush()
        assert follower.wait_for(1) == [b"v"]
    follower.join(5)


def test_a_manual_clock_does_not_keep_a_follower_from_ending(tmp_path):
    with open_store(tmp_path / "s", clock=ManualClock(), files=QuickFiles()) as store:
        assert list(store.create_topic("t")[0].follow(timeout=0.01)) == []
