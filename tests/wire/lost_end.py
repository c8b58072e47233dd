"""A store in a process of its own that is killed; what a power cut may take can then be cut off."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_PROGRAM = Path(__file__).with_name("lost_end_program.py")


@contextlib.contextmanager
def serving(path: Path, address: str, values: Sequence[bytes]) -> Iterator[str]:
    """Append the values, one by one. Ends as a killed process does. Gives its address."""
    command = [sys.executable, str(_PROGRAM), str(path), address, *(value.decode() for value in values)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[0]
        finally:
            process.kill()


def lose(path: Path, part: float) -> None:
    """Leave a part of the segment, as a power cut may."""
    log = path / "t-0" / f"{0:020}.log"
    os.truncate(log, round(log.stat().st_size * part))
