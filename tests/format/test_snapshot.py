"""Producer snapshots: golden bytes, and every way in which a file can be wrong."""

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError
from logstore.format.checksum import crc32c
from logstore.format.layout import SNAPSHOT_ENTRY
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot, encode_snapshot

from . import file_vectors as vectors

_STRATEGIES = {
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
}
entries = st.tuples(*[_STRATEGIES[field.type] for field in SNAPSHOT_ENTRY.fields]).map(
    ProducerSnapshotEntry._make
)


def sealed(version, entry_count, body):
    """A snapshot with a good CRC over whatever it holds."""
    covered = struct.pack(">i", entry_count) + body
    return struct.pack(">hI", version, crc32c(covered)) + covered


def test_golden_bytes_both_ways():
    assert encode_snapshot(vectors.SNAPSHOT_ENTRIES) == vectors.SNAPSHOT
    assert decode_snapshot(vectors.SNAPSHOT) == vectors.SNAPSHOT_ENTRIES


def test_empty_snapshot_golden_bytes_both_ways():
    assert encode_snapshot([]) == vectors.EMPTY_SNAPSHOT
    assert decode_snapshot(vectors.EMPTY_SNAPSHOT) == []


def test_fields_follow_the_declared_layout():
    assert [field.removesuffix("_ms") for field in ProducerSnapshotEntry._fields] == [
        field.name for field in SNAPSHOT_ENTRY.fields
    ]


@given(st.lists(entries, max_size=10))
def test_round_trip(entries):
    assert decode_snapshot(encode_snapshot(entries)) == entries


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_any_buffer_decodes(kind):
    assert decode_snapshot(kind(vectors.SNAPSHOT)) == vectors.SNAPSHOT_ENTRIES


@pytest.mark.parametrize("size_bytes", [0, 1, 9])
def test_no_whole_header_is_damage(size_bytes):
    with pytest.raises(CorruptionError, match="no whole header"):
        decode_snapshot(vectors.EMPTY_SNAPSHOT[:size_bytes])


@pytest.mark.parametrize("entry_count", [-1, 0, 2, 2**31 - 1])
def test_count_must_fit_the_size_before_anything_is_built(entry_count):
    with pytest.raises(CorruptionError, match="says it has") as caught:
        decode_snapshot(sealed(1, entry_count, bytes(46)))
    assert caught.value.position == 6


def test_tail_of_an_older_longer_file_is_damage():
    with pytest.raises(CorruptionError):
        decode_snapshot(encode_snapshot([]) + vectors.SNAPSHOT[10:])


def test_wrong_crc_is_damage():
    with pytest.raises(CorruptionError, match="CRC") as caught:
        decode_snapshot(vectors.SNAPSHOT[:-1] + b"\0")
    assert caught.value.position == 2


def test_crc_covers_everything_after_itself():
    for position in range(6, len(vectors.SNAPSHOT)):
        flipped = bytearray(vectors.SNAPSHOT)
        flipped[position] ^= 1
        with pytest.raises(CorruptionError):
            decode_snapshot(flipped)


def test_version_from_the_future_is_unsupported():
    with pytest.raises(UnsupportedVersionError, match="version 2"):
        decode_snapshot(sealed(2, 0, b""))


@pytest.mark.parametrize("version", [0, -1])
def test_version_that_never_was_is_damage(version):
    with pytest.raises(CorruptionError, match="version"):
        decode_snapshot(sealed(version, 0, b""))


@settings(max_examples=200)
@given(st.data())
def test_hostile_snapshots_raise_only_our_errors(data):
    buffer = bytearray(vectors.SNAPSHOT)
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    buffer = buffer[: data.draw(st.integers(0, len(buffer)))]
    with contextlib.suppress(LogstoreError):
        assert encode_snapshot(decode_snapshot(buffer)) == buffer
