"""The codecs: Kafka's framing, exact ends, and bounded memory."""

import contextlib
import random
import struct
import threading
import time
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, InvalidConfigError
from logstore.format.compression import (
    LEVELS,
    MAX_DECOMPRESSED_BYTES,
    Codec,
    codec_named,
    compress,
    decompress,
)
from logstore.format.lz4_frame import lz4_header_checksum
from logstore.format.xerial import XERIAL_BLOCK_BYTES, XERIAL_HEADER
from tests.format.legacy_writer import with_broken_header_checksum
from tests.format.vectors import LZ4_HEADER_CHECKSUMS

TEXT = b"".join(b"line %d of some text that repeats itself\n" % number for number in range(4000))
SMALL = b"hello hello hello hello"
REAL_CODECS = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1 << 20

by_codec = pytest.mark.parametrize("codec", REAL_CODECS)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [b"", b"x", SMALL, TEXT, bytearray(TEXT), memoryview(TEXT)[5:]])
def test_what_goes_in_comes_out(codec, data):
    assert decompress(codec, compress(codec, data), len(data)) == bytes(data)


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=300), repeats=st.integers(1, 500))
@settings(max_examples=25)
def test_any_bytes_come_out(codec, data, repeats):
    assert decompress(codec, compress(codec, data * repeats), len(data) * repeats) == data * repeats


def test_names():
    names = {"uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
    assert {name: codec_named(name) for name in names} == names


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidConfigError, match="brotli"):
        codec_named("brotli")


@pytest.mark.parametrize("codec", LEVELS)
def test_every_level_within_the_limits(codec):
    low, high = LEVELS[codec]
    for level in {low, 1, high}:
        assert decompress(codec, compress(codec, SMALL, level), 100) == SMALL
    for level in (low - 1, high + 1):
        with pytest.raises(InvalidConfigError, match="level"):
            compress(codec, SMALL, level)


def test_gzip_has_no_level_0():
    with pytest.raises(InvalidConfigError):
        compress(Codec.GZIP, SMALL, 0)


def test_a_level_for_snappy_is_ignored():
    assert compress(Codec.SNAPPY, SMALL, 9) == compress(Codec.SNAPPY, SMALL)


# Framing


def test_lz4_frames_are_kafkas():
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:7].hex() == "04224d18604082"
    assert frame[-4:] == bytes(4)
    assert len(TEXT) > 65536
    assert lz4.frame.get_frame_info(frame)["block_linked"] is False


@pytest.mark.parametrize(("descriptor", "checksum"), LZ4_HEADER_CHECKSUMS.items())
def test_lz4_header_checksums(descriptor, checksum):
    assert lz4_header_checksum(bytes.fromhex(descriptor)) == checksum


def test_lz4_header_checksum_is_wrong_in_magic_0_only():
    frame = with_broken_header_checksum(compress(Codec.LZ4, SMALL))
    assert frame[6] == 0x1A
    assert decompress(Codec.LZ4, frame, 100, magic=0) == SMALL
    with pytest.raises(CorruptionError):
        decompress(Codec.LZ4, frame, 100, magic=1)


def test_lz4_frames_of_linked_blocks_are_refused_as_kafka_does():
    with pytest.raises(CorruptionError, match="depend on each other"):
        decompress(Codec.LZ4, lz4.frame.compress(TEXT, block_linked=True), MIB)


@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames_of_other_writers(store_size, checksums, block_size):
    frame = lz4.frame.compress(
        TEXT,
        block_linked=False,
        store_size=store_size,
        content_checksum=checksums,
        block_checksum=checksums,
        block_size=block_size,
    )
    assert decompress(Codec.LZ4, frame, MIB) == TEXT
    broken = with_broken_header_checksum(frame) if not store_size else frame
    assert decompress(Codec.LZ4, broken, MIB, magic=0) == TEXT


@pytest.mark.parametrize("flags", ["2040", "a040", "6140", "6240", "60c0", "6041", "6030"])
def test_lz4_frames_with_undefined_flags_are_refused(flags):
    descriptor = bytes.fromhex(flags)
    header = b"\x04\x22\x4d\x18" + descriptor + bytes([lz4_header_checksum(descriptor)])
    with pytest.raises(CorruptionError):
        decompress(Codec.LZ4, header + compress(Codec.LZ4, SMALL)[7:], 100)


