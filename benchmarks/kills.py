"""How many single appends a kill loses, compared with the table in docs/guarantees.md.

    python -m benchmarks.kills --disk /var/tmp --kills 20 --page

A program appends to each partition of a store in turn, and is killed at a random moment. It notes in shared
memory when each append returned. The files then show which appends are lost, and how old the oldest of them
was at the kill. ``linger_ms`` limits that age.

There are two programs: one appends as long as it lives, the other appends once to each partition and then
waits. There are two disks: the machine's, and one in memory on which every fsync takes a given number of
milliseconds.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import logstore
from logstore.files import OsFile, OsFiles

PAGE = Path(__file__).parent.parent / "docs" / "guarantees.md"
BEGIN, END = "<!-- kills: begin -->\n", "<!-- kills: end -->\n"
LINGER_MS = 5
PARTITION_COUNTS = (1, 100, 5_000)
SLOW_MS = 30
TOPIC = "t"

_HEAD = struct.Struct("<q")  # how many appends were noted
_NOTE = struct.Struct("<qqq")  # partition, offset, when it had returned in ns
_BATCH = struct.Struct(">qi11xi")  # base offset, length, last offset delta
_BATCH_OVERHEAD_BYTES = 12
_MAX_NOTES = 4_000_000


class Setting(NamedTuple):
    """One row of the table."""

    partition_count: int
    slow_ms: int
    program: str


class Loss(NamedTuple):
    """The loss of one kill."""

    appended_count: int
    lost_count: int
    oldest_ms: float
    """How long before the kill the oldest lost append had returned; 0 if none is lost."""
    is_suffix: bool
    """Whether in each partition only the newest are lost."""


# The program that is killed ---------------------------------------------------------------------------------


def slow_down(slow_ms: int) -> None:
    """Let every fsync of this process take longer."""

    def slowly(flush: Callable[..., None]) -> Callable[..., None]:
        def wait_and_flush(*arguments: Any) -> None:
            time.sleep(slow_ms / 1000)
            flush(*arguments)

        return wait_and_flush

    OsFile.flush = slowly(OsFile.flush)  # type: ignore[method-assign]
    OsFiles.flush_directory = slowly(OsFiles.flush_directory)  # type: ignore[method-assign]


def be_killed(path: str, notes_path: str, setting: Setting) -> None:
    """Append until the kill comes."""
    with open(notes_path, "r+b") as file:
        notes = mmap.mmap(file.fileno(), 0)
    store = logstore.open(path)
    topic = store.require_topic(TOPIC, partitions=setting.partition_count)
    logs = [topic[number] for number in range(setting.partition_count)]
    if setting.slow_ms:
        slow_down(setting.slow_ms)
    print("ready", flush=True)
    for count, (number, offset) in enumerate(_appends(logs, setting.program == "once")):
        if count == _MAX_NOTES:
            break
        _NOTE.pack_into(notes, _HEAD.size + count * _NOTE.size, number, offset, time.monotonic_ns())
        _HEAD.pack_into(notes, 0, count + 1)
    if setting.program == "once":
        print("done", flush=True)
    time.sleep(60)


def _appends(logs: list[logstore.Log], is_once: bool) -> Iterator[tuple[int, int]]:
    value = b"v" * 100
    while True:
        for number, log in enumerate(logs):
            yield number, log.append(value)
        if is_once:
            return


# The kill ---------------------------------------------------------------------------------------------------


def kill_one(path: str, setting: Setting, chance: random.Random) -> Loss:
    """Let a program live for a moment, kill it, and check what it has left."""
    with tempfile.NamedTemporaryFile(dir=shared_memory()) as notes:
        notes.truncate(_HEAD.size + _MAX_NOTES * _NOTE.size)
        arguments = [str(field) for field in setting]
        command = [sys.executable, "-m", "benchmarks.kills", "--victim", path, notes.name, *arguments]
        victim = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert victim.stdout is not None
        try:
            assert victim.stdout.readline() == b"ready\n"
            if setting.program == "once":
                assert victim.stdout.readline() == b"done\n"
                time.sleep(chance.uniform(0, 0.05))
            else:
                time.sleep(chance.uniform(0.05, 1.0))
            killed_ns = time.monotonic_ns()
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            victim.stdout.close()
        return loss_of(path, notes.name, killed_ns)


def shared_memory() -> str | None:
    """A disk in memory; None, for the usual place, if there is none."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def loss_of(path: str, notes_path: str, killed_ns: int) -> Loss:
    """Compare the notes with the files."""
    data = Path(notes_path).read_bytes()
    (count,) = _HEAD.unpack_from(data)
    notes = list(_NOTE.iter_unpack(data[_HEAD.size : _HEAD.size + count * _NOTE.size]))
    ends = {number: end_of(f"{path}/{TOPIC}-{number}") for number in {note[0] for note in notes}}
    lost = [note for note in notes if note[1] >= ends[note[0]]]
    killed_ns = max(killed_ns, notes[-1][2])  # it lives on for a moment
    oldest_ns = min((note[2] for note in lost), default=killed_ns)
    return Loss(count, len(lost), (killed_ns - oldest_ns) / 1e6, _is_suffix(notes, ends))


