"""One changed byte anywhere in a log: columns hold the right rows or the read is refused and says where."""

from __future__ import annotations

import os

import pytest

from logstore.errors import CorruptionError
from tests.partition.helpers import is_located
from tests.partition.reading.test_byte_flips import (
    BATCHES,
    EPOCH,
    changed_byte,
    make_log,
    outside_epochs,
    sampled,
)
from tests.rotation import part

pa = pytest.importorskip("pyarrow")

from tests.partition.helpers_arrow import records_in  # noqa: E402

pytestmark = pytest.mark.damaged


@pytest.fixture(params=["active", "sealed"])
def partition(request, tmp_path):
    made = make_log(tmp_path / "t-0", with_next_segment=request.param == "sealed")
    yield made
    made.crash()


def is_refused(partition, expected, start=0):
    """Whether a read is refused after right rows, or all of them are right."""
    found = 0
    try:
        for batch in partition.log.iterate_arrow(start, batch_rows=64):
            rows = pa.Table.from_batches([batch])
            assert rows.equals(expected.slice(start + found, len(rows)))
            found += len(rows)
    except CorruptionError as error:
        return is_located(error, partition.file())
    assert start + found == len(expected)
    return False


def flip_each(partition, places):
    data = partition.file().read_bytes()
    expected = partition.log.read_arrow()
    assert records_in(expected) == list(partition.log.read())
    refused = 0
    descriptor = os.open(partition.file(), os.O_RDWR)
    try:
        for position in places:
            with changed_byte(descriptor, data, position):
                refused += is_refused(partition, expected)
                if position % 16 < 2:
                    is_refused(partition, expected, position * len(expected) // len(data) // 2)
    finally:
        os.close(descriptor)
    return refused


def test_a_changed_byte_is_never_a_wrong_row(partition):
    places = sampled(partition, 211)
    assert flip_each(partition, places) == len(places) - BATCHES * len(EPOCH)


@pytest.mark.slow
def test_every_changed_byte_is_never_a_wrong_row(partition):
    """An eighth of them, the next with each commit."""
    places = part(range(partition.file().stat().st_size), 8)
    assert flip_each(partition, places) == len(outside_epochs(partition, places))
