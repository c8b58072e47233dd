"""zstd frames without a content size, as Java's streams write them.

Such a frame does not say how large its content is, so the library needs a bound. The blocks of the frame give
a good one: they are walked first, which also finds a frame that is cut short.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import local
from typing import Any, Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.bounds import failure, gather, is_without_memory, refuse_more, too_large
from logstore.model import Bytes

ZSTD_DEFAULT_LEVEL: Final = 3

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES = 128 * 1024
_ZSTD_RLE, _ZSTD_COMPRESSED = 1, 2  # kinds of block; 0 is plain bytes, 3 is undefined
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZE_BYTES = (0, 2, 4, 8)


class _Contexts(local):
    """Each thread's zstd contexts: creating one costs more than decompressing a small batch."""

    def __init__(self) -> None:
        self.compressors: dict[int, Any] = {}
        self.decompressor: Any = None


_contexts = _Contexts()


def compress_zstd(data: Bytes, level: int | None) -> bytes:
    """One frame."""
    level = ZSTD_DEFAULT_LEVEL if level is None else level
    context = _contexts.compressors.get(level)
    if context is None:
        from zstandard import ZstdCompressor

        context = _contexts.compressors[level] = ZstdCompressor(level=level, write_content_size=False)
    try:
        plain: bytes = context.compress(data)
    except Exception as error:
        if is_without_memory(error):
            raise MemoryError(f"there is no memory to compress with zstd: {error}") from error
        raise
    return plain


class _Frame(NamedTuple):
    """One frame of a stream, with the size of its content as stated, or the largest possible size."""

    data: memoryview
    content_bytes: int
    is_stated: bool


def decompress_zstd(data: Bytes, limit_bytes: int) -> Bytes:
    """Decompress every frame of the stream: zstd allows several in a row, and Kafka's reader reads them all.
    Memory: if there are several, the largest one is held twice for a while."""
    frames = list(_zstd_frames(memoryview(data)))
    if sum(frame.content_bytes for frame in frames if frame.is_stated) > limit_bytes:
        raise too_large(limit_bytes)
    if len(frames) == 1:
        return _decompress_zstd_frame(frames[0], limit_bytes)
    most_bytes = sum(frame.content_bytes for frame in frames)
    if most_bytes > limit_bytes:
        refuse_more(_zstd_contents(frames, limit_bytes), limit_bytes)
    whole = gather(_zstd_contents(frames, limit_bytes), most_bytes, limit_bytes)
    assert whole is not None  # no frame passes its bound
    return whole


def _zstd_frames(view: memoryview) -> Iterator[_Frame]:
    position = 0
    while True:
        end, content_bytes, is_stated = _check_zstd_frame(view, position)
        yield _Frame(view[position:end], content_bytes, is_stated)
        position = end
        if position == len(view):
            return


def _zstd_contents(frames: list[_Frame], limit_bytes: int) -> Iterator[bytes]:
    """The contents, after an empty first piece: :func:`gather` would hold a first frame until the end."""
    yield b""
    left_bytes = limit_bytes
    for frame in frames:
        plain = _decompress_zstd_frame(frame, left_bytes)
        left_bytes -= len(plain)
        yield plain
        del plain


def _decompress_zstd_frame(frame: _Frame, limit_bytes: int) -> bytes:
    from zstandard import ZstdDecompressor, ZstdError

    if _contexts.decompressor is None:
        _contexts.decompressor = ZstdDecompressor()
    room_bytes = min(limit_bytes, frame.content_bytes) + 1
    try:
        plain: bytes = _contexts.decompressor.decompress(frame.data, max_output_size=room_bytes)
    except ZstdError as error:
        if frame.content_bytes > limit_bytes and not is_without_memory(error):
            raise too_large(
                limit_bytes, f"a zstd frame is damaged, or has more than {limit_bytes} bytes: {error}"
            ) from error
        raise failure("zstd frame", error) from error
    if len(plain) > limit_bytes:
        raise too_large(limit_bytes)
    return plain


def _check_zstd_frame(view: memoryview, start: int) -> tuple[int, int, bool]:
    """Walk one frame's blocks. Returns where the frame ends, the most bytes it can expand to, and whether it
    states that number.

    A stated content size is checked against what the blocks can hold, and is the limit when decompressing.
    """
    position, content_bytes, checksum_bytes = _zstd_frame_header(view, start)
    bound_bytes, is_last = 0, False
    while not is_last:
        if position + 3 > len(view):
            raise CorruptionError("the zstd frame is cut short")
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        is_last, kind, size_bytes = bool(header & 1), header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == _ZSTD_RLE else size_bytes)
        bound_bytes += _ZSTD_BLOCK_BYTES if kind == _ZSTD_COMPRESSED else size_bytes
    position += checksum_bytes
    if position > len(view):
        raise CorruptionError("the zstd frame is cut short")
    if content_bytes is not None and content_bytes > bound_bytes:
        raise CorruptionError(f"a zstd frame states {content_bytes} bytes and can hold {bound_bytes} at most")
    if content_bytes is None:
        return position, bound_bytes, False
    return position, content_bytes, True


def _zstd_frame_header(view: memoryview, start: int) -> tuple[int, int | None, int]:
    """Position after the header, the content size if stated, and the bytes of the checksum at the end."""
    if view[start : start + 4] != _ZSTD_MAGIC or len(view) < start + 5:
        raise CorruptionError("not a zstd frame", position=start)
    descriptor = view[start + 4]
    is_single_segment = bool(descriptor & 0x20)
    size_field_bytes = _ZSTD_CONTENT_SIZE_BYTES[descriptor >> 6] or int(is_single_segment)
    position = start + 5 + (not is_single_segment) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    after = position + size_field_bytes
    if after > len(view):
        raise CorruptionError("the zstd frame is cut short in its header")
    content_bytes = None
    if size_field_bytes:
        content_bytes = int.from_bytes(view[position:after], "little") + (256 if size_field_bytes == 2 else 0)
    return after, content_bytes, 4 if descriptor & 0x04 else 0
