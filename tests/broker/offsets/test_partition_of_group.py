"""A group's partition is the one in which Kafka looks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.offsets.topic import java_hash, partition_of

_LINES = (Path(__file__).parents[2] / "format/messages/group_records.txt").read_text().splitlines()
GOLDEN = [
    (bytes.fromhex(name.removeprefix("partition of ")).decode(), *map(int, numbers.split()))
    for name, numbers in (line.split("\t") for line in _LINES if " of " in line)
]
"""Group, its partition of 50, its hash: as Java says (see ``test_group_records``)."""


@pytest.mark.parametrize(("group", "partition", "code"), GOLDEN)
def test_partitions_are_kafkas(group, partition, code):
    assert java_hash(group) == code
    assert partition_of(group, 50) == partition
    assert partition_of(group, 1) == 0


def test_the_hash_that_has_no_absolute_value_is_among_them():
    assert ("polygenelubricants", 0, -(2**31)) in GOLDEN
    assert partition_of("polygenelubricants", 7) == 0  # 2^31 would be in 2


@given(st.text(max_size=30), st.integers(1, 60))
def test_every_group_has_a_partition(group, count):
    assert 0 <= partition_of(group, count) < count