def _is_suffix(notes: list[tuple[int, int, int]], ends: dict[int, int]) -> bool:
    """Whether only the newest are lost; and no record is there that was not appended, except for the append
    in progress."""
    last: dict[int, int] = {}
    for number, offset, _ in notes:
        last[number] = offset
    return all(end <= last[number] + 2 for number, end in ends.items())


def end_of(directory: str) -> int:
    """The offset after the last batch in a partition's directory, by the batches' headers."""
    newest = max(Path(directory).glob("*.log"))
    data = newest.read_bytes()
    position, end = 0, int(newest.stem)
    while position + _BATCH.size <= len(data):
        base, length, delta = _BATCH.unpack_from(data, position)
        position += _BATCH_OVERHEAD_BYTES + length
        if position > len(data):
            break
        end = base + delta + 1
    return end


# The table --------------------------------------------------------------------------------------------------


def measure(disk: str | None, setting: Setting, kills: int, seed: int = 1) -> list[Loss]:
    """Kill programs on one directory, one after the other."""
    path = tempfile.mkdtemp(prefix="logstore-kills-", dir=disk)
    try:
        chance = random.Random(seed)
        return [kill_one(path, setting, chance) for _ in range(kills)]
    finally:
        shutil.rmtree(path)


def row_of(setting: Setting, losses: list[Loss]) -> str:
    appended = statistics.median([loss.appended_count for loss in losses])
    lost = statistics.median([loss.lost_count for loss in losses])
    ages = sorted(loss.oldest_ms for loss in losses)
    slow = f"fsync takes {setting.slow_ms} ms" if setting.slow_ms else "real"
    return (
        f"| {setting.partition_count:,} | {setting.program} | {slow} | {len(losses)} | {appended:,.0f} | "
        f"{lost:,.0f} | {statistics.median(ages):.1f} | {ages[-1]:.1f} |\n"
    )


HEAD = (
    "| Partitions | Program | Disk | Kills | Appends | Lost | Oldest lost, median ms | largest ms |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def settings(partition_counts: list[int], slow_ms: int) -> list[Setting]:
    return [
        Setting(count, slow, program)
        for count in partition_counts
        for slow in (0, slow_ms)
        for program in ("once", "on and on")
    ]


def write_page(table: str) -> None:
    """Put the table between the marks on the page."""
    text = PAGE.read_text()
    pattern = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    assert pattern.search(text), f"{PAGE} has no place for the table"
    PAGE.write_text(pattern.sub(lambda _: BEGIN + table + END, text))


def main() -> None:
    if sys.argv[1:2] == ["--victim"]:
        path, notes, count, slow_ms, program = sys.argv[2:]
        be_killed(path, notes, Setting(int(count), int(slow_ms), program))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--disk", default=tempfile.gettempdir())
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--partitions", type=int, nargs="+", default=list(PARTITION_COUNTS))
    parser.add_argument("--slow-ms", type=int, default=SLOW_MS)
    parser.add_argument("--page", action="store_true", help="write the table into docs/guarantees.md")
    arguments = parser.parse_args()
    table = HEAD
    print(HEAD, end="")
    for setting in settings(arguments.partitions, arguments.slow_ms):
        disk = shared_memory() if setting.slow_ms else None
        losses = measure(disk or arguments.disk, setting, arguments.kills)
        assert all(loss.is_suffix for loss in losses)
        row = row_of(setting, losses)
        print(row, end="", flush=True)
        table += row
    if arguments.page:
        write_page(table)


if __name__ == "__main__":
    main()
