"""Hold what the kernel sees of a process against what the library's seam was asked for.

    python -m tests.kernel.system_calls /tmp/store

Runs itself once more under strace, which follows all threads. The child uses a store in every way on files
that count; strace sees every system call that names one of its paths or descriptors.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from typing import Any

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.files import File, Lock, OsFile, OsFiles
from logstore.model import Bytes
from logstore.testing import ManualClock
from tests.partition.helpers_rules import batch, write_placed

_CALLS = "trace=file,desc"
_LINE = re.compile(r"^\d+ +(\w+)\((.*)")
_CHANGES = {
    "pwritev": "write", "pwrite64": "write", "pwritev2": "write", "write": "write", "writev": "write",
    "ftruncate": "truncate", "truncate": "truncate",
    "fdatasync": "flush", "fsync": "flush directory", "sync_file_range": "strange", "sync": "strange",
    "rename": "rename", "renameat": "rename", "renameat2": "rename",
    "unlink": "remove", "unlinkat": "remove", "rmdir": "remove directory",
    "mkdir": "make directory", "mkdirat": "make directory",
    "link": "link", "linkat": "link", "fallocate": "strange", "symlink": "strange",
    "chmod": "strange", "fchmod": "strange", "chown": "strange", "fchown": "strange",
    "utimensat": "set time", "copy_file_range": "strange", "sendfile": "strange",
}  # fmt: skip
"""What the calls that change something are to the seam."""


class CountedFile(OsFile):
    __slots__ = ("counts",)

    counts: Counter[str]

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        self.counts["write"] += 1
        super().write_at(position, buffers)

    def truncate(self, size_bytes: int) -> None:
        self.counts["truncate"] += 1
        super().truncate(size_bytes)

    def flush(self) -> None:
        self.counts["flush"] += 1
        super().flush()


class CountedFiles(OsFiles):
    """Counts what changes the disk."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        opened = super().open(path, write=write, create=create)
        assert isinstance(opened, OsFile)
        file = CountedFile(path, opened._descriptor)
        opened._descriptor = -1
        file.counts = self.counts
        return file

    def lock(self, path: str, *, timeout_ms: int = 0) -> Lock:
        """Who takes the lock writes his mark and ends the file there, and empties it when he lets go."""
        self.counts["write"] += 1
        self.counts["truncate"] += 2
        return super().lock(path, timeout_ms=timeout_ms)


def _count(method: str, name: str) -> None:
    plain = getattr(OsFiles, method)

    def counted(self: CountedFiles, *arguments: Any) -> Any:
        self.counts[name] += 1
        return plain(self, *arguments)

    setattr(CountedFiles, method, counted)


for _method in ("rename", "link", "remove", "remove_directory", "flush_directory"):
    _count(_method, _method.replace("_", " "))
_count("set_modified_ms", "set time")


def use_everything(path: str) -> Counter[str]:
    """A store's life: made, filled, rolled, truncated, trimmed, closed, opened after a crash, deleted."""
    files, clock = CountedFiles(), ManualClock()
    topic = TopicConfig(segment_bytes=2_000, retention_bytes=5_000, compression_type="zstd")
    for turn in range(2):
        store = logstore.open(path, config=StoreConfig(topic=topic), files=files, clock=clock)
        log = store.require_topic("t", partitions=2)[0]
        for number in range(30):
            log.extend([b"%d" % number + bytes(50)] * 3, flush=number % 7 == 0)
            log.append(b"single")
            clock.advance(200)
            store.run_background()
        places = {
            "base_offset": log.log_end_offset,
            "sequence": turn,
            "leader_epoch": log.leader_epoch,
        }
        write_placed(f"{path}/adopted", batch(b"v"), files=files, **places)
        log.adopt_file(f"{path}/adopted")
        log.truncate_to(log.log_end_offset - 5)
        log.delete_before(log.log_end_offset - 10)
        store.create_topic("u").append(b"v", flush=True)
        store.delete_topic("u")
        store.checkpoint()
        assert len(list(log.read())) <= 10
        store._directory.abandon()
    logstore.open(path, files=files, clock=clock).close()
    return files.counts


def append_durably(path: str) -> None:
    with logstore.open(path, clock=ManualClock()) as store:
        log = store.create_topic("t")[0]
        log.append(b"first", flush=True)
        sys.stdout.flush()
        print("begin", file=sys.stderr, flush=True)
        for _ in range(10):
            log.append(bytes(100), flush=True)
        print("end", file=sys.stderr, flush=True)


def traced(path: str, *options: str) -> tuple[list[str], str]:
    """The trace of a child that does it, and what the child printed."""
    with tempfile.NamedTemporaryFile("r") as trace:
        command = ["strace", "-f", "-y", "-s", "64", "-e", _CALLS, "-o", trace.name]
        command += [sys.executable, "-m", "tests.kernel.system_calls", path, "--child", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return trace.read().splitlines(), done.stdout


def changes_in(lines: list[str], path: str) -> list[tuple[str, str]]:
    """(system call, what it is to the seam) of those that change something below ``path``."""
    found = []
    for line in lines:
        match = _LINE.match(line)
        if match and path in match[2] and match[1] in _CHANGES:
            found.append((match[1], _CHANGES[match[1]]))
    return found


def compare(path: str) -> dict[str, Any]:
    lines, printed = traced(path)
    around = path.rpartition("/")[0]  # which is flushed, too, when the store is made
    kernel = Counter(kind for _, kind in changes_in(lines, around))
    seam = Counter(json.loads(printed))
    kernel.pop("make directory", None)  # one call of the seam makes the parents, too
    return {"kernel": dict(kernel), "seam": dict(seam), "strange": ["strange"] * kernel["strange"]}


def durable_appends(path: str) -> dict[str, Any]:
    lines, _ = traced(path, "--appends")
    begin = next(number for number, line in enumerate(lines) if '"begin' in line)
    end = next(number for number, line in enumerate(lines) if '"end' in line)
    return {"calls": [call.rstrip("2") for call, _ in changes_in(lines[begin:end], path)]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--appends", action="store_true")
    parser.add_argument("--child", action="store_true")
    arguments = parser.parse_args()
    if arguments.child and arguments.appends:
        append_durably(arguments.path)
    elif arguments.child:
        print(json.dumps(use_everything(arguments.path)))
    else:
        print(json.dumps((durable_appends if arguments.appends else compare)(arguments.path)))


if __name__ == "__main__":
    main()
