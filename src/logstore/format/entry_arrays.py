"""The entries of an index as NumPy arrays, for work on all of them at once.

The only module that imports numpy, and imported only for such work: loading numpy takes a new process as long
as a loop in Python over one or two million entries. A search for one entry does not need it: that takes two
microseconds in :mod:`logstore.format.index`, and numpy's search in a big-endian column would copy the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from logstore.format.layout import Layout

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from numpy.typing import NDArray

_TYPES: Final = {"int8": "i1", "int16": ">i2", "int32": ">i4", "uint32": ">u4", "int64": ">i8"}
_PIECE_ENTRIES = 256 * 1024  # entries compared at once: bounds the memory besides the entries


def entry_type(layout: Layout) -> np.dtype[np.void]:
    """The dtype of an entry: the fields of the layout under their names, big-endian as in the file."""
    return np.dtype([(field.name, _TYPES[field.type]) for field in layout.fields])


def entries_of(buffer: ReadableBuffer, layout: Layout, entry_count: int) -> NDArray[np.void]:
    """The first ``entry_count`` entries of a buffer, without a copy: a one-dimensional structured array."""
    kind = entry_type(layout)
    return np.frombuffer(memoryview(buffer), kind, entry_count) if entry_count else np.empty(0, kind)


def first_out_of_order(
    buffer: ReadableBuffer, layout: Layout, entry_count: int, before: tuple[int, int], *, may_stay: bool
) -> int | None:
    """The number of the first of ``entry_count`` entries of two fields that is not in order; None if all are.
    Both fields must rise; with ``may_stay`` the second may stay the same. The first entry is compared with
    ``before``. Cost: 2 ns for each entry."""
    entries = entries_of(buffer, layout, entry_count)
    for start in range(0, entry_count, _PIECE_ENTRIES):
        piece = entries[start : start + _PIECE_ENTRIES]
        first, second = (
            _behind(piece[field.name], last) for field, last in zip(layout.fields, before, strict=True)
        )
        bad = first[1:] <= first[:-1]
        bad |= (second[1:] < second[:-1]) if may_stay else (second[1:] <= second[:-1])
        number = int(bad.argmax())
        if bad[number]:
            return start + number
        before = int(first[-1]), int(second[-1])
    return None


def _behind(column: NDArray[Any], before: int) -> NDArray[np.int64]:
    """The column in the machine's byte order, with ``before`` in front of it."""
    made = np.empty(len(column) + 1, np.int64)
    made[0] = before
    made[1:] = column
    return made