def test_lz4_blocks_larger_than_the_frame_allows_are_refused():
    frame = compress(Codec.LZ4, SMALL)[:7] + struct.pack("<I", 65537) + bytes(65537 + 4)
    with pytest.raises(CorruptionError, match="block of 65537 bytes"):
        decompress(Codec.LZ4, frame, MIB)


def test_snappy_is_framed_in_blocks_of_32_kib():
    framed = compress(Codec.SNAPPY, bytes(XERIAL_BLOCK_BYTES + 1))
    assert framed.startswith(bytes.fromhex("82534e41505059000000000100000001"))
    (first,) = struct.unpack_from(">i", framed, 16)
    assert snappy.uncompress(framed[20 : 20 + first]) == bytes(XERIAL_BLOCK_BYTES)
    assert snappy.uncompress(framed[20 + first + 4 :]) == b"\x00"


def test_a_bare_snappy_block_is_read():
    assert decompress(Codec.SNAPPY, snappy.compress(TEXT), len(TEXT)) == TEXT


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1])
def test_a_snappy_block_of_impossible_size(size):
    with pytest.raises(CorruptionError, match="snappy block"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", size) + b"abc", 100)


def test_a_snappy_block_without_a_length():
    with pytest.raises(CorruptionError, match="without a length"):
        decompress(Codec.SNAPPY, b"\xff" * 20, 100)


def test_zstd_is_written_without_content_size():
    size = zstandard.get_frame_parameters(compress(Codec.ZSTD, TEXT)).content_size
    assert size == zstandard.CONTENTSIZE_UNKNOWN


def test_zstd_streams_as_java_writes_them():
    writer = zstandard.ZstdCompressor(level=3).compressobj()
    frame = writer.compress(TEXT[:100]) + writer.compress(TEXT[100:]) + writer.flush()
    assert decompress(Codec.ZSTD, frame, len(TEXT)) == TEXT


@pytest.mark.parametrize("options", [{"write_checksum": True}, {"write_content_size": True}])
@pytest.mark.parametrize("data", [b"", SMALL, TEXT, TEXT * 3, bytes(MIB)])
def test_zstd_frames_of_other_writers(options, data):
    frame = zstandard.ZstdCompressor(**options).compress(data)
    assert decompress(Codec.ZSTD, frame, len(data)) == data


def test_zstd_that_states_a_terabyte_is_refused_unread():
    frame = bytes.fromhex("28b52ffd") + b"\xe0" + struct.pack("<Q", 1 << 40) + b"\x01\x00\x00"
    with pytest.raises(CorruptionError, match="states"):
        decompress(Codec.ZSTD, frame, MIB)


def test_zstd_that_states_more_than_the_limit_is_refused_unread():
    frame = zstandard.compress(bytes(2 * MIB))
    with pytest.raises(CorruptionError, match="limit"):
        decompress(Codec.ZSTD, frame, MIB)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_streams_in_a_row_are_one(codec):
    assert decompress(codec, compress(codec, SMALL) + compress(codec, TEXT), MIB) == SMALL + TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_streams_in_a_row_share_the_limit(codec):
    with pytest.raises(CorruptionError):
        decompress(codec, compress(codec, SMALL) * 3, 3 * len(SMALL) - 1)


def test_threads_have_their_own_contexts():
    results = []

    def work():
        for _ in range(20):
            results.append(decompress(Codec.ZSTD, compress(Codec.ZSTD, TEXT), len(TEXT)) == TEXT)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


# Damage


@by_codec
def test_cut_short_at_every_length(codec):
    stream = compress(codec, SMALL)
    for length in range(len(stream)):
        if codec is Codec.SNAPPY and length == len(XERIAL_HEADER):
            continue  # a header without blocks is the empty stream
        with pytest.raises(CorruptionError):
            decompress(codec, stream[:length], 1000)


@by_codec
@pytest.mark.parametrize("tail", [b"\x00", b"garbage", b"\x00\x00\x00\x01"])
def test_bytes_after_the_end(codec, tail):
    with pytest.raises(CorruptionError):
        decompress(codec, compress(codec, SMALL) + tail, 1000)


@by_codec
@given(edits=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=150)
def test_mutated_streams_are_bounded_or_refused(codec, edits):
    stream = bytearray(compress(codec, TEXT[:3000]))
    for place, byte in edits:
        stream[place % len(stream)] = byte
    with contextlib.suppress(CorruptionError):
        assert len(decompress(codec, bytes(stream), 4000)) <= 4000


@by_codec
@given(noise=st.binary(max_size=200))
@settings(max_examples=50)
def test_noise_is_refused(codec, noise):
    for data in (noise, compress(codec, b"")[:16] + noise):
        with contextlib.suppress(CorruptionError):
            assert len(decompress(codec, data, 1000)) <= 1000


# Limits


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec):
    stream = compress(codec, TEXT)
    assert decompress(codec, stream, len(TEXT)) == TEXT
    with pytest.raises(CorruptionError):
        decompress(codec, stream, len(TEXT) - 1)


