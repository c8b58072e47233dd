"""The cost of followers of a log, in another process than its writer's: the table in docs/waiting.md.

    python -m benchmarks.idle --page

Followers wait at the end of a log to which nothing is appended, then to which a batch is appended every 10
milliseconds. Measured are the processor time of their processes, as a share of one core, and how long after a
batch was written they had it: once with changes reported by the file system, once without, so that they look
every 2 milliseconds.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import logstore
from logstore.errors import StorageError
from logstore.files import OsFiles

PAGE = Path(__file__).parent.parent / "docs" / "waiting.md"
BEGIN, END = "<!-- idle: begin -->\n", "<!-- idle: end -->\n"
TOLD, LOOKING = "told", "looking"
SECONDS = 5.0
_WARM_UP_SECONDS = 1.0
_BEAT_SECONDS = 0.01


class Setting(NamedTuple):
    """One row of the table."""

    processes: int
    threads: int
    way: str


class Cost(NamedTuple):
    """Of one row."""

    idle_share: float
    """Of one core."""
    busy_share: float
    median_ms: float
    slowest_ms: float
    """Of 100, 99 are not slower."""


# The process that follows -----------------------------------------------------------------------------------


class LookingFiles(OsFiles):
    """The machine's disk, without watches."""

    def watch(self, directories: Sequence[str]) -> NoReturn:
        raise StorageError(errno.EMFILE, os.strerror(errno.EMFILE), directories[0])


def be_follower(path: str, threads: int, way: str) -> None:
    """Follow in so many threads; answer each line with the processor time so far, the end with the delays."""
    store = logstore.open(path, read_only=True, files=LookingFiles() if way == LOOKING else None)
    delays: list[int] = []

    def follow() -> None:
        for record in store["t"][0].follow():
            assert record.value is not None
            delays.append(time.monotonic_ns() - int(record.value))

    for _ in range(threads):
        threading.Thread(target=follow, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(time.process_time(), flush=True)
    print(*delays, flush=True)


# Measuring --------------------------------------------------------------------------------------------------


class Follower:
    """A process that follows."""

    def __init__(self, path: str, setting: Setting) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.idle",
            "--follow",
            path,
            str(setting.threads),
            setting.way,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def seconds(self) -> float:
        """Processor time so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self.hear())

    def end(self) -> list[int]:
        """How long after they were written the follower had the records, in ns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        delays = [int(each) for each in self.hear().split()]
        self._process.stdout.close()
        self._process.wait()
        return delays


def measure(directory: str, setting: Setting, seconds: float) -> Cost:
    with tempfile.TemporaryDirectory(dir=directory) as path, logstore.open(path) as store:
        log = store.require_topic("t")[0]
        followers = [Follower(path, setting) for _ in range(setting.processes)]
        time.sleep(_WARM_UP_SECONDS)
        before = [each.seconds() for each in followers]
        time.sleep(seconds)
        between = [each.seconds() for each in followers]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            log.extend([b"%d" % time.monotonic_ns()])
            time.sleep(_BEAT_SECONDS)
        after = [each.seconds() for each in followers]
        delays = sorted(delay for each in followers for delay in each.end())
    return Cost(
        (sum(between) - sum(before)) / seconds,
        (sum(after) - sum(between)) / seconds,
        statistics.median(delays) / 1e6,
        delays[int(len(delays) * 0.99)] / 1e6,
    )


HEAD = (
    "| Followers | | Idle, share of a core | 100 batches a second | median ms | 99 of 100, ms |\n"
    "|---|---|---:|---:|---:|---:|\n"
)


def row_of(setting: Setting, cost: Cost) -> str:
    of = "a process each" if setting.threads == 1 else "threads of one process"
    who = "1" if setting.processes * setting.threads == 1 else f"{setting.processes * setting.threads}, {of}"
    shares = f"{cost.idle_share:.2%} | {cost.busy_share:.1%}"
    return f"| {who} | {setting.way} | {shares} | {cost.median_ms:.1f} | {cost.slowest_ms:.1f} |\n"


def write_page(table: str) -> None:
    """Put the table between the marks on the page."""
    text = PAGE.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    assert pattern.search(text), f"{PAGE} has no place for the table"
    PAGE.write_text(pattern.sub(lambda _: BEGIN + table + END, text))


def main() -> None:
    if sys.argv[1:2] == ["--follow"]:
        path, thread_count, followed_way = sys.argv[2:]
        be_follower(path, int(thread_count), followed_way)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--disk", default=tempfile.gettempdir())
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--page", action="store_true", help="write the table into docs/waiting.md")
    arguments = parser.parse_args()
    table = HEAD
    print(HEAD, end="")
    for processes, threads in ((1, 1), (8, 1), (1, 8)):
        for way in (LOOKING, TOLD):
            setting = Setting(processes, threads, way)
            row = row_of(setting, measure(arguments.disk, setting, arguments.seconds))
            print(row, end="", flush=True)
            table += row
    if arguments.page:
        write_page(table)


if __name__ == "__main__":
    main()
