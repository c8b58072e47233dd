"""Tables of ready varints for the plain encoder: one lookup in C instead of a function call per field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import repeat
from operator import add
from typing import Final

from logstore.format.varint import encode_varint, wrap_int64

TABLE_VALUES: Final = 8192
"""How many varints and record prefixes are kept: all of one or two bytes that are not negative."""

_THREE_BYTES_VALUES: Final = 1 << 20


def _short_varints() -> list[bytes]:
    """The varints of 0, 1, 2, ... up to two bytes; zig-zag turns n into 2n."""
    one_byte = [bytes((2 * number,)) for number in range(64)]
    return one_byte + [bytes((2 * number & 127 | 128, number >> 6)) for number in range(64, TABLE_VALUES)]


class _Table(dict[int, bytes]):
    """Bytes by number. Those of other numbers are computed each time, so that the table does not grow."""

    def __init__(self, prefix: bytes, varints: list[bytes]) -> None:
        self.prefix = prefix
        super().__init__(enumerate(map(prefix.__add__, varints)))
        self.update((number, self[number]) for number in range(-64, 0))

    def __missing__(self, number: int) -> bytes:
        if TABLE_VALUES <= number < _THREE_BYTES_VALUES:
            raw = 2 * number
            return self.prefix + bytes((raw & 127 | 128, raw >> 7 & 127 | 128, raw >> 14))
        return self.prefix + encode_varint(wrap_int64(number))


class _FramedSizes(dict[int, int]):
    """The bytes that a length-prefixed payload takes, plus ``more``, by its length; length -1 is null."""

    def __init__(self, more: int) -> None:
        self.more = more
        super().__init__((length, length + 1 + more) for length in range(64))
        self.update((length, length + 2 + more) for length in range(64, TABLE_VALUES))
        self[-1] = 1 + more

    def __missing__(self, length: int) -> int:
        return len(encode_varint(length)) + max(length, 0) + self.more


class Tables:
    """Built on the first encode, so that importing this module stays cheap (building takes 5 ms)."""

    def __init__(self) -> None:
        self.offset_deltas = _short_varints()
        self.varint = _Table(b"", self.offset_deltas).__getitem__
        self.framed = _FramedSizes(0).__getitem__
        self.framed_and_1 = _FramedSizes(1).__getitem__
        """A value, and one byte that says that no headers follow, or that there is no key."""
        self.attributes_and_timestamp = _Table(b"\x00", self.offset_deltas).__getitem__
        self.stamps = [b"\x00\x00" + encoded for encoded in self.offset_deltas]
        """Attributes, timestamp delta 0, and the offset delta."""

    @cached_property
    def framed_and_2(self) -> Callable[[int], int]:
        """A value without key or headers."""
        return _FramedSizes(2).__getitem__

    @cached_property
    def varint_behind_null(self) -> Callable[[int], bytes]:
        """The size of a null key, followed by the size of the value."""
        return _Table(b"\x01", self.offset_deltas).__getitem__

    @cached_property
    def _low_bytes(self) -> list[bytes]:
        """The first two of three bytes."""
        return [bytes((2 * number & 127 | 128, number >> 6 & 127 | 128)) for number in range(TABLE_VALUES)]

    def offset_deltas_from(self, first: int, count: int) -> Sequence[bytes]:
        """The encoded deltas first, first + 1, ... of a batch without gaps."""
        if first + count <= TABLE_VALUES:
            return self.offset_deltas[first : first + count]
        block, number = divmod(first, TABLE_VALUES)
        if 0 < block < 128 and number + count <= TABLE_VALUES:
            return list(map(add, self._low_bytes[number : number + count], repeat(bytes((block,)))))
        return list(map(self.varint, range(first, first + count)))


_tables: Tables | None = None


def ready_tables() -> Tables:
    global _tables
    if _tables is None:
        _tables = Tables()
    return _tables
