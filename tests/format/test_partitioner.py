"""Keys meet in the partition where Kafka's clients put them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import UsageError
from logstore.format import loops, partitioner
from logstore.format.partitioner import murmur2, partition_for_key

from .file_vectors import MURMUR2


@pytest.mark.parametrize(("key", "expected"), MURMUR2)
def test_murmur2_equals_kafkas(key, expected):
    assert murmur2(key) == expected


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_murmur2_takes_any_buffer(kind):
    assert murmur2(kind(b"foobar")) == -790332482


def _murmur2_step_by_step(key):
    """The same hash as it is usually told: four bytes at a time, then the rest from its last byte down."""
    h = 0x9747B28C ^ len(key)
    for at in range(0, len(key) // 4 * 4, 4):
        k = int.from_bytes(key[at : at + 4], "little") * 0x5BD1E995 % 2**32
        k = (k ^ k >> 24) * 0x5BD1E995 % 2**32
        h = h * 0x5BD1E995 % 2**32 ^ k
    rest = key[len(key) // 4 * 4 :]
    for at in reversed(range(len(rest))):
        h ^= rest[at] << 8 * at
    if rest:
        h = h * 0x5BD1E995 % 2**32
    h = (h ^ h >> 13) * 0x5BD1E995 % 2**32
    h ^= h >> 15
    return h if h < 2**31 else h - 2**32


@given(st.binary(max_size=70))
def test_murmur2_equals_the_step_by_step_reference(key):
    assert murmur2(key) == _murmur2_step_by_step(key)


def test_partition_is_the_hash_without_its_sign_bit_modulo_the_count():
    assert partition_for_key(b"abc", 4) == 479470107 % 4
    assert partition_for_key(b"foobar", 1000) == (-790332482 & 0x7FFFFFFF) % 1000


@given(st.binary(max_size=20), st.integers(1, 10_000))
def test_partition_is_always_in_range(key, partition_count):
    assert 0 <= partition_for_key(key, partition_count) < partition_count


@pytest.mark.parametrize("partition_count", [0, -1])
def test_a_topic_without_partitions_is_refused(partition_count):
    with pytest.raises(UsageError, match="at least one partition"):
        partition_for_key(b"k", partition_count)


def column_of(keys, code):
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key))
    return struct.pack(f"={len(ends)}{code}", *ends), b"".join(keys)


@pytest.mark.parametrize("code", ["i", "q"])
@pytest.mark.parametrize("partition_count", [1, 3, 2**31 - 1])
def test_a_column_of_keys_has_the_partitions_of_its_keys(code, partition_count):
    keys = [b"", b"a", b"abcd", b"foobar", bytes(range(256)), "é".encode()] * 3
    ends, data = column_of(keys, code)
    for start in (0, 4):
        found = loops.partitions_for_keys(code == "q", start, len(keys) - start, ends, data, partition_count)
        expected = [partition_for_key(key, partition_count) for key in keys[start:]]
        assert list(struct.unpack(f"={len(expected)}i", found)) == expected


@pytest.mark.parametrize(
    ("offset", "row_count", "ends", "count"),
    [
        (0, 2, [0, 1], 1),
        (1, 1, [0, 1], 1),
        (-1, 1, [0, 1], 1),
        (0, -1, [0, 1], 1),
        (0, 0, [], 1),
        (0, 1, [0, 9], 1),
        (0, 2, [0, 2, 1], 1),
        (0, 1, [-1, 1], 1),
        (2**62, 2**62, [0, 1], 1),
        (0, 1, [0, 1], 0),
        (0, 1, [0, 1], 2**31),
    ],
)
@pytest.mark.parametrize("code", ["i", "q"])
def test_a_column_that_does_not_hold_together_has_none(code, offset, row_count, ends, count):
    packed = struct.pack(f"={len(ends)}{code}", *ends)
    for function in (loops.partitions_for_keys, partitioner.partitions_for_keys):
        assert function(code == "q", offset, row_count, packed, b"abc", count) is None
