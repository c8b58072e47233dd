"""Which partition of a topic a record goes to.

Chooses by the key, as Kafka's Java producer does. Without keys, a batch's worth of records goes to one
partition, then to the next, so that batches are full (KIP-480's idea). Knows sizes and counts; no logs.

No lock: threads that meet here may make a run of records longer or shorter, which does no harm.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

from logstore.build import compiled
from logstore.errors import InvalidRecordError
from logstore.format.loops import divide_rows, partition_for_key
from logstore.model import Bytes
from logstore.partition.encoding.rows import check_payload, columns_of, copied

REMEMBERED_KEYS = 65_536
"""How many keys plain Python remembers: hashing a key costs 2 µs, looking it up 0.1 µs."""

_SIZED = (bytes, bytearray)
_RECORD_OVERHEAD_BYTES = 8  # about what a record takes besides its value


def _bytes_of(value: Any) -> int:
    """The size of a value; 0 for one that the append will refuse."""
    try:
        return len(value) if type(value) is memoryview else 0
    except ValueError:  # it was released
        return 0


class Placement:
    """Chooses partitions for one topic."""

    def __init__(self, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        # Remembering costs as much as the compiled hash.
        self._of_key = partition_for_key if compiled else lru_cache(REMEMBERED_KEYS)(partition_for_key)
        self._sticky_partition = 0
        self._sticky_left_bytes = batch_bytes

    def choose(
        self, key: Bytes | None, value: Any, partition_count: int, held: Sequence[int] | None = None
    ) -> int:
        """The partition of the next record. Without a key, one of those ``held``, or of all if it is None.

        Raises:
            InvalidRecordError: the key is not bytes-like. The append checks the value.
        """
        if type(key) is bytes:
            return self._of_key(key, partition_count)
        if key is not None:
            return self.of_key(key, partition_count)
        payload_bytes = len(value) if type(value) in _SIZED else _bytes_of(value)
        size = payload_bytes + _RECORD_OVERHEAD_BYTES
        self._sticky_left_bytes -= size
        if self._sticky_left_bytes < 0:
            self._sticky_left_bytes = self._batch_bytes - size
            self._sticky_partition += 1
        if held is not None:
            return held[self._sticky_partition % len(held)]
        return self._sticky_partition % partition_count

    def divide(
        self, rows: Sequence[Any], partition_count: int, held: Sequence[int] | None = None
    ) -> dict[int, list[Any]]:
        """The rows by partition, as :meth:`choose` chooses it.

        Raises:
            InvalidRecordError: a key is not bytes-like.
        """
        by_number = divide_rows(rows, partition_count)
        if by_number is not None:
            return {number: part for number, part in enumerate(by_number) if part}
        if set(map(type, rows)) == {bytes}:
            return self._divide_values(rows, range(partition_count) if held is None else held)
        columns = columns_of(rows, 0)
        divided: dict[int, list[Any]] = {}
        for row, key, value in zip(rows, columns.keys, columns.values, strict=True):
            divided.setdefault(self.choose(key, value, partition_count, held), []).append(row)
        return divided

    def _divide_values(self, values: Sequence[bytes], held: Sequence[int]) -> dict[int, list[Any]]:
        """Like :meth:`divide`, for values without keys: batch by batch, which takes 0.1 µs for each value
        instead of 2."""
        divided: dict[int, list[Any]] = {}
        ends = list(accumulate(len(value) + _RECORD_OVERHEAD_BYTES for value in values))
        start, start_bytes = 0, 0
        while start < len(values):
            stop = bisect_right(ends, start_bytes + self._sticky_left_bytes, start)
            if stop == start:  # the next one begins a batch, however large it is
                self._sticky_partition += 1
                self._sticky_left_bytes = self._batch_bytes
                stop = max(bisect_right(ends, start_bytes + self._batch_bytes, start), start + 1)
            part = divided.setdefault(held[self._sticky_partition % len(held)], [])
            part += values[start:stop]
            self._sticky_left_bytes -= ends[stop - 1] - start_bytes
            start, start_bytes = stop, ends[stop - 1]
        return divided

    def of_key(self, key: Bytes, partition_count: int) -> int:
        """The partition of a key.

        Raises:
            InvalidRecordError: the key is not bytes-like.
        """
        if key is None:
            raise InvalidRecordError("key is None; a record without a key may go to any partition")
        if not isinstance(key, bytes | bytearray | memoryview):
            check_payload("key", key)  # says what it must be
        return self._of_key(copied(key, "key"), partition_count)
