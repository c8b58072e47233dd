"""``python -m benchmarks.tables``: the table view beside a loop that fills a dict with all records.

Each measurement has its own process, and so its own memory; the ways take turns. The log has half as many
keys as records: each record has a new key or an old one, at random. Rewrites the table of ``docs/tables.md``.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from typing import Any

import logstore
import logstore.partition.reading.arrow
import logstore.partition.reading.latest  # which logstore imports only when needed
from benchmarks.figures import idle_memory_bytes
from benchmarks.measure import ROOT, scratch_directory
from benchmarks.process import describe_machine, peak_memory_bytes
from benchmarks.records import LARGE, SMALL, WrongDataError, row_at
from benchmarks.report import rewrite_region
from benchmarks.text import format_bytes, format_rate, format_ratio, format_table

DOCUMENT = ROOT / "docs" / "tables.md"

_TOPIC = "records"
_LOG_BYTES = 500_000_000
_QUICK_LOG_BYTES = 5_000_000
_ROUNDS = 5
_QUICK_ROUNDS = 1
_BATCH_RECORDS = 1_000
_RECORD_BYTES = {SMALL: 127, LARGE: 1052}
"""What a record takes in the log."""

Found = dict[str, float]


def _loop(log: logstore.Log) -> int:
    records: dict[Any, Any] = {}
    for record in log.read():
        records[record.key] = record
    return len(records)


def _dict(log: logstore.Log) -> int:
    return len({record.key: record for record in log.latest()})


def _each(log: logstore.Log) -> int:
    count = 0
    for _ in log.latest():
        count += 1
    return count


def _arrow(log: logstore.Log) -> int:
    return int(log.latest_arrow().read_all().num_rows)


LOOP = "`read()` into a dict"
WAYS: dict[str, Callable[[logstore.Log], int]] = {
    LOOP: _loop,
    "`latest()` into a dict": _dict,
    "`latest()`, one record after the other": _each,
    "`latest_arrow()` into a table": _arrow,
}


def rows(count: int, data: str) -> Iterator[tuple[bytes, bytes, int]]:
    """As many rows, with half as many keys."""
    chance = random.Random(23)
    keys: list[bytes] = []
    for number in range(count):
        key, value, timestamp_ms = row_at(number, data)
        left, new = count - number, count // 2 - len(keys)
        if not keys or chance.random() < new / left:
            keys.append(key)
        else:
            key = chance.choice(keys)
        yield key, value, timestamp_ms


def prepare(directory: str, data: str, size_bytes: int) -> None:
    """A closed store with one log of about so many bytes."""
    with logstore.open(directory) as store:
        log = store.create_topic(_TOPIC, config=logstore.TopicConfig(retention_ms=-1))[0]
        batch = []
        for row in rows(size_bytes // _RECORD_BYTES[data], data):
            batch.append(row)
            if len(batch) == _BATCH_RECORDS:
                log.extend(batch)
                batch.clear()
        log.extend(batch)


def measure(directory: str, way: str) -> Found:
    """In this process.

    Raises:
        WrongDataError: it found a wrong number of keys.
    """
    with logstore.open(directory, read_only=True) as store:
        log = store[_TOPIC][0]
        count = log.log_end_offset
        idle = idle_memory_bytes()
        started = perf_counter()
        keys = WAYS[way](log)
        seconds = perf_counter() - started
        if keys != count // 2:
            raise WrongDataError(f"{keys} keys of {count} records")
        return {
            "records": count,
            "bytes": log.size_bytes,
            "seconds": seconds,
            "memory_bytes": peak_memory_bytes() - idle,
        }


def _measure_elsewhere(directory: str, way: str) -> Found:
    command = [sys.executable, "-m", "benchmarks.tables", "--directory", directory, "--way", way]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    found: Found = json.loads(done.stdout)
    return found


def measure_all(directory: str, size_bytes: int, rounds: int) -> dict[tuple[str, str], list[Found]]:
    """By data and way, one for each round."""
    found: dict[tuple[str, str], list[Found]] = {}
    for number, data in enumerate((SMALL, LARGE)):
        place = f"{directory}/{number}"
        prepare(place, data, size_bytes)
        for _ in range(rounds):
            for way in WAYS:
                found.setdefault((data, way), []).append(_measure_elsewhere(place, way))
    return found


def format_found(found: dict[tuple[str, str], list[Found]], machine: dict[str, str]) -> str:
    """Medians; ratios are those of the rounds."""
    lines = []
    for (data, way), rounds in found.items():
        loops = found[data, LOOP]
        ratios = [loop["seconds"] / one["seconds"] for loop, one in zip(loops, rounds, strict=True)]
        seconds = median(one["seconds"] for one in rounds)
        lines.append(
            [
                data,
                way,
                format_rate(rounds[0]["records"] / seconds),
                format_rate(rounds[0]["bytes"] / seconds) + "B",
                format_ratio(median(ratios)),
                format_bytes(median(one["memory_bytes"] for one in rounds)),
            ]
        )
    titles = ["Values of", "Way", "Records/s", "Log read/s", "Compared with the loop", "Memory"]
    facts = ", ".join(machine[name] for name in ("cpu", "python", "crc32c") if name in machine)
    rounds = next(iter(found.values()))
    size = format_bytes(rounds[0]["bytes"])
    return (
        f"{format_table(titles, lines)}\n"
        f"Measured by `python -m benchmarks.tables` on {facts}: logs of {size}, keys of 16 bytes, half as "
        f"many keys as records, batches of {_BATCH_RECORDS:,}. Medians of {len(rounds)}, each in a process "
        "of its own, files in the page cache. Memory is what the peak adds to the idle process."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small logs, once; prints and writes nothing")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.directory, arguments.way)))
        return
    size_bytes, rounds = (_QUICK_LOG_BYTES, _QUICK_ROUNDS) if arguments.quick else (_LOG_BYTES, _ROUNDS)
    with scratch_directory(arguments.directory) as directory:
        machine = describe_machine(directory)
        text = format_found(measure_all(directory, size_bytes, rounds), machine)
    if arguments.quick:
        print(text)
        return
    rewrite_region(DOCUMENT, text)


if __name__ == "__main__":
    main()
