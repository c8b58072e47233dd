"""Where the tests put their files: in memory, if there is a file system in memory with room enough.

There an fsync costs nothing, and the death of a process leaves the same as on a disk. What a power cut leaves
no test asks of the machine's own disk: ``logstore.testing`` and ``tests/kernel`` make disks for that.

In each turn the files of one test file in eight are on the disk all the same, in another eighth with each
commit; those of tests marked ``disk`` always, and those of all tests with ``--on-disk``, as in ``make soak``.
That is ``tmp_path``; what tests make with ``tempfile`` is in memory. If ``TMPDIR`` is set, all files are
there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rotation import turn

MEMORY = "/dev/shm"
ROOM_BYTES = 4 << 30
"""A run needs less than a quarter of it at any moment: what passes is removed at once."""

ON_DISK_PERIOD = 8
"""In so many turns the files of each test file are on the disk once."""

_DISK = "LOGSTORE_TESTS_DISK"
"""The directory for temporary files that the system gives. Processes that the run starts inherit it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("logstore")
    group.addoption("--on-disk", action="store_true", help="no test has its files in memory")


def pytest_configure(config: pytest.Config) -> None:
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ[_DISK] = tempfile.gettempdir()
        os.environ["TMPDIR"] = MEMORY  # pytest asks for it later, and so do the processes that tests start
        tempfile.tempdir = None


def _has_room(path: str) -> bool:
    try:
        system = os.statvfs(path)
    except OSError:
        return False
    return os.access(path, os.W_OK) and system.f_bavail * system.f_frsize >= ROOM_BYTES


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Pytest's, or a directory on the disk; that also stays if the test fails."""
    if _DISK not in os.environ or not _is_on_disk(request.node, request.config):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix=f"{tmp_path.name}-", dir=os.environ[_DISK])).resolve()
    failed = request.session.testsfailed
    yield path
    if request.session.testsfailed == failed:
        shutil.rmtree(path, ignore_errors=True)


def _is_on_disk(item: pytest.Item, config: pytest.Config) -> bool:
    if config.getoption("--on-disk") or item.get_closest_marker("disk") is not None:
        return True
    return is_turn_on_disk(item.nodeid.partition("::")[0], turn())


def is_turn_on_disk(file: str, number: int | None) -> bool:
    """Whether the tests of a file have their files on the disk in a turn."""
    return number is not None and zlib.crc32(file.encode()) % ON_DISK_PERIOD == number % ON_DISK_PERIOD
