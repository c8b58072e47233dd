"""``python -m benchmarks.shares``: what it costs to store the states of share-partitions.

Each update makes some offsets that are not side by side acknowledged, and moves the start offset behind those
of the update before. So many updates, of as many share-partitions in turn, are one write, which no flush
follows; the background flushes. Prints the time of an update, and then that of each record when the states
are read again: medians of some rounds. The time is that of the processor in the thread that writes, so that
other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid
from typing import NamedTuple

import logstore
from benchmarks.measure import scratch_directory
from benchmarks.process import describe_machine
from benchmarks.text import format_significant, format_table
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.broker.storing.shares import ShareStorage
from logstore.format.messages.share_records import ShareBatch, ShareKey
from logstore.format.names import SHARE_STATE_TOPIC

_ROUNDS, _QUICK_ROUNDS = 5, 1
_UPDATES, _QUICK_UPDATES = 50_000, 1_000
_TOPIC_ID = uuid.UUID(int=1)


class Shape(NamedTuple):
    """How updates are written."""

    updates_per_write: int
    batches_per_update: int


SHAPES = (Shape(1, 1), Shape(10, 1), Shape(100, 1), Shape(100, 5), Shape(1_000, 1))


class Costs(NamedTuple):
    """In µs."""

    update: float
    loaded_record: float


def measure(path: str, shape: Shape, update_count: int) -> Costs:
    """Write updates, and read them."""
    keys = [ShareKey("workers", _TOPIC_ID, number) for number in range(shape.updates_per_write)]
    with logstore.open(path) as store:
        storage = ShareStorage(store._directory)
        storage.write([(key, ShareState(0, 0, 0)) for key in keys])
        writes = [
            [(key, _change(number, shape.batches_per_update)) for key in keys]
            for number in range(max(update_count // len(keys), 1))
        ]
        started = time.thread_time()
        for changes in writes:
            storage.write(changes)
        written = time.thread_time() - started
        log = store[SHARE_STATE_TOPIC][0]
        again = ShareStorage(store._directory)
        started = time.thread_time()
        found = again.load()
        loaded = time.thread_time() - started
        assert found == storage.load()
        record_count = log.log_end_offset - log.log_start_offset
    return Costs(written / (len(writes) * len(keys)) * 1e6, loaded / record_count * 1e6)


def _change(number: int, batch_count: int) -> ShareChange:
    first = number * 2 * batch_count
    batches = tuple(
        ShareBatch(first + 2 * at, first + 2 * at, RecordState.ACKNOWLEDGED, 1) for at in range(batch_count)
    )
    return ShareChange(first, batches, delivery_complete_count=batch_count)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="little work, to see that it runs")
    quick = parser.parse_args().quick
    rows = []
    with scratch_directory(None) as directory:
        for number, shape in enumerate(SHAPES):
            found = [
                measure(f"{directory}/{number}-{at}", shape, _QUICK_UPDATES if quick else _UPDATES)
                for at in range(_QUICK_ROUNDS if quick else _ROUNDS)
            ]
            costs = [format_significant(statistics.median(each)) for each in zip(*found, strict=True)]
            rows.append([f"{shape.updates_per_write:,}", str(shape.batches_per_update), *costs])
        machine = describe_machine(directory)
    print("\n".join(f"{name}: {fact}" for name, fact in machine.items()) + "\n")
    print(format_table(["Updates in a write", "Batches in each", "µs an update", "µs a loaded record"], rows))


if __name__ == "__main__":
    main()
