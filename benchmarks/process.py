"""What the operating system says about a process, a machine and a file system."""

from __future__ import annotations

import mmap
import os
import platform
import re
import resource
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.contenders import (
    ARROW,
    ARROW_ROWS,
    LOGSTORE,
    PEERS,
    ROCKSDICT,
    ROCKSDICT_ZSTD,
    SQLITE,
    SQLITE_TIME,
    contender_class,
    is_available,
)

_KIB = 1024


def resident_memory_bytes() -> int:
    """The memory of the process now; its peak if /proc does not tell."""
    return _status_bytes("VmRSS") or _peak_by_usage()


def peak_memory_bytes() -> int:
    """The peak memory so far. Uses ``ru_maxrss`` only without /proc, because a child inherits it."""
    return _status_bytes("VmHWM") or _peak_by_usage()


def _peak_by_usage() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB


def _status_bytes(field: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * _KIB if found else None


def describe_machine(directory: str) -> dict[str, str]:
    """What a reader needs to judge the figures: machine, versions, date and commit."""
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "processor cache": _cache_sizes(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB",
        "file system": _file_system(directory),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    facts |= _describe_build()
    for name in (LOGSTORE, *PEERS):
        if is_available(name) and (version := contender_class(name).version()) != "-":
            facts.setdefault(_LIBRARIES.get(name, name), version)
    return facts


_LIBRARIES = {
    SQLITE_TIME: SQLITE,
    ROCKSDICT_ZSTD: ROCKSDICT,
    ARROW: "pyarrow",
    ARROW_ROWS: "pyarrow",
}
"""Those whose library has another name, or is another one's too."""


def _describe_build() -> dict[str, str]:
    """Whether the compiled loops are in use: without them every ratio is different."""
    from logstore import build_info

    build = build_info()
    loops = "compiled" if build.is_compiled else "plain"
    return {"loops": f"{loops}: {build.reason}", "crc32c": build.crc32c}


def _cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _cache_sizes() -> str:
    """Of the first core, by level; instructions left out."""
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = (Path(index, name).read_text().strip() for name in ("type", "level", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def _commit() -> str:
    """The commit that is checked out, and whether the tree differs from it."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
        changes = subprocess.run(
            [*git, "status", "--porcelain", "--", "../src"], capture_output=True, text=True
        )
    except OSError:
        return "unknown"
    if head.returncode:
        return "unknown"
    return head.stdout.strip() + (" and changes" if changes.stdout.strip() else "")


def _file_system(directory: str) -> str:
    """The type of the file system that holds the directory; flushes on a ``tmpfs`` would cost nothing."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    path = os.path.realpath(directory) + "/"
    holding = [(point, kind) for _, point, kind, *_ in mounts if path.startswith(point.rstrip("/") + "/")]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else "unknown"


def touch_free_memory() -> None:
    """Write to most of the free memory once, and give it back.

    A virtual machine gets its memory from the host at the first touch, which takes ten times as long as the
    write itself. A contender measured on untouched pages would pay for that.
    """
    free_bytes = _free_memory_bytes() * _TOUCHED_SHARE // 100
    if not free_bytes:
        return
    with mmap.mmap(-1, free_bytes) as memory:
        for position in range(0, free_bytes, mmap.PAGESIZE):
            memory[position] = 1


_TOUCHED_SHARE = 60  # percent


def _free_memory_bytes() -> int:
    """Memory that is not used, not even as a cache; 0 if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:"))
