"""Running the programs of this folder: small processes without threads, so that forking is cheap and safe."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]


def run_program(
    module: str, *arguments: object, within: Sequence[str] = (), folder: str = "kernel"
) -> dict[str, Any]:
    """The figures that a program prints. ``within``: a command in front of it, as ``unshare -m``."""
    command = [*within, sys.executable, "-m", f"tests.{folder}.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, check=False)
    if done.returncode:
        pytest.fail(f"{done.stderr}\nrun again: {shlex.join(command)}")
    print(module, done.stdout.strip())
    figures = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(figures, dict)
    return figures


@contextlib.contextmanager
def memory_directory() -> Iterator[str]:
    """A directory in memory where there is one: an fsync costs nothing there, and the death of a process
    leaves the same. It stays if the test fails, for a look."""
    path = tempfile.mkdtemp(prefix="logstore-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    yield path
    shutil.rmtree(path)