def _bomb(codec):
    """256 MiB of zeros, made without ever holding them."""
    chunk = bytes(MIB)
    if codec is Codec.GZIP:
        writer = zlib.compressobj(9, zlib.DEFLATED, 31)
    elif codec is Codec.ZSTD:
        writer = zstandard.ZstdCompressor().compressobj()
    elif codec is Codec.LZ4:
        frame = compress(codec, chunk)
        return frame[:7] + frame[7:-4] * 256 + frame[-4:]
    else:
        block = snappy.compress(bytes(XERIAL_BLOCK_BYTES))
        return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (256 * MIB // XERIAL_BLOCK_BYTES)
    return b"".join(writer.compress(chunk) for _ in range(256)) + writer.flush()


@by_codec
def test_a_bomb_takes_no_more_memory_than_the_limit(codec):
    bomb = _bomb(codec)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptionError):
            decompress(codec, bomb, MIB)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * MIB


def test_a_bare_snappy_block_that_claims_too_much_is_refused_unread():
    with pytest.raises(CorruptionError, match="cannot hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"abc", MIB)
    with pytest.raises(CorruptionError, match="limit"):
        decompress(Codec.SNAPPY, snappy.compress(bytes(MIB + 1)), MIB)


def test_no_snappy_block_holds_more_than_is_allowed_for():
    """The densest that the format has: one byte, then copies of 64 bytes in three bytes each."""
    copies = 20_000
    block = encode_length(1 + 64 * copies) + b"\x00z" + b"\xfe\x01\x00" * copies
    assert decompress(Codec.SNAPPY, block) == b"z" * (1 + 64 * copies)


def encode_length(length):
    """Base 128 without zig-zag."""
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*encoded, length])


@by_codec
def test_large_results_are_whole(codec):
    """More than a codec decompresses at a time, and streams in a row."""
    text = random.Random(1).randbytes(1000) * 5000
    assert decompress(codec, compress(codec, text)) == text
    assert decompress(codec, compress(codec, text), len(text)) == text
    if codec in (Codec.GZIP, Codec.ZSTD):
        assert decompress(codec, compress(codec, text) + compress(codec, b"x") * 3) == text + b"xxx"
        with pytest.raises(CorruptionError, match="limit"):
            decompress(codec, compress(codec, b"x") + compress(codec, text), len(text))


def test_many_small_gzip_members_take_no_quadratic_time():
    """Four megabytes of members without contents took 10 s: the rest of the stream was copied for each."""
    stream = compress(Codec.GZIP, b"") * 200_000
    began = time.process_time()
    assert decompress(Codec.GZIP, stream) == b""
    assert time.process_time() - began < 3


def test_the_default_limit():
    assert MAX_DECOMPRESSED_BYTES == 64 * MIB
    with pytest.raises(CorruptionError, match=str(64 * MIB)):
        decompress(Codec.GZIP, _bomb(Codec.GZIP))
