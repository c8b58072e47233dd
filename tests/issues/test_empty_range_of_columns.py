"""Reading an empty range as columns read the batch at its place, and raised what was wrong with it.

Rows look at nothing where nothing is asked for. A caller at the end of what it may see failed over damage
that was not in its way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.partition.helpers import Partition

pytestmark = pytest.mark.damaged


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_an_empty_range_has_no_columns_and_no_damage(tmp_path: Path, offset: int) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(6, batch=2)
    partition.corrupt_batch(0)
    partition.corrupt_batch(1)
    assert list(partition.log.read(offset, offset)) == []
    assert partition.log.read_arrow(offset, offset).num_rows == 0
    partition.crash()
