"""How much memory decompression may take."""

from __future__ import annotations

from typing import Final

from logstore.errors import CorruptionError

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""The default limit of one batch's records after decompression. Kafka has none; its producers and brokers
bound a batch at 1 MiB by default, so this leaves a factor of 64 and still stops a bomb."""


def too_large(limit_bytes: int) -> CorruptionError:
    """The error of every codec for a stream that would pass the limit."""
    return CorruptionError(f"the records decompress to more than the limit of {limit_bytes} bytes")
