"""Control records: markers both ways, and types from the future."""

import pytest

from logstore.errors import CorruptionError, UsageError
from logstore.format.batch import decode_batch, decode_header
from logstore.format.control import (
    END_MARKER_BYTES,
    ControlRecord,
    ControlType,
    decode_control_record,
    encode_end_marker,
)
from logstore.model import Record
from tests.format.vectors import ABORT_COORDINATOR_EPOCH, ABORT_MARKER

pytestmark = pytest.mark.usefixtures("each_implementation")


def _marker(**changes):
    arguments = {
        "base_offset": 7,
        "producer_id": 7,
        "producer_epoch": 1,
        "control_type": ControlType.ABORT,
        "coordinator_epoch": ABORT_COORDINATOR_EPOCH,
        "timestamp_ms": 2000,
        "partition_leader_epoch": 3,
    }
    return encode_end_marker(**arguments | changes)


def _said(key, value=None):
    return decode_control_record(Record(0, 0, key, value))


def test_the_golden_abort_marker_is_encoded():
    assert _marker() == ABORT_MARKER.encoded
    assert len(_marker()) == END_MARKER_BYTES


def test_the_golden_abort_marker_is_decoded():
    assert decode_control_record(*ABORT_MARKER.records) == ControlRecord(0, 0, ControlType.ABORT, 9)


def test_a_commit_marker_comes_back():
    batch = _marker(control_type=ControlType.COMMIT, coordinator_epoch=-1)
    header = decode_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert header.base_sequence == -1
    (record,) = decode_batch(batch, 0, header)
    assert decode_control_record(record) == (0, 1, ControlType.COMMIT, -1)


@pytest.mark.parametrize("control_type", [kind for kind in ControlType if kind > 1])
def test_other_types_are_named_and_not_interpreted(control_type):
    assert _said(bytes([0, 0, 0, control_type]), b"anything") == (0, control_type, control_type, None)
    with pytest.raises(UsageError, match="does not end a transaction"):
        _marker(control_type=control_type)


@pytest.mark.parametrize("code", [-1, 7, 32767])
def test_an_unknown_type_is_read_and_left_to_the_caller(code):
    assert _said(b"\0\0" + code.to_bytes(2, "big", signed=True)) == (0, code, None, None)


def test_a_later_version_is_read_as_the_first():
    assert _said(b"\0\x05\0\0" + b"more", b"\0\x05\0\0\0\x09" + b"more") == (5, 0, ControlType.ABORT, 9)


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_damaged_key(key):
    with pytest.raises(CorruptionError):
        _said(key, b"\0" * 6)


@pytest.mark.parametrize("value", [None, b"", b"\0" * 5, b"\xff\xff\0\0\0\0"])
def test_a_damaged_marker_value(value):
    with pytest.raises(CorruptionError):
        _said(b"\0\0\0\x01", value)


@pytest.mark.parametrize("field", ["coordinator_epoch", "producer_id", "base_offset"])
def test_a_number_that_does_not_fit_is_refused(field):
    with pytest.raises(UsageError):
        _marker(**{field: 1 << 70})
