"""LMDB: integer keys that only grow, the record packed into the value."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, ClassVar

import lmdb

from benchmarks.contenders.base import Contender
from benchmarks.records import Stored

MAP_BYTES = 8 * 1024**3
"""Address space, and the size of a file that is mostly holes: more than any figure stores."""

_KEY = struct.Struct("=Q")
_PREFIX = struct.Struct("=qH")
"""Timestamp, and the size of the key that follows; the rest is the value."""


class LmdbContender(Contender):
    """One write transaction for each batch; each single read in a transaction of its own, so that it sees
    what is committed by then, as with the others."""

    settings: ClassVar[str] = (
        "`putmulti(append=True)` with integer keys, one transaction for each batch, `writemap=True`; "
        "`sync=False` without flushes; default readahead"
    )
    promise: ClassVar[str] = (
        "transactions; without flushes, a power cut may damage the whole database; no checksums; an index by "
        "offset"
    )

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        self._environment: Any = lmdb.open(
            directory, map_size=MAP_BYTES, max_dbs=1, sync=is_durable, writemap=True
        )
        self._database: Any = self._environment.open_db(b"log", integerkey=True)
        with self._environment.begin() as transaction:
            self._next_offset = int(transaction.stat(self._database)["entries"])

    def append(self, batch: Any) -> None:
        first = self._next_offset
        pack_key, pack_prefix = _KEY.pack, _PREFIX.pack
        items = [
            (pack_key(offset), pack_prefix(timestamp_ms, len(key)) + key + value)
            for offset, (key, value, timestamp_ms) in enumerate(batch, first)
        ]
        with self._environment.begin(write=True, db=self._database) as transaction:
            transaction.cursor().putmulti(items, append=True)
        self._next_offset = first + len(batch)

    def read_all(self) -> Iterator[Stored]:
        unpack_key, unpack_prefix, prefix_bytes = _KEY.unpack, _PREFIX.unpack_from, _PREFIX.size
        with self._environment.begin(db=self._database) as transaction:
            for number, data in transaction.cursor():
                timestamp_ms, key_bytes = unpack_prefix(data)
                key_end = prefix_bytes + key_bytes
                yield unpack_key(number)[0], timestamp_ms, data[prefix_bytes:key_end], data[key_end:]

    def read_one(self, offset: int) -> Any:
        with self._environment.begin(db=self._database) as transaction:
            data: bytes = transaction.get(_KEY.pack(offset))
        timestamp_ms, key_bytes = _PREFIX.unpack_from(data)
        key_end = _PREFIX.size + key_bytes
        return offset, timestamp_ms, data[_PREFIX.size : key_end], data[key_end:]

    def close(self) -> None:
        self._environment.close()

    @staticmethod
    def version() -> str:
        return f"{'.'.join(map(str, lmdb.version()))} (py-lmdb {lmdb.__version__})"
