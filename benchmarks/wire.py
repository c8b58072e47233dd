"""``python -m benchmarks.wire``: the cost of a batch from the network, in all and while the log is locked.

``append_batch`` takes batches as Kafka's clients encode them, with records of 100 bytes (a key of 16, a value
of 74 of which half compresses, and the overhead), and ``append_replicated`` takes the same batches with their
offsets. The lock is wrapped by one that reads the clock right after taking it and right before releasing it;
the cost of that is measured too, and subtracted. Figures are processor time of the appending thread, the
least of many rounds, so that other work on the machine hardly matters; nothing waits for the disk. Prints a
table.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable, Sequence
from time import thread_time_ns
from typing import Any, NamedTuple

import logstore
from benchmarks.measure import scratch_directory
from benchmarks.process import describe_machine
from benchmarks.text import format_table
from logstore.format.batch import encode_batch, rebase_batch
from logstore.format.compression import Codec

CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
BATCH_RECORDS = (1, 10, 1_000)

_ROUNDS = 40
_QUICK_ROUNDS = 3
_ROUND_RECORDS = 20_000
_ROUND_BATCHES = 1_000
_LOCKS = 1_000
_KEY_BYTES = 16
_RANDOM_BYTES = 37
_TEXT = b"37 bytes that every value has, so far"
_TIMESTAMP_MS = 1_700_000_000_000


class Taken(NamedTuple):
    """Nanoseconds for each record."""

    whole: float
    locked: float


class TimedLock:
    """The lock of a log that measures how long it was held."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._depth = 0
        self._since_ns = 0
        self.held_ns = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._since_ns = thread_time_ns()

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self.held_ns += thread_time_ns() - self._since_ns
        self._lock.release()


def batches_of(record_count: int, batch_records: int, codec: Codec) -> list[bytes]:
    """Batches as a producer sends them, no two alike."""
    chance = random.Random(batch_records)
    batches = []
    for _ in range(0, record_count, batch_records):
        keys = [chance.randbytes(_KEY_BYTES) for _ in range(batch_records)]
        values = [chance.randbytes(_RANDOM_BYTES) + _TEXT for _ in range(batch_records)]
        timestamps = [_TIMESTAMP_MS + number for number in range(batch_records)]
        batches.append(bytes(encode_batch(keys, values, timestamps, codec=codec)))
    return batches


def time_appends(
    log: logstore.Log, batch_records: int, codec: Codec, rounds: int, *, replicated: bool
) -> Taken:
    """The same batches again and again."""
    count = min(_ROUND_RECORDS, _ROUND_BATCHES * batch_records)
    batches = batches_of(count, batch_records, codec)
    if replicated:
        batches = _placed(batches, batch_records)
    guard: Any = log.writer.guard
    lock = guard.lock = TimedLock(guard.lock)
    append: Callable[[bytes], Any] = log.append_replicated if replicated else log.append_batch
    taken, added = [], []
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        log.truncate_to(0)  # the next bytes go into memory that was just used
        lock.held_ns = 0
        started_ns = thread_time_ns()
        for batch in batches:
            append(batch)
        taken.append(Taken(thread_time_ns() - started_ns, lock.held_ns))
        added.append(_time_of_lock(lock))
    gc.unfreeze()
    guard.lock = lock._lock
    return Taken(
        *(
            (min(whole) - min(adds) * len(batches)) / count
            for whole, adds in zip(zip(*taken, strict=True), zip(*added, strict=True), strict=True)
        )
    )


def _time_of_lock(lock: TimedLock) -> Taken:
    """The cost of the measurement for each time that the lock is taken."""
    lock.held_ns = 0
    started_ns = thread_time_ns()
    for _ in range(_LOCKS):
        with lock:
            pass
    whole_ns = thread_time_ns() - started_ns
    return Taken(whole_ns / _LOCKS, lock.held_ns / _LOCKS)


def _placed(batches: Sequence[bytes], batch_records: int) -> list[bytes]:
    """The batches as the leader has them."""
    placed = []
    for number, batch in enumerate(batches):
        copy = bytearray(batch)
        rebase_batch(copy, 0, number * batch_records, 0)
        placed.append(bytes(copy))
    return placed


def time_all(directory: str, rounds: int) -> list[list[str]]:
    """The rows of the table."""
    rows = []
    config = logstore.TopicConfig(retention_ms=-1)
    with logstore.open(directory) as store:
        for replicated in (False, True):
            call = "append_replicated" if replicated else "append_batch"
            for codec in CODECS:
                for batch_records in BATCH_RECORDS:
                    log = store.require_topic(f"{call}-{codec.name}-{batch_records}", config=config)[0]
                    taken = time_appends(log, batch_records, codec, rounds, replicated=replicated)
                    figures = (f"{taken.whole:,.0f} ns", f"{taken.locked:,.0f} ns")
                    rows.append([f"`{call}`", codec.name.lower(), f"{batch_records:,}", *figures])
    return rows


def main(command: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wire", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; says little")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    arguments = parser.parse_args(command)
    with scratch_directory(arguments.directory) as directory:
        machine = describe_machine(directory)
        rows = time_all(f"{directory}/store", _QUICK_ROUNDS if arguments.quick else _ROUNDS)
    print(
        format_table(["", "codec", "records a batch", "per record", "under the lock"], rows, text_columns=2)
    )
    facts = ", ".join(machine[name] for name in ("cpu", "python", "crc32c") if name in machine)
    print(f"Measured by `python -m benchmarks.wire` on {facts}; records of 100 bytes, retention off.")


if __name__ == "__main__":
    main()
