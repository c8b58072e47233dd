"""How much a bridge moves at a time, on lines of every speed. 2 s."""

from __future__ import annotations

import threading
import time

import pytest

import logstore
from logstore import bridge
from logstore.bridge.pace import LEAST_BYTES, Pace
from logstore.broker.pending import Promise, wait_for
from logstore.wire.remote.broker import RemoteBroker
from tests.bridge.test_pull import Ends, wait_until
from tests.interop.cutting import CuttingProxy

MOST = 50 * 2**20
LIMIT_MS = 30_000


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.close()


@pytest.mark.parametrize("bytes_a_second", [2_000, 10_000, 50_000, 1_000_000, 100_000_000])
def test_steps_fit_the_line(bytes_a_second):
    """What there is goes over any line on which the least step does, and a fast one is used."""
    pace = Pace(MOST, LIMIT_MS)
    failed, seen = 0, []
    for _ in range(40):
        size = pace.step_bytes
        took_ms = size / bytes_a_second * 1000
        if took_ms > LIMIT_MS:
            failed += 1
            pace.failed()
        else:
            seen.append(size)
            pace.took(size, took_ms)
    assert failed <= 2
    assert len(set(seen[-4:])) == 1
    assert (
        seen[-1] == MOST if bytes_a_second > 50_000_000 else seen[-1] < bytes_a_second * LIMIT_MS / 1000 / 2
    )


def test_a_line_of_long_ways_is_used():
    """By satellite: a transaction takes several questions, each of which takes a while, small or not."""
    pace, bytes_a_second = Pace(16 * 2**20, 60_000), 1_000_000
    for _ in range(20):
        size = pace.step_bytes
        took_ms = 3_000 + size / bytes_a_second * 1000
        pace.took(size, took_ms)
    assert size / (took_ms / 1000) > bytes_a_second / 2


def test_little_says_nothing_of_much():
    pace = Pace(MOST, LIMIT_MS)
    size = pace.step_bytes
    for _ in range(10):
        pace.took(100, 1)
    assert pace.step_bytes == size


def test_there_is_a_least_and_a_most():
    pace = Pace(1000, LIMIT_MS)
    for _ in range(3):
        pace.took(1000, 1)
    assert pace.step_bytes == 1000
    pace = Pace(MOST, LIMIT_MS)
    for _ in range(30):
        pace.failed()
    assert pace.step_bytes == LEAST_BYTES


class Line:
    """Carries bytes one after the other, and so answers late."""

    def __init__(self, bytes_a_second):
        self.bytes_a_second = bytes_a_second
        self.is_free_at = 0.0

    def carry(self, answer, byte_count):
        now = time.monotonic()
        self.is_free_at = max(now, self.is_free_at) + byte_count / self.bytes_a_second
        late = Promise()
        threading.Timer(self.is_free_at - now, late.complete, [wait_for(answer)]).start()
        return late


def filled(store):
    topic = store.create_topic("t")
    for _ in range(200):
        topic[0].extend([bytes(1_000)] * 10)
    return topic


def bytes_in(parts):
    return sum(len(each.data) for each in parts)


def test_a_pull_over_a_slow_line(ends, monkeypatch):
    """All at once would take longer than a request may."""
    source, plain, line = filled(ends.cluster), RemoteBroker.fetch, Line(4_000_000)

    def fetch(broker, request):
        answer = plain(broker, request)
        return line.carry(answer, bytes_in(wait_for(answer).partitions))

    monkeypatch.setattr(RemoteBroker, "fetch", fetch)
    with logstore.connect(ends.listener.address, request_timeout_ms=300) as remote:
        assert bridge.pull(remote, ends.store, "t").run(until_end=True).lag == 0
    assert ends.store["t"][0].log_end_offset == source[0].log_end_offset


def test_a_pull_over_a_line_that_breaks(ends):
    """After some bytes each time: who asks for as much again does not get it. Also of several partitions, of
    which some do not get into an answer. 2 s."""
    source = ends.cluster.create_topic("t", partitions=4)
    for number in range(80):
        source[number % 4].extend([bytes(1_000)] * 10)
    line = CuttingProxy(1, longest_bytes=200_000)
    settings = {"request_timeout_ms": 3_000, "retry_backoff_ms": 5, "reconnect_backoff_ms": 5}
    with ends.cluster.listen("127.0.0.1:0", advertised=f"127.0.0.1:{line.port}") as listener:
        line.target_port = int(listener.address.rpartition(":")[2])
        with logstore.connect(f"127.0.0.1:{line.port}", **settings) as remote:
            pull = bridge.pull(remote, ends.store, "t")
            too_late = threading.Timer(20, pull.stop)
            too_late.start()
            line.is_calm = False
            assert pull.run(until_end=True).lag == 0
            line.is_calm = True
            too_late.cancel()
    line.close()
    assert line.cut_count < 500
    for here, there in zip(ends.store["t"], source, strict=True):
        assert here.log_end_offset == there.log_end_offset


def test_a_wait_for_records_is_no_slow_line(ends, monkeypatch):
    monkeypatch.setattr("logstore.bridge.pull_topics._WAIT_MS", 200)
    source = ends.cluster.create_topic("t")
    with logstore.connect(ends.listener.address, request_timeout_ms=600) as remote:
        pull = bridge.pull(remote, ends.store, "t")
        thread = threading.Thread(target=pull.run)
        thread.start()
        size = pull._pace.step_bytes
        for number in range(1, 4):
            time.sleep(0.19)
            source[0].extend([b"x"])
            wait_until(
                lambda number=number: "t" in ends.store and ends.store["t"][0].log_end_offset == number
            )
        pull.stop()
        thread.join()
    assert pull._pace.step_bytes > size / 8  # a machine that is busy may be slow once


def test_a_push_over_a_slow_line(ends, monkeypatch):
    """All at once would take longer than records may be on their way, as than a transaction may be open."""
    source, plain, line = filled(ends.store), RemoteBroker.produce, Line(4_000_000)
    monkeypatch.setattr(
        RemoteBroker,
        "produce",
        lambda broker, request: line.carry(plain(broker, request), bytes_in(request.partitions)),
    )
    times = {"request_timeout_ms": 300, "delivery_timeout_ms": 310, "linger_ms": 0}
    progress = bridge.push(ends.store, ends.remote, "t", name="edge", **times).run(until_end=True)
    assert (progress.lag, progress.record_count) == (0, source[0].log_end_offset)
    assert progress.transaction_count > 1


def test_headers_are_carried_too(ends):
    source = ends.store.create_topic("t")
    source[0].extend([logstore.NewRecord(b"", headers=[("h", bytes(50_000))]) for _ in range(20)])
    progress = bridge.push(ends.store, ends.remote, "t", name="edge").run(until_end=True)
    assert progress.transaction_count > 1
