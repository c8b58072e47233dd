"""RocksDB through rocksdict: keys that only grow, the record packed into the value."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, ClassVar

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from benchmarks.contenders.base import Contender
from benchmarks.records import Stored

_KEY = struct.Struct(">Q")
_PREFIX = struct.Struct("=qH")
"""Timestamp, and the size of the key that follows; the rest is the value."""
_CACHE_BYTES = 256 << 20
_READAHEAD_BYTES = 1 << 20


class RocksContender(Contender):
    """One ``WriteBatch`` for each batch; single records with ``put``, which is quicker."""

    settings: ClassVar[str] = (
        "raw mode, one `WriteBatch` for each batch (`put` for a batch of one), no compression, `sync` for "
        "flushes; a block cache of 256 MiB, readahead of 1 MiB when reading in order"
    )
    promise: ClassVar[str] = (
        "transactions; a power cut may lose the newest unflushed records; checksums of log and blocks, "
        "checked when read from disk (opening truncates a damaged log silently); an index by offset"
    )
    compression: ClassVar[str] = "none"

    def __init__(self, directory: str, *, is_durable: bool = False) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compression_type(getattr(DBCompressionType, self.compression)())
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(_CACHE_BYTES))
        options.set_block_based_table_factory(blocks)
        self._store: Any = Rdict(f"{directory}/rocks", options)
        writes = WriteOptions()
        writes.sync = is_durable
        self._store.set_write_options(writes)
        last = self._store.iter()
        last.seek_to_last()
        self._next_offset = _KEY.unpack(last.key())[0] + 1 if last.valid() else 0

    def append(self, batch: Any) -> None:
        pack_key, pack_prefix = _KEY.pack, _PREFIX.pack
        offset = self._next_offset
        if len(batch) == 1:
            key, value, timestamp_ms = batch[0]
            self._store[pack_key(offset)] = pack_prefix(timestamp_ms, len(key)) + key + value
        else:
            writes = WriteBatch(raw_mode=True)
            put = writes.put
            for number, (key, value, timestamp_ms) in enumerate(batch, offset):
                put(pack_key(number), pack_prefix(timestamp_ms, len(key)) + key + value)
            self._store.write(writes)
        self._next_offset = offset + len(batch)

    def read_all(self) -> Iterator[Stored]:
        unpack_key, unpack_prefix, prefix_bytes = _KEY.unpack, _PREFIX.unpack_from, _PREFIX.size
        options = ReadOptions()
        options.set_readahead_size(_READAHEAD_BYTES)
        for number, data in self._store.items(read_opt=options):
            timestamp_ms, key_bytes = unpack_prefix(data)
            key_end = prefix_bytes + key_bytes
            yield unpack_key(number)[0], timestamp_ms, data[prefix_bytes:key_end], data[key_end:]

    def read_one(self, offset: int) -> Any:
        data = self._store[_KEY.pack(offset)]
        timestamp_ms, key_bytes = _PREFIX.unpack_from(data)
        key_end = _PREFIX.size + key_bytes
        return offset, timestamp_ms, data[_PREFIX.size : key_end], data[key_end:]

    def close(self) -> None:
        self._store.close()

    @staticmethod
    def version() -> str:
        return version("rocksdict")


class RocksZstdContender(RocksContender):
    settings: ClassVar[str] = "as rocksdict, with zstd compression"
    promise: ClassVar[str] = "as rocksdict"
    compression: ClassVar[str] = "zstd"
