"""One changed byte anywhere in a log: columns hold the right rows or the read is refused and says where."""

from __future__ import annotations

import os

import pytest

from logstore.errors import CorruptionError
from tests.partition.helpers import is_located
from tests.partition.test_byte_flips import BATCHES, EPOCH, changed_byte, make_log, sampled

pytest.importorskip("pyarrow")

from tests.partition.helpers_arrow import records_in


@pytest.fixture(params=["active", "sealed"])
def partition(request, tmp_path):
    made = make_log(tmp_path / "t-0", with_next_segment=request.param == "sealed")
    yield made
    made.crash()


def rows_before_refusal(partition, expected, start=0):
    """The rows that a read gives, all right, and whether it then was refused."""
    found, is_refused = 0, False
    try:
        for batch in partition.log.iterate_arrow(start, batch_rows=16):
            rows = records_in(batch)
            assert rows == expected[start + found : start + found + len(rows)]
            found += len(rows)
    except CorruptionError as error:
        is_refused = is_located(error, partition.file())
    assert is_refused or found == len(expected) - start
    return found, is_refused


def flip_each(partition, places):
    data = partition.file().read_bytes()
    expected = list(partition.log.read())
    refused = 0
    descriptor = os.open(partition.file(), os.O_RDWR)
    try:
        for position in places:
            with changed_byte(descriptor, data, position):
                refused += rows_before_refusal(partition, expected)[1]
                if position % 16 < 2:
                    rows_before_refusal(partition, expected, position * len(expected) // len(data) // 2)
    finally:
        os.close(descriptor)
    return refused


def test_a_changed_byte_is_never_a_wrong_row(partition):
    places = sampled(partition, 211)
    assert flip_each(partition, places) == len(places) - BATCHES * len(EPOCH)


@pytest.mark.slow
def test_every_changed_byte_is_never_a_wrong_row(partition):
    size = partition.file().stat().st_size
    assert flip_each(partition, range(size)) == size - BATCHES * len(EPOCH)
