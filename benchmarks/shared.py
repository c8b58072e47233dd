"""``python -m benchmarks.shared``: two processes that use one directory through ``open_or_connect``.

One owns the directory, and this one is its guest. Measures what the guest sends and receives per second, and
end to end how long a record takes from ``send`` in one process to the hands of a consumer in the other, both
ways. Prints the medians of some rounds, with the lowest and the highest, beside the goals.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.connected import shown
from benchmarks.process import describe_machine
from benchmarks.text import format_table
from logstore.sharing import SharedStore, open_or_connect

_ROUNDS, _QUICK_ROUNDS = 5, 1
_RECORDS, _QUICK_RECORDS = 500_000, 5_000
_TRIPS, _QUICK_TRIPS = 2_000, 50
_VALUE = bytes(100)
_BATCH_BYTES = 262_144
_LINGER_MS = 5
_AT_A_TIME = 5_000
_SECONDS = 60
_PAUSE_SECONDS = 0.002
"""Between two records whose way is timed: no record waits for another."""


class Sizes(NamedTuple):
    """How much is measured."""

    rounds: int
    records: int
    trips: int


class Owner:
    """The other process. It does what each line of its input says, and answers with a line."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.shared", "--owner", str(directory)]
        self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def tell(self, what: str, topic: str, count: int) -> None:
        """Let it begin something."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps([what, topic, count]) + "\n")
        self._popen.stdin.flush()

    def answer(self) -> Any:
        """What it says next."""
        assert self._popen.stdout is not None
        return json.loads(self._popen.stdout.readline())

    def close(self) -> None:
        """Let it end."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.close()
        self._popen.wait()
        self._popen.stdout.close()


def _own(directory: str) -> None:
    """The program of the owner."""
    with open_or_connect(directory) as store:
        print(json.dumps(store.is_owner), flush=True)
        for line in sys.stdin:
            what, topic, count = json.loads(line)
            if what == "send":
                _send_slowly(store, topic, count)
                print(json.dumps(None), flush=True)
            else:
                print(json.dumps(_time_arrivals(store, topic, count, says=True)), flush=True)


def _send_slowly(store: SharedStore, topic: str, count: int) -> None:
    """Each record says when it was sent. The clock is the same in all processes."""
    with store.producer(acks=1, linger_ms=0, enable_idempotence=False) as producer:
        for _ in range(count):
            time.sleep(_PAUSE_SECONDS)
            producer.send(topic, b"%d" % time.monotonic_ns())


def _time_arrivals(store: SharedStore, topic: str, count: int, *, says: bool = False) -> list[int]:
    """The nanoseconds of each record's way."""
    found: list[int] = []
    with store.consumer(topic) as consumer:
        consumer.poll(timeout=0)
        if says:
            print(json.dumps("ready"), flush=True)
        while len(found) < count:
            records = consumer.poll(timeout=_SECONDS)
            now = time.monotonic_ns()
            found += [now - int(record.value) for record in records if record.value is not None]
    return found


def _sent_per_second(store: SharedStore, topic: str, count: int) -> float:
    with store.producer(acks=1, linger_ms=_LINGER_MS, batch_size=_BATCH_BYTES) as producer:
        started = time.perf_counter()
        for _ in range(count):
            producer.send(topic, _VALUE)
        producer.flush()
        return count / (time.perf_counter() - started)


def _received_per_second(store: SharedStore, topic: str, count: int) -> float:
    with store.consumer(topic, max_poll_records=_AT_A_TIME) as consumer:
        started, found = time.perf_counter(), 0
        while found < count:
            found += len(consumer.poll(_SECONDS))
        return count / (time.perf_counter() - started)


def _way_ms(
    store: SharedStore, owner: Owner, topic: str, count: int, *, to_owner: bool
) -> tuple[float, float]:
    """The median and the 99th percentile."""
    if to_owner:
        owner.tell("receive", topic, count)
        owner.answer()
        _send_slowly(store, topic, count)
        ways = owner.answer()
    else:
        owner.tell("send", topic, count)
        ways = _time_arrivals(store, topic, count)
        owner.answer()
    return statistics.median(ways) / 1e6, statistics.quantiles(ways, n=100)[98] / 1e6


def measure(directory: Path, sizes: Sizes) -> dict[str, list[float]]:
    """What is found, by name."""
    found: dict[str, list[float]] = {name: [] for name in _GOALS}
    owner = Owner(directory)
    try:
        with open_or_connect(directory) as store:
            if store.is_owner:
                raise RuntimeError("the other process should own the directory")
            for number in range(sizes.rounds):
                topics = [f"{kind}-{number}" for kind in ("rate", "there", "back")]
                for topic in topics:
                    store.require_topic(topic)
                found[_SENT].append(_sent_per_second(store, topics[0], sizes.records))
                found[_RECEIVED].append(_received_per_second(store, topics[0], sizes.records))
                for topic, name, to_owner in ((topics[1], "to", True), (topics[2], "from", False)):
                    ways = _way_ms(store, owner, topic, sizes.trips, to_owner=to_owner)
                    for kind, value in zip(("median", "99 %"), ways, strict=True):
                        found[f"A record's way {name} the owner, {kind}"].append(value)
                store.delete_topic(topics[0])
    finally:
        owner.close()
    return found


_SENT = "Sent by the guest"
_RECEIVED = "Received by the guest"
_GOALS = {
    _SENT: ("records/s", "at least 300,000"),
    _RECEIVED: ("records/s", "at least 300,000"),
    "A record's way to the owner, median": ("ms", ""),
    "A record's way to the owner, 99 %": ("ms", "below 2"),
    "A record's way from the owner, median": ("ms", ""),
    "A record's way from the owner, 99 %": ("ms", "below 2"),
}
"""The unit and the goal of each figure."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="see whether it runs; the figures mean nothing")
    parser.add_argument("--owner", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.owner:
        _own(arguments.owner)
        return
    sizes = Sizes(_ROUNDS, _RECORDS, _TRIPS)
    if arguments.quick:
        sizes = Sizes(_QUICK_ROUNDS, _QUICK_RECORDS, _QUICK_TRIPS)
    with tempfile.TemporaryDirectory() as home:
        machine = describe_machine(home)
        print("\n".join(f"{name}: {fact}" for name, fact in machine.items()) + "\n")
        found = measure(Path(home) / "store", sizes)
    rows = [
        (name, unit, _shown_ms(found[name]) if unit == "ms" else shown(found[name]), goal)
        for name, (unit, goal) in _GOALS.items()
    ]
    print(format_table(("What", "Unit", "Measured", "Goal"), rows))


def _shown_ms(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


if __name__ == "__main__":
    main()
