"""Which partition a key belongs to: Kafka's default partitioner.

Knows the murmur2 variant of Kafka's Java client. Every client must compute it identically, so that equal keys
go to the same partition. Does not know topics, or records without a key.
"""

from __future__ import annotations

import struct
from array import array

from logstore.errors import UsageError
from logstore.model import Bytes

_MAX_INT32 = 2**31 - 1
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: Bytes) -> int:
    """The hash of ``key`` as a signed 32-bit number. Cost: about 0.7 us, and 0.2 us for each 4 bytes."""
    key_bytes = bytes(key)
    size_bytes = len(key_bytes)
    word_count = size_bytes >> 2
    h = _SEED ^ (size_bytes & _MASK)
    for word in struct.unpack_from(f"<{word_count}I", key_bytes):
        k = word * _MULTIPLIER & _MASK
        k ^= k >> 24
        h = (h * _MULTIPLIER ^ k * _MULTIPLIER) & _MASK
    if size_bytes & 3:
        h ^= int.from_bytes(key_bytes[word_count << 2 :], "little")
        h = h * _MULTIPLIER & _MASK
    h ^= h >> 13
    h = h * _MULTIPLIER & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition_for_key(key: Bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``: the hash without its sign bit, modulo the count.

    Raises:
        UsageError: ``partition_count`` is below 1.
    """
    if partition_count < 1:
        raise UsageError(f"partition_count is {partition_count}; a topic has at least one partition")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def partitions_for_keys(
    is_large: bool, offset: int, row_count: int, ends: Bytes, data: Bytes, partition_count: int
) -> bytes | None:
    """The partition of each key of a column in Arrow's layout, as int32 of this machine. A null gets the
    partition of the bytes that lie in its place. None if the ends lead out of the data, or the number of
    partitions is not possible. Cost: compiled 10 ns per key, plain 1.5 µs.
    """
    with memoryview(ends) as view, view.cast("B") as ends_bytes:
        size = 8 if is_large else 4
        end_count = len(ends_bytes) // size
        if offset < 0 or not 0 <= row_count < end_count - offset or not 1 <= partition_count <= _MAX_INT32:
            return None
        wanted = ends_bytes[offset * size : (offset + row_count + 1) * size]
        places = struct.unpack(f"={row_count + 1}{'q' if is_large else 'i'}", wanted)
    partitions = array("i", bytes(4 * row_count))
    key_bytes = memoryview(data)
    for row in range(row_count):
        start, end = places[row], places[row + 1]
        if not 0 <= start <= end <= len(key_bytes):
            return None
        partitions[row] = partition_for_key(key_bytes[start:end], partition_count)
    return partitions.tobytes()
