"""A stream that expands to 256 MiB takes no more memory than what is allowed, and 4 MiB."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from logstore.format.compression import Codec
from tests.figures import report

BESIDES_BYTES = 4 << 20

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the kernel tells no peak of memory that can be reset"
)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [codec.name for codec in Codec if codec])
def test_a_bomb_takes_what_is_allowed_and_no_more(codec):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.bombs", codec], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    worst = 0
    for bomb, attempt, limit, size, grown, is_refused in rows:
        assert is_refused == (bomb != "all that is allowed"), (bomb, attempt)
        assert grown <= limit + BESIDES_BYTES, f"{bomb} of {size} bytes, {attempt}: {grown} bytes for {limit}"
        worst = max(worst, grown - limit)
    assert len(rows) >= 9
    report(
        f"fuzz/bombs/{codec.lower()}",
        count=len(rows),
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"at most {worst / (1 << 20):.1f} MiB above the limit",
    )
