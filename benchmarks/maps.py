"""What compaction remembers of each key: the map from keys to offsets, beside Python's dict."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

from benchmarks.contenders import LOGSTORE
from benchmarks.figures import Case, Measurement, idle_memory_bytes, measurement
from benchmarks.plan import DICT, MAP
from benchmarks.records import WrongDataError

_KEY_BYTES = 16
_BATCH_KEYS = 1_000
_CHECKED_KEYS = 1_000
_PROBE_BYTES = 1 << 20


def measure_map(contender: str, key_count: int) -> Measurement:
    """Put distinct keys, a thousand at a time; counts keys, and what they take in memory as stored bytes."""
    block = random.Random(17).randbytes(key_count * _KEY_BYTES)
    keys = [block[at : at + _KEY_BYTES] for at in range(0, len(block), _KEY_BYTES)]
    batches = [(at, keys[at : at + _BATCH_KEYS]) for at in range(0, key_count, _BATCH_KEYS)]
    make = _MAPS[contender]
    gc.freeze()
    idle = idle_memory_bytes()
    put, get, size = make(key_count)
    started = perf_counter()
    for first, batch in batches:
        put(batch, first)
    seconds = perf_counter() - started
    for offset in range(0, key_count, max(key_count // _CHECKED_KEYS, 1)):
        if get(keys[offset]) != offset:
            raise WrongDataError(f"the key of offset {offset} has {get(keys[offset])}")
    return measurement(Case(MAP, contender, _BATCH_KEYS), key_count, seconds, size(), idle)


Functions = tuple[Callable[[list[bytes], int], Any], Callable[[bytes], int | None], Callable[[], int]]
"""Put keys with offsets from a first one on; get one; bytes in memory without the dict's own objects."""


def _dict(key_count: int) -> Functions:
    offsets: dict[bytes, int] = {}

    def put(keys: list[bytes], first: int) -> None:
        offsets.update(zip(keys, range(first, first + len(keys)), strict=True))

    return put, offsets.get, lambda: sys.getsizeof(offsets)


def _offset_map(key_count: int) -> Functions:
    """As large as it must be for the keys."""
    from logstore.format.offset_map import SEED_BYTES, OffsetMap

    seed = random.Random(19).randbytes(SEED_BYTES)
    memory_bytes = key_count * _PROBE_BYTES // OffsetMap(_PROBE_BYTES, seed).capacity + _PROBE_BYTES
    offset_map = OffsetMap(memory_bytes, seed)
    return offset_map.put_keys, offset_map.get, lambda: memory_bytes


_MAPS: dict[str, Callable[[int], Functions]] = {LOGSTORE: _offset_map, DICT: _dict}
