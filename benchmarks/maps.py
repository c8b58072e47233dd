"""The map from keys to offsets, which compaction uses, beside Python's dict.

The map gets records sections, as in compaction; the dict gets the keys as decoded objects, which is less work
than it would have. Processor time is measured, with memory that was just used: a virtual machine may take as
long for fresh memory as for everything else together.
"""

from __future__ import annotations

import gc
import mmap
import random
import sys
from collections.abc import Callable, Sequence
from time import process_time
from typing import Any, NamedTuple

from benchmarks.contenders import LOGSTORE
from benchmarks.figures import Case, Measurement, idle_memory_bytes, measurement
from benchmarks.plan import DICT, MAP
from benchmarks.records import WrongDataError

KEY_BATCH = 1_000
"""Keys in a section, and in a call."""

_KEY_BYTES = 16
_VALUE = b"v" * 20
_CHECKED_KEYS = 1_000
_WARM_BYTES_PER_KEY = 24


def measure_map(contender: str, key_count: int) -> Measurement:
    """Put distinct keys, a thousand at a time; counts keys, and their memory as stored bytes."""
    chance = random.Random(17)
    checked: dict[bytes, int] = {}
    make, prepare = _MAPS[contender]
    batches = []
    for first in range(0, key_count, KEY_BATCH):
        keys = _keys(chance, min(KEY_BATCH, key_count - first))
        if first % max(key_count // _CHECKED_KEYS, 1) == 0:
            checked[keys[0]] = first
        batches.append((first, len(keys), prepare(keys)))
    gc.freeze()
    idle = idle_memory_bytes()
    _warm(key_count * _WARM_BYTES_PER_KEY)
    table = make(key_count)
    put = table.put
    started = process_time()
    for first, count, batch in batches:
        put(batch, first, count)
    seconds = process_time() - started
    for key, offset in checked.items():
        if table.get(key) != offset:
            raise WrongDataError(f"the key of offset {offset} has {table.get(key)}")
    return measurement(Case(MAP, contender, KEY_BATCH), key_count, seconds, table.size_bytes(), idle)


def _keys(chance: random.Random, count: int) -> list[bytes]:
    block = chance.randbytes(count * _KEY_BYTES)
    return [block[at : at + _KEY_BYTES] for at in range(0, len(block), _KEY_BYTES)]


def _warm(size_bytes: int) -> None:
    """Take that much memory, write to it, and free it."""
    with mmap.mmap(-1, size_bytes) as memory:
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size_bytes, mmap.PAGESIZE):
            memory[at] = 1


class _Table(NamedTuple):
    put: Callable[[Any, int, int], object]
    """A prepared batch, the offset of its first key, how many it has."""
    get: Callable[[bytes], int | None]
    size_bytes: Callable[[], int]
    """Without the dict's own objects."""


def _dict(key_count: int) -> _Table:
    offsets: dict[bytes, int] = {}

    def put(keys: Sequence[bytes], first: int, count: int) -> None:
        offsets.update(zip(keys, range(first, first + count), strict=True))

    return _Table(put, offsets.get, lambda: sys.getsizeof(offsets))


def _offset_map(key_count: int) -> _Table:
    """As large as it must be for the keys."""
    from logstore.format.offset_map import SEED_BYTES, OffsetMap, bytes_for

    memory_bytes = bytes_for(key_count)
    offset_map = OffsetMap(memory_bytes, random.Random(19).randbytes(SEED_BYTES))

    def put(section: bytes, first: int, count: int) -> None:
        if offset_map.put_section(section, 0, len(section), count, first, count - 1) != count:
            raise WrongDataError(f"no room for all keys from offset {first} on")

    return _Table(put, offset_map.get, lambda: memory_bytes)


def _section(keys: list[bytes]) -> bytes:
    from logstore.format.loops import encode_records

    return bytes(encode_records(keys, [_VALUE] * len(keys), 0, None, 0, None))


_MAPS: dict[str, tuple[Callable[[int], _Table], Callable[[list[bytes]], Any]]] = {
    LOGSTORE: (_offset_map, _section),
    DICT: (_dict, lambda keys: keys),
}
