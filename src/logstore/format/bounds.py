"""How much memory decompression may take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logstore.errors import CorruptionError
from logstore.model import Bytes

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""The default limit of one batch's records after decompression. Kafka has none. Its producers and brokers
limit a batch to 1 MiB by default, so this leaves a factor of 64 and still stops a bomb."""

PIECE_BYTES: Final = 256 * 1024
"""How much a codec decompresses at a time when the result is large."""

COUNTED_BYTES: Final = 128 * 1024
"""The same when the pieces are only counted."""

SMALL_BYTES: Final = 1024 * 1024
"""Results up to this size may be in memory twice for a while: faster than decompressing in pieces."""


def gather(pieces: Iterable[bytes], most_bytes: int, limit_bytes: int) -> Bytes | None:
    """The pieces joined, or the piece itself if there is only one; None if they have more than
    ``most_bytes``, the size that the stream states or can have at most.

    Takes the memory once, for the largest possible result: growing or joining buffers would hold the data
    twice for a while, so memory could reach twice the limit.

    Raises:
        CorruptionError: they are more than ``limit_bytes``.
    """
    room_bytes = min(most_bytes, limit_bytes)
    rest = iter(pieces)
    first = next(rest, b"")
    size_bytes = len(first)
    whole: bytearray | None = None
    for piece in rest:
        end = size_bytes + len(piece)
        if end > room_bytes:
            break
        if whole is None:
            whole = bytearray(room_bytes)
            whole[:size_bytes] = first
            first = b""
        whole[size_bytes:end] = piece
        size_bytes = end
        del piece  # else it would still be in memory while the next one is made
    else:
        if size_bytes > limit_bytes:
            raise too_large(limit_bytes)
        if whole is None:
            return first
        del whole[size_bytes:]
        return whole
    if end > limit_bytes:
        raise too_large(limit_bytes)
    return None


def refuse_more(pieces: Iterable[bytes], limit_bytes: int) -> None:
    """Count the bytes of a stream that may pass the limit, before memory is taken for them: besides the
    result, the library holds a block or a frame of its own.

    Raises:
        CorruptionError: they are more than ``limit_bytes``.
    """
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > limit_bytes:
            raise too_large(limit_bytes)
        del piece


class _TooLargeError(CorruptionError):
    """A stream decompresses to more than the limit. Readers take it for damage; who appends it is told."""


_NO_MEMORY: Final = ("Allocation error", "allocation_failed", "Error -4 ")
"""What the errors of zstd, lz4 and zlib say if there was no memory. Their classes do not tell."""


def is_without_memory(error: Exception) -> bool:
    """Whether a codec's library has failed because there was no memory."""
    return any(words in str(error) for words in _NO_MEMORY)


def failure(what: str, error: Exception) -> CorruptionError | MemoryError:
    """What to raise where a codec's library has failed. Sound data must not be called damaged, which readers
    would skip."""
    if is_without_memory(error):
        return MemoryError(f"there is no memory to decompress a {what}: {error}")
    return CorruptionError(f"damaged {what}: {error}")


def too_large(limit_bytes: int, reason: str = "") -> CorruptionError:
    """The error that every codec raises for a stream that would pass the limit."""
    return _TooLargeError(reason or f"the records decompress to more than the limit of {limit_bytes} bytes")


def is_too_large(fault: CorruptionError) -> bool:
    """Whether a batch could not be decoded because its records decompress to more than the limit."""
    return isinstance(fault, _TooLargeError) or isinstance(fault.__cause__, _TooLargeError)
