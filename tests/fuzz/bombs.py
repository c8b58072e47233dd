"""Streams of a few kilobytes that expand to 256 MiB, and how much memory it takes to refuse them.

``python -m tests.fuzz.bombs CODEC`` is the child process: it prints, as JSON, how far its memory grew over
each attempt. It asks the kernel: tracemalloc does not see what the codecs' libraries take.
"""

from __future__ import annotations

import ctypes
import gc
import json
import struct
import sys
import zlib

import lz4.frame
import snappy
import zstandard

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError
from logstore.format.batch import decode_batch, seal_batch
from logstore.format.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from logstore.format.header import BatchHeader
from logstore.format.xerial import XERIAL_BLOCK_BYTES, XERIAL_HEADER
from logstore.partition.log import Log
from logstore.testing import ManualClock, MemoryFiles

MIB = 1 << 20
BOMB_BYTES = 256 * MIB
_trim = ctypes.CDLL(None).malloc_trim
HEADER = BatchHeader(0, 0, 0, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1)


def gzip_bombs(size):
    writer = zlib.compressobj(9, zlib.DEFLATED, 31)
    one = b"".join(writer.compress(bytes(MIB)) for _ in range(size // MIB)) + writer.flush()
    yield "one member", one
    yield "many members", compress(Codec.GZIP, bytes(MIB)) * (size // MIB)
    yield "stated small", one[:-4] + bytes(4)


def snappy_bombs(size):
    block = snappy.compress(bytes(XERIAL_BLOCK_BYTES))
    framed = struct.pack(">i", len(block)) + block
    yield "framed", XERIAL_HEADER + framed * (size // XERIAL_BLOCK_BYTES)
    copies = size // 64
    yield "bare", _base_128(1 + 64 * copies) + b"\x00z" + b"\xfe\x01\x00" * copies


def _base_128(length):
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length])


def lz4_bombs(size):
    sizes = {"64 KiB": lz4.frame.BLOCKSIZE_MAX64KB, "4 MiB": lz4.frame.BLOCKSIZE_MAX4MB}
    for name, block_size in sizes.items():
        frame = lz4.frame.compress(
            bytes(4 * MIB), block_size=block_size, block_linked=False, store_size=False
        )
        yield f"blocks of {name}", frame[:7] + frame[7:-4] * (size // (4 * MIB)) + frame[-4:]


def zstd_bombs(size):
    writer = zstandard.ZstdCompressor().compressobj()
    yield "size unsaid", b"".join(writer.compress(bytes(MIB)) for _ in range(size // MIB)) + writer.flush()
    yield "many frames", compress(Codec.ZSTD, bytes(MIB)) * (size // MIB)
    stated = zstandard.ZstdCompressor().compress(bytes(8 * MIB))
    yield "size stated", stated * (size // (8 * MIB))
    yield "claims 1 TiB", b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x01\0\0"


BOMBS = {
    Codec.GZIP: gzip_bombs,
    Codec.SNAPPY: snappy_bombs,
    Codec.LZ4: lz4_bombs,
    Codec.ZSTD: zstd_bombs,
}


def log_with(codec, stream):
    """A log on a disk in memory whose one batch has a stream for its records."""
    files = MemoryFiles()
    files.make_directory("/t-0")
    batch = bytes(seal_batch(HEADER._replace(attributes=codec), stream))
    files.open("/t-0/" + "0" * 20 + ".log", create=True).write_at(0, [batch])
    return Log.open(
        "/t-0",
        files=files,
        clock=ManualClock(),
        config=TopicConfig(retention_ms=-1, max_message_bytes=1 << 28, segment_bytes=1 << 30),
        store_config=StoreConfig(linger_ms=0),
    )


def attempts(codec, stream):
    """(name, limit, call): each must refuse the stream."""
    for limit in (MIB, 16 * MIB, MAX_DECOMPRESSED_BYTES):
        yield "decompress", limit, lambda limit=limit: decompress(codec, stream, limit)
    batch = bytes(seal_batch(HEADER._replace(attributes=codec), stream))
    yield "decode_batch", 16 * MIB, lambda: decode_batch(batch, limit_bytes=16 * MIB)
    if len(stream) < MIB:
        log = log_with(codec, stream)
        yield "read", MAX_DECOMPRESSED_BYTES, lambda: list(log.read())
        yield "record_at", MAX_DECOMPRESSED_BYTES, lambda: log.record_at(0)
        yield "read_arrow", MAX_DECOMPRESSED_BYTES, log.read_arrow
        yield "find_max_timestamp", MAX_DECOMPRESSED_BYTES, log.find_max_timestamp


def status(key):
    """A number of /proc/self/status, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":")) * 1024


def growth_over(call):
    """By how much the process was larger at its largest, and whether the call was refused."""
    gc.collect()
    _trim(0)  # else an attempt would use what another one left
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak
    before = status("VmRSS")
    try:
        call()
    except CorruptionError:
        return status("VmHWM") - before, True
    return status("VmHWM") - before, False


def main(name):
    codec, rows = Codec[name], []
    import pyarrow  # noqa: F401

    for _, small in BOMBS[codec](8 * MIB):  # libraries, and what they take once
        for _, _, call in attempts(codec, small):
            growth_over(call)
    for bomb, stream in BOMBS[codec](BOMB_BYTES):
        for attempt, limit, call in attempts(codec, stream):
            grown, is_refused = growth_over(call)
            rows.append([bomb, attempt, limit, len(stream), grown, is_refused])
    right = compress(codec, bytes(MAX_DECOMPRESSED_BYTES))
    grown, is_refused = growth_over(lambda: decompress(codec, right))
    rows.append(["all that is allowed", "decompress", MAX_DECOMPRESSED_BYTES, len(right), grown, is_refused])
    json.dump(rows, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
