"""What makes processes machines of their own: a disk that fails or loses what was not flushed, and a wall
clock that jumps. The process that uses these has a mount namespace of its own."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

from tests.kernel.disks import MIB, LoopDisk, missing_for

DISK_BYTES = 1536 * MIB
"""Of an image that takes only what is written."""
_KIND = "ext4"
_SHIFT = Path(__file__).parent / "clock_shift.c"


class Disk:
    """Of one node: a file system behind a loop device where the machine has them, else one in memory."""

    def __init__(self, path):
        path.mkdir(parents=True)
        self._disk = None
        self.path = path
        if not missing_for(_KIND):
            self._disk = LoopDisk(os.fspath(path), _KIND, DISK_BYTES)
            self.path = Path(self._disk.path)
        else:
            size = ("-o", f"size={DISK_BYTES}")
            subprocess.run(["mount", "-t", "tmpfs", *size, "none", os.fspath(path)], check=True)

    @property
    def can_fail(self):
        return self._disk is not None

    def fail(self):
        """Nothing can be read or written any more, and what was not flushed is lost."""
        self._disk.shut_down()

    def heal(self):
        """Once nobody uses it."""
        self._disk.power_up()


class Clock:
    """The wall clock of one node."""

    def __init__(self, path, library):
        self._path = path
        self.variables = {"LD_PRELOAD": os.fspath(library), "CLOCK_SHIFT": os.fspath(path)}
        self.shift(0)

    def shift(self, seconds):
        """By so much it is wrong from now on."""
        with open(self._path, "r+b" if self._path.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


def clock_library(path):
    """What shifts clocks; None without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = path / "clock_shift.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SHIFT, "-ldl"], check=True)
    return library
