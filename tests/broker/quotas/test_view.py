"""A broker as one client sees it: what is measured, and which answers carry a delay. By hand's clock."""

from __future__ import annotations

import pytest

from logstore.broker import client_view
from logstore.broker.broker import Broker
from logstore.broker.client_view import ClientView
from logstore.broker.counting import RequestCounts
from logstore.broker.pending import Promise
from logstore.broker.quotas.limits import Limits
from logstore.broker.quotas.precedence import Client
from logstore.broker.quotas.requests import AlterClientQuotasRequest, QuotaAlteration
from logstore.broker.requests import (
    ACKS_ALL,
    ACKS_NONE,
    FetchPartition,
    FetchRequest,
    MetadataRequest,
    ProducePartition,
    ProduceRequest,
)
from logstore.logdir.quotas import QuotaEntity
from logstore.testing import ManualClock
from tests.broker.rig import T0, Rig, batch_of, values_of, wakes_of

ETL = Client("ANONYMOUS", "etl")


@pytest.fixture
def rig():
    return Rig()


def set_quotas(rig, client_id="etl", **values):
    alteration = QuotaAlteration({"client-id": client_id}, tuple(values.items()))
    (outcome,) = rig.now(rig.broker.alter_client_quotas(AlterClientQuotasRequest((alteration,)))).entries
    assert not outcome.error


def produce(rig, broker, *values, acks=1):
    data = batch_of(values, rig.clock.now_ms())
    return broker.produce(ProduceRequest(acks, 1000, (ProducePartition(T0, data),)))


def fetch(broker, offset=0, **options):
    return broker.fetch(FetchRequest((FetchPartition(T0, offset),), **{"max_wait_ms": 0, **options}))


def size_of(rig, *values):
    return len(batch_of(values, rig.clock.now_ms()))


def test_it_takes_every_request_that_a_broker_takes():
    requests = {name for name in vars(Broker) if not name.startswith("_")}
    assert len(requests) > 20
    assert requests <= vars(ClientView).keys()


def test_without_quotas_answers_are_the_brokers_own(rig):
    view = rig.broker.as_client(ETL)
    assert type(produce(rig, view, b"a")) is type(produce(rig, rig.broker, b"a"))
    assert type(view.metadata(MetadataRequest())) is type(rig.broker.metadata(MetadataRequest()))
    set_quotas(rig, "another", producer_byte_rate=1)
    assert produce(rig, view, b"a" * 1_000).throttle_time_ms == 0


def test_produced_bytes_count_with_any_acks_and_when_they_are_refused(rig):
    size = size_of(rig, b"a" * 1_000)
    set_quotas(rig, producer_byte_rate=size // 10)
    view = rig.broker.as_client(ETL)
    assert produce(rig, view, b"a" * 1_000).throttle_time_ms == pytest.approx(0, abs=100)
    delays = [produce(rig, view, b"a" * 1_000, acks=acks).throttle_time_ms for acks in (ACKS_NONE, 1, 2)]
    assert delays == [pytest.approx(number * 10_000, abs=100) for number in (1, 2, 3)]
    assert rig.directory.log(T0).log_end_offset == 3  # there is no acks=2
    assert produce(rig, rig.broker, b"a").throttle_time_ms == 0


def test_a_flush_is_waited_for_and_the_delay_begins_with_the_answer(rig):
    set_quotas(rig, producer_byte_rate=size_of(rig, b"a" * 100))
    view = rig.broker.as_client(ETL)
    pendings = [produce(rig, view, b"a" * 100, acks=ACKS_ALL) for _ in range(12)]
    woken = wakes_of(pendings[-1])
    assert [pending.poll() for pending in pendings] == [None] * 12
    assert pendings[-1].throttle_time_ms == 0
    rig.pass_time(0)
    assert woken == ["woken"]
    assert all(not pending.poll().partitions[0].error for pending in pendings)
    assert [pending.throttle_time_ms for pending in pendings] == [0] * 10 + [1_000, 2_000]
    assert pendings[-1].poll() is pendings[-1].poll()
    assert pendings[-1].throttle_time_ms == 2_000  # counted once


def test_a_fetch_brings_what_the_windows_let_through_and_one_batch_at_least(rig):
    values = [b"%d" % number + b"." * 1_000 for number in range(30)]
    for value in values:
        rig.produce(value)
    size = size_of(rig, values[0])
    set_quotas(rig, consumer_byte_rate=size)
    view = rig.broker.as_client(ETL)
    first = fetch(view)
    data = rig.now(first).partitions[0].data
    assert values_of(data) == values[: len(data) // size]
    assert 9 <= len(data) // size <= 10
    assert first.throttle_time_ms == 0
    second = fetch(view, len(data) // size, min_bytes=50_000_000, max_wait_ms=10_000)
    assert len(rig.now(second).partitions[0].data) <= 10 * size  # and it does not wait for more
    assert 7_000 <= second.throttle_time_ms <= 10_000
    set_quotas(rig, consumer_byte_rate=1)
    assert len(rig.now(fetch(view)).partitions[0].data) == size


def test_a_long_poll_counts_what_it_brings_when_it_comes(rig):
    set_quotas(rig, consumer_byte_rate=1)
    pending = fetch(rig.broker.as_client(ETL), max_wait_ms=500)
    woken = wakes_of(pending)
    assert pending.poll() is None
    rig.produce(b"a" * 1_000)
    assert woken == ["woken"]
    size = len(rig.now(pending).partitions[0].data)
    assert pending.throttle_time_ms == (size - 10) * 1_000
    pending.cancel()


def test_delays_are_counted(rig):
    set_quotas(rig, producer_byte_rate=1, request_percentage=1e-9)
    view = rig.broker.as_client(ETL)
    assert rig.now(view.metadata(MetadataRequest()))
    seconds = produce(rig, view, b"a" * 100).throttle_time_ms / 1_000
    counted = rig.broker.requests.throttle_seconds
    assert {api: (each.count, each.sum) for api, each in counted.items()} == {
        "metadata": (1, 1.0),
        "produce": (1, seconds),
    }


class Working:
    """A broker whose work takes time, by a counter that only it moves: 2 s when it is asked, 3 s when its
    answer is taken."""

    def __init__(self, monkeypatch):
        self.now_ns = 0
        self.promise = Promise()
        monkeypatch.setattr(client_view, "perf_counter_ns", lambda: self.now_ns)

    def produce(self, request):
        self.now_ns += 2_000_000_000
        return self

    fetch = metadata = produce

    def poll(self):
        if self.promise.poll() is not None:
            self.now_ns += 3_000_000_000
        return self.promise.poll()


def test_time_counts_while_a_thread_works_and_not_while_a_request_waits(monkeypatch):
    clock, broker = ManualClock(), Working(monkeypatch)
    limits = Limits(clock, window_count=11, window_ms=60_000)
    limits.put({QuotaEntity("alice"): {"request_percentage": 0.5}})
    pending = ClientView(broker, Client("alice", "a"), limits, RequestCounts()).metadata(MetadataRequest())
    broker.now_ns += 10**15  # it waits
    assert pending.poll() is None
    broker.promise.complete("found")
    assert pending.poll() == "found"
    # 5 s of a thread are 0.5 % of 1,000 s; 600 s were free
    assert limits.charge(Client("alice", "b"), "request_percentage", 0) == 60_000
    limits.put({QuotaEntity("alice"): {"request_percentage": 500 / 630}})
    assert limits.charge(Client("alice", "b"), "request_percentage", 0) == 30_000
