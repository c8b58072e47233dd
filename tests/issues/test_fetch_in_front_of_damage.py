"""A fetch gave nothing of the good batches in front of a damaged one.

It looked at the batch behind the last that it took and raised what was wrong with that; rows and columns give
all that is in front of damage first. A consumer that fetches stood still one batch too early, or many,
however small a piece it asked for.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.partition.helpers import Partition

from logstore.errors import CorruptionError

pytestmark = pytest.mark.damaged


@pytest.mark.parametrize("max_bytes", [1, 10**6])
def test_a_fetch_gives_what_is_in_front_of_damage(tmp_path: Path, max_bytes: int) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(6, batch=2)
    position = partition.corrupt_batch(2)
    log, at, found = partition.log, 0, b""
    while at < 4:
        fetched = log.fetch(at, max_bytes=max_bytes)
        found, at = found + fetched.data, fetched.next_offset
    assert found == partition.file().read_bytes()[:position]
    with pytest.raises(CorruptionError) as raised:
        log.fetch(at, max_bytes=max_bytes)
    assert raised.value.position == position
    partition.crash()
