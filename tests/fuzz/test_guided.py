"""Guided fuzzing, in `make soak`: each reader gets a tenth of ``LOGSTORE_FUZZ_SECONDS``, 60 by default."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time

import pytest

from tests.figures import report
from tests.fuzz.readers import READERS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed"),
]


@pytest.mark.parametrize("name", [*READERS, "directory"])
def test_guided(name, tmp_path):
    seconds = int(os.environ.get("LOGSTORE_FUZZ_SECONDS", "600")) // 10
    seed = int.from_bytes(os.urandom(3), "big") + 1
    began = time.monotonic()
    arguments = (name, "--seconds", str(seconds), "--seed", str(seed), "--found", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.guided", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds * 3 + 120,
    )
    failures = [path.read_bytes() for path in tmp_path.glob("failed-*")]
    assert done.returncode == 0, (failures, done.stdout[-3000:], done.stderr[-3000:])
    tried = int(re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)[1])
    assert tried > 100 * (name != "directory") * seconds
    found = len(list(tmp_path.iterdir()))
    report(
        f"fuzz/guided/{name}",
        count=tried,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"seed {seed}, {found} inputs that reached something new",
    )
