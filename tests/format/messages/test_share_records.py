"""The records of ``__share_group_state`` are Kafka's, byte for byte.

``share_records.txt`` is what the classes of Kafka 4.4 print: ``tests/interop/ShareRecords.java``, which an
interop test runs again.
"""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.format.messages.share_records import (
    ShareBatch,
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    decode_share_key,
    decode_share_snapshot,
    decode_share_update,
    encode_share_key,
    encode_share_snapshot,
    encode_share_update,
)

KEY = ShareKey("grüße", uuid.UUID("01234567-89ab-cdef-1122-334455667788"), 3)
SNAPSHOT = ShareSnapshot(
    snapshot_epoch=70_000,
    state_epoch=2,
    leader_epoch=5,
    start_offset=1234567890123,
    create_timestamp_ms=1_700_000_000_000,
    write_timestamp_ms=1_700_000_000_001,
    batches=(ShareBatch(1234567890123, 1234567890130, 0, 1), ShareBatch(1234567890131, 1234567890131, 4, 5)),
)
UPDATE = ShareUpdate(snapshot_epoch=70_000, batches=(ShareBatch(7, 9, 2, 1),))
DELAYED = ShareUpdate(70_000, -1, -1, 3, (ShareBatch(7, 9, 0, 1, 1_700_000_000_123),))

_LINES = (Path(__file__).parent / "share_records.txt").read_text().splitlines()
GOLDEN = {
    name: (bytes.fromhex(key), bytes.fromhex(value))
    for name, key, value in (line.split("\t") for line in _LINES if not line.startswith("partition"))
}

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
OFFSET = st.integers(0, 2**63 - 1)
BATCHES = st.lists(
    st.builds(
        lambda ends, *rest: ShareBatch(*sorted(ends), *rest),
        st.tuples(OFFSET, OFFSET),
        st.integers(-128, 127),
        INT16,
        INT64,
    ),
    max_size=5,
).map(tuple)


@pytest.mark.parametrize(
    ("name", "value"),
    [("snapshot", SNAPSHOT), ("counted snapshot", SNAPSHOT._replace(delivery_complete_count=1))],
)
def test_a_snapshot_is_encoded_as_kafka_does(name, value):
    assert (encode_share_key(KEY, is_snapshot=True), encode_share_snapshot(value)) == GOLDEN[name]
    assert decode_share_snapshot(GOLDEN[name][1]) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("update", UPDATE),
        ("counted update", UPDATE._replace(delivery_complete_count=3)),
        ("delayed update", DELAYED),
    ],
)
def test_an_update_is_encoded_as_kafka_does(name, value):
    assert (encode_share_key(KEY, is_snapshot=False), encode_share_update(value)) == GOLDEN[name]
    assert decode_share_update(GOLDEN[name][1]) == value


def test_the_keys():
    assert decode_share_key(GOLDEN["snapshot"][0]) == (KEY, True)
    assert decode_share_key(GOLDEN["update"][0]) == (KEY, False)
    assert decode_share_key(GOLDEN["tombstone"][0]) == (KEY, True)
    assert decode_share_key(b"\0\2" + GOLDEN["update"][0][2:]) is None


@given(st.builds(ShareKey, st.text(max_size=20), st.uuids(), INT32), st.booleans())
def test_any_key_comes_back(key, is_snapshot):
    assert decode_share_key(encode_share_key(key, is_snapshot=is_snapshot)) == (key, is_snapshot)


@given(st.builds(ShareSnapshot, INT32, INT32, INT32, INT64, INT32, INT64, INT64, BATCHES))
def test_any_snapshot_comes_back(value):
    assert decode_share_snapshot(encode_share_snapshot(value)) == value


@given(st.builds(ShareUpdate, INT32, INT32, INT64, INT32, BATCHES))
def test_any_update_comes_back(value):
    assert decode_share_update(encode_share_update(value)) == value


DECODERS = {
    "snapshot": decode_share_snapshot,
    "counted snapshot": decode_share_snapshot,
    "update": decode_share_update,
    "delayed update": decode_share_update,
}


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_cut_short_is_refused(name):
    key, value = GOLDEN[name]
    for length in range(len(value)):
        with pytest.raises(CorruptionError):
            DECODERS[name](value[:length])
    for length in range(len(key)):
        with pytest.raises(CorruptionError):
            decode_share_key(key[:length])


@given(
    st.sampled_from(sorted(DECODERS)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))),
    st.data(),
)
def test_hostile_bytes_are_refused_or_read(name, changes, data):
    """Whatever the bytes: one of the two errors, or a value that can be written."""
    key, value = (bytearray(each) for each in GOLDEN[name])
    for at, byte in changes:
        value[at % len(value)] = byte
        key[at % len(key)] = byte
    with contextlib.suppress(CorruptionError, UnsupportedVersionError):
        found = DECODERS[name](bytes(value) + data.draw(st.binary(max_size=4)))
        encode = encode_share_snapshot if isinstance(found, ShareSnapshot) else encode_share_update
        assert DECODERS[name](encode(found)) == found
    with contextlib.suppress(CorruptionError):
        decode_share_key(bytes(key))


@pytest.mark.parametrize("batch", [ShareBatch(5, 4), ShareBatch(-1, 4)])
def test_offsets_that_are_none_are_refused(batch):
    with pytest.raises(CorruptionError, match="has a batch of offsets"):
        decode_share_snapshot(encode_share_snapshot(SNAPSHOT._replace(batches=(batch,))))
    with pytest.raises(CorruptionError, match="has a batch of offsets"):
        decode_share_update(encode_share_update(UPDATE._replace(batches=(batch,))))


def test_a_later_version_is_refused():
    with pytest.raises(UnsupportedVersionError, match="ShareUpdate has version 1"):
        decode_share_update(b"\0\1" + GOLDEN["update"][1][2:])
