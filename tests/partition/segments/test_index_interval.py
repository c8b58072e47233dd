"""A batch has an index entry where more than the interval lies between it and the last entry: not where it is
just the interval. The same by every way in which an index comes to be, compiled and plain."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.partition.helpers import Partition

BATCHES = 9


def size_of_batch(path: Path) -> int:
    partition = Partition(path)
    partition.write(1)
    partition.close()
    return partition.file().stat().st_size


def indexed(partition: Partition) -> list[int]:
    """The offsets of the entries of the first segment's index."""
    return [relative for relative, _ in struct.iter_unpack(">ii", partition.file(0, ".index").read_bytes())]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("less", [0, 1])
@pytest.mark.parametrize("way", ["appended", "recovered", "rebuilt"])
def test_the_interval_itself_is_not_enough(tmp_path: Path, way: str, batches: int, less: int) -> None:
    interval = size_of_batch(tmp_path / "one") * batches - less
    partition = Partition(tmp_path / "t-0", index_interval_bytes=interval)
    partition.write(BATCHES)
    if way == "recovered":
        partition.crash()
    elif way == "rebuilt":
        partition.close()
        for suffix in (".index", ".timeindex"):
            partition.file(0, suffix).unlink()
        (partition.path / ".kafka_cleanshutdown").unlink()
        (partition.path / "recovery-point-offset-checkpoint").unlink()
    if way != "appended":
        partition.open()
    partition.close()
    step = batches + (0 if less else 1)
    assert indexed(partition) == list(range(step, BATCHES, step))
