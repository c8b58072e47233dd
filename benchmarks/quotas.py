"""``python -m benchmarks.quotas``: what quotas cost, without any and with some that are never exceeded.

Producers and consumers ask the broker through a view of their own. The same calls are measured with that view
and with the broker in its place, in turns, in one process; then through the view with quotas of all three
kinds. Times are of the processor, so that other programs count less. Prints the ratios, the median of the
pairs and the middle half of them, and what a request costs more, from the smallest times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import logstore
from benchmarks.measure import scratch_directory
from benchmarks.metrics import poll, send
from benchmarks.process import describe_machine
from benchmarks.text import format_table
from logstore.broker.client_view import ClientView
from logstore.broker.counting import RequestCounts
from logstore.broker.local import LocalBroker
from logstore.broker.pending import Answered
from logstore.broker.quotas.limits import Limits
from logstore.broker.quotas.precedence import Client
from logstore.broker.requests import FetchPartition, FetchRequest, ProducePartition, ProduceRequest
from logstore.clients.quotas import DEFAULT, QuotaEntity
from logstore.clock import SystemClock
from logstore.format.batch import encode_batch
from logstore.logdir.quotas import Quotas
from logstore.model import TopicPartition

_VALUE = b"x" * 100
_PARTITION = TopicPartition("t", 0)
_PAIRS, _QUICK_PAIRS = 40, 4
_RECORDS, _QUICK_RECORDS = 50_000, 5_000
_HIGH = 10**15
_ROUNDS = 50
_QUOTAS = {QuotaEntity(None, DEFAULT): {"producer_byte_rate": _HIGH, "request_percentage": 1e9}}

Work = Callable[[logstore.Store, int], None]
"""Makes a call so many times, or with so many records."""


def produce(store: logstore.Store, count: int) -> None:
    """A produce request with a batch of one record: the smallest there is."""
    broker = store._open_broker(store._writable()).as_client(Client())
    data = bytes(encode_batch([None], [_VALUE], [0]))
    request = ProduceRequest(1, 1_000, (ProducePartition(_PARTITION, data),))
    for _ in range(count // 50):
        broker.produce(request)


def fetch(store: logstore.Store, count: int) -> None:
    """A fetch request that finds one batch."""
    broker = store._open_broker(store._writable()).as_client(Client())
    request = FetchRequest((FetchPartition(_PARTITION, 0, 1_000),), max_wait_ms=0)
    for _ in range(count // 50):
        broker.fetch(request)


WORK: tuple[Work, ...] = (produce, fetch, send, poll)
_WAYS = ("broker", "view", "quotas")


def times(work: Work, directory: str, count: int, pairs: int) -> dict[str, list[float]]:
    """Processor seconds by way, in turns."""
    found: dict[str, list[float]] = {way: [] for way in _WAYS}
    for number in range(pairs):
        for way in _WAYS if number % 2 else reversed(_WAYS):
            with ExitStack() as stack:
                if way == "broker":
                    stack.enter_context(patch.object(LocalBroker, "as_client", _itself))
                store = stack.enter_context(logstore.open(f"{directory}/{work.__name__}-{number}-{way}"))
                log = store.create_topic("t")[0]
                log.extend([_VALUE] * count)
                log.flush()
                if way == "quotas":
                    store.quotas.set(client_id=DEFAULT, producer_byte_rate=_HIGH, consumer_byte_rate=_HIGH)
                    store.quotas.set(client_id=DEFAULT, request_percentage=1e9)
                started = time.process_time()
                work(store, count)
                found[way].append(time.process_time() - started)
    return found


def _itself(broker: LocalBroker, _: Any) -> LocalBroker:
    return broker


class _Nothing:
    """A broker that has its answer ready."""

    def produce(self, _: Any) -> Answered[int]:
        return _ANSWER

    fetch = produce


_ANSWER = Answered(0)


def view_seconds(quotas: Quotas, count: int) -> float:
    """What the view alone takes for a produce request: the least of some rounds."""
    broker: Any = _Nothing()
    limits = Limits(SystemClock(), window_count=11, window_ms=1_000)
    limits.put(quotas)
    view = ClientView(broker, Client(), limits, RequestCounts())
    request = ProduceRequest(1, 1_000, (ProducePartition(_PARTITION, b""),))
    least: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for name, call in (("view", view.produce), ("broker", broker.produce)):
            started = time.thread_time()
            for _ in range(count):
                call(request)
            least[name] = min(least.get(name, 1.0), (time.thread_time() - started) / count)
    return least["view"] - least["broker"]


def _row(work: Work, found: dict[str, list[float]], count: int) -> list[str]:
    row = [work.__name__]
    for way in _WAYS[1:]:
        ratios = [mine / its for mine, its in zip(found[way], found["broker"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        row.append(f"{middle:.3f} ({low:.3f} to {high:.3f})")
    if work in (produce, fetch):
        least = {way: min(found[way]) / (count // 50) * 1e6 for way in _WAYS}
        row += [f"{least['broker']:.2f}"] + [f"{least[way] - least['broker']:+.2f}" for way in _WAYS[1:]]
    else:
        row += ["", "", ""]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="What quotas cost.")
    parser.add_argument("--quick", action="store_true", help="a few pairs; too short to conclude from")
    quick = parser.parse_args().quick
    pairs, count = (_QUICK_PAIRS, _QUICK_RECORDS) if quick else (_PAIRS, _RECORDS)
    rows = []
    with scratch_directory(None) as directory:
        for work in WORK:
            rows.append(_row(work, times(work, directory, count, pairs), count))
        machine = describe_machine(directory)
    print("\n".join(f"{name}: {fact}" for name, fact in machine.items()) + "\n")
    head = ["", "no quota / broker", "quotas / broker", "request, µs", "view, µs", "quotas, µs"]
    print(format_table(head, rows, text_columns=1))
    calls = 300 if quick else 5_000
    print(f"The view alone, without quotas: {view_seconds({}, calls) * 1e6:.2f} µs a request")
    print(f"The view alone, with two: {view_seconds(_QUOTAS, calls) * 1e6:.1f} µs")


if __name__ == "__main__":
    main()
