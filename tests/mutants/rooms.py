"""Which files mutants are made of, and which tests know most about each."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAST = ("-m", "not slow and not interop and not soak", "--quick")

PYTHON_ROOMS = {
    "src/logstore/format": "tests/format",
    "src/logstore/partition": "tests/partition",
    "src/logstore/logdir": "tests/logdir",
}
"""Folder of modules -> folder of their tests."""

_MOST_KNOWING = {
    "tests/format": ["test_twins", "test_batch"],
    "tests/partition": [
        "writing/test_append",
        "reading/test_read",
        "recovery/test_recovery",
        "writing/test_roll",
        "writing/test_truncate",
        "writing/test_log_start",
    ],
    "tests/logdir": ["test_crashes", "test_background"],
}
"""Test files of a room that go through most of its modules."""

_ALSO = {
    "active": [
        "tests/partition/writing/test_roll.py",
        "tests/partition/writing/test_append.py",
        "tests/partition/writing/test_flush.py",
    ],
    "core": [
        "tests/partition/writing/test_truncate.py",
        "tests/partition/writing/test_log_start.py",
        "tests/issues",
    ],
    "growth": [
        "tests/partition/writing/test_roll.py",
        "tests/partition/writing/test_append.py",
        "tests/partition/writing/test_epochs_in_log.py",
    ],
    "home": ["tests/partition/state/test_home.py", "tests/partition/recovery/test_recovery.py"],
    "tail": ["tests/partition/recovery/test_recovery.py", "tests/partition/recovery/test_damage.py"],
    "directory": ["tests/test_store.py", "tests/test_topic.py", "tests/test_lifecycle.py"],
    "topics": ["tests/test_store.py", "tests/test_lifecycle.py", "tests/logdir/test_crashes.py"],
    "watching": ["tests/partition/watching/test_read_only.py", "tests/partition/watching/test_follow.py"],
    "checking": ["tests/partition/checking/test_verify.py"],
}

_C_TESTS = {
    "append.c": ["tests/partition/encoding/test_encode_rows.py", "tests/partition/writing/test_gathering.py"],
    "columns_decode.c": ["tests/format/test_column_buffers.py", "tests/partition/reading/test_arrow_read.py"],
    "columns_encode.c": ["tests/partition/encoding/test_arrow_extend.py"],
    "index_run.c": ["tests/partition/recovery/test_recovery_runs.py"],
    "keep.c": ["tests/partition/cleaning/test_compaction.py"],
    "latest.c": ["tests/partition/reading/test_latest.py", "tests/partition/reading/test_latest_arrow.py"],
    "lookup.c": ["tests/partition/reading/test_record_at.py"],
    "offset_map.c": ["tests/format/test_offset_map.py", "tests/partition/reading/test_latest_compaction.py"],
    "checksum.c": ["tests/format/test_checksum.py"],
    "crc32c.c": ["tests/format/test_checksum.py", "tests/format/test_crc32c_kernels.py"],
    "record.c": ["tests/format/test_record.py", "tests/partition/test_model.py"],
    "rows.c": ["tests/partition/reading/test_read_runs.py", "tests/partition/reading/test_byte_flips.py"],
    "whole_run.c": ["tests/partition/reading/test_fetch_runs.py"],
    "scan.c": [
        "tests/format/test_compiled_scan.py",
        "tests/partition/recovery/test_recovery.py",
        "tests/partition/encoding/test_wire.py",
    ],
}

_C_ROOM = ["tests/format/test_twins.py", "tests/format/test_hostile_batches.py"]


def python_modules() -> list[Path]:
    """The core's modules that have code, by their paths in the checkout."""
    found = [path for folder in PYTHON_ROOMS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path.relative_to(ROOT) for path in found if path.name != "__init__.py"]


def tests_of_module(module: Path) -> list[str]:
    """Test files: those that are named after the module or import it; else those that know its whole room."""
    folder = next(folder for folder in PYTHON_ROOMS if module.is_relative_to(folder))
    room = PYTHON_ROOMS[folder]
    dotted = ".".join(module.with_suffix("").parts[1:])
    mentions = subprocess.run(
        ["git", "grep", "-l", "-w", dotted, "--", f"{room}/*test_*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    named = [str(path.relative_to(ROOT)) for path in (ROOT / room).rglob(f"test_*{module.stem}*.py")]
    known = list(
        dict.fromkeys([*named, *mentions, *_ALSO.get(module.stem, []), *_ALSO.get(module.parent.name, [])])
    )
    return known or [f"{room}/{name}.py" for name in _MOST_KNOWING[room]]


def tests_of_c_file(path: Path) -> list[str]:
    """The same for a file of the compiled module."""
    return [*_C_TESTS.get(path.name, []), *_C_ROOM]


def copy_checkout(target: Path) -> None:
    """The tracked files as they are now, and the compiled module, in a directory of their own."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if name.startswith(("src/", "tests/", "pyproject", "setup.py", "README")) and (ROOT / name).is_file():
            to = target / name
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes((ROOT / name).read_bytes())
    for built in (ROOT / "src/logstore").glob("_compiled.*so"):
        (target / "src/logstore" / built.name).write_bytes(built.read_bytes())
