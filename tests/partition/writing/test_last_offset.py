"""A log that has the largest offset of all is full: appends are refused, and everything else works."""

import struct

import pytest

from logstore import Log
from logstore.errors import OffsetOutOfRangeError
from logstore.partition.writing.growth import MAX_OFFSET
from tests.partition.helpers_rules import values_of

APPENDS = {
    "append": lambda log: log.append(b"too many"),
    "append and flush": lambda log: log.append(b"too many", flush=True),
    "append what is copied": lambda log: log.append(bytearray(b"too many")),
    "append a large one": lambda log: log.append(b"x" * 300_000),
    "extend": lambda log: log.extend([b"too many"]),
}


@pytest.fixture
def log(tmp_path):
    """A log with room for two more records."""
    with Log.open(tmp_path / "u-0") as other:
        other.extend([b"a"])
        batch = bytes(other.fetch(0).data)
    with Log.open(tmp_path / "t-0") as log:
        log.append_replicated(struct.pack(">q", MAX_OFFSET - 3) + batch[8:])
        yield log


@pytest.mark.parametrize("append", APPENDS.values(), ids=APPENDS)
def test_what_has_no_offset_is_refused_at_once(log, append):
    """Gathered, it could never be written. Then nothing else was: no flush, no deletion, no close."""
    assert [log.append(b"b"), log.append(b"c")] == [MAX_OFFSET - 2, MAX_OFFSET - 1]
    with pytest.raises(OffsetOutOfRangeError, match="t-0 is full for good: append to another partition"):
        append(log)
    log.flush()
    assert values_of(log) == [b"a", b"b", b"c"]
    assert log.delete_before(MAX_OFFSET - 1) == MAX_OFFSET - 1
    assert values_of(log) == [b"c"]
