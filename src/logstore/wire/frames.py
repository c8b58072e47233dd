"""Frames: how messages are told apart on a connection. Each is preceded by its size in four bytes.

Bytes in, frames out; frames in, pieces out. Nothing here reads or writes a socket.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable
from typing import Final

from logstore.errors import CorruptionError, UsageError
from logstore.format.messages.message import Part
from logstore.model import Bytes

MAX_FRAME_BYTES: Final = 100 * 2**20
"""What Kafka's ``socket.request.max.bytes`` is by default."""
_LARGE_BYTES: Final = 4096
"""Pieces of this size and above are sent as they are; smaller ones are joined, as a call of its own for each
would cost more than the copy."""
_SIZE: Final = struct.Struct(">i")
_INT32_MAX: Final = 2**31 - 1


class FrameReader:
    """Cuts what arrives on a connection into frames.

    A frame that lies whole in what was fed is not copied. The beginning of one that does not is kept, and
    grows as its bytes arrive: the size that it announces takes no memory.
    """

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._begun = bytearray()

    @property
    def missing_bytes(self) -> int:
        """How many bytes at least are still to come of the frame that has begun: as many can be received at
        once. 0 between frames, where a connection may end."""
        if not self._begun:
            return 0
        whole = _SIZE.size
        if len(self._begun) >= whole:
            whole += self._size_at(self._begun, 0)
        return whole - len(self._begun)

    def feed(self, data: Bytes) -> list[memoryview]:
        """The frames that are whole with these bytes, without their sizes. They are views of the bytes, which
        are to stay as they are.

        Raises:
            CorruptionError: a size is negative, or larger than is allowed. What follows cannot be read; the
                connection is to be closed.
        """
        view = memoryview(data)
        frames: list[memoryview] = []
        position = self._complete(view, frames) if self._begun else 0
        while len(view) - position >= _SIZE.size:
            start = position + _SIZE.size
            end = start + self._size_at(view, position)
            if end > len(view):
                break
            frames.append(view[start:end])
            position = end
        self._begun += view[position:]
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add to the frame that has begun, and return the position after what it has taken."""
        position = 0
        while wanted := self.missing_bytes:
            if position == len(view):
                return position
            taken = view[position : position + wanted]
            self._begun += taken
            position += len(taken)
        frames.append(memoryview(self._begun)[_SIZE.size :])
        self._begun = bytearray()
        return position

    def _size_at(self, data: Bytes, position: int) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if not 0 <= size <= self._max_bytes:
            raise CorruptionError(f"a frame of {size} bytes; 0 to {self._max_bytes} are allowed")
        return size


def encode_frame(parts: Iterable[Part]) -> list[Part]:
    """The pieces of a frame, from those of a message: small ones joined, large ones and those that are
    elsewhere the same objects.

    Raises:
        UsageError: they have more than 2³¹ - 1 bytes together.
    """
    parts = list(parts)
    sizes = list(map(len, parts))
    total = sum(sizes)
    if total > _INT32_MAX:
        raise UsageError(f"a frame of {total} bytes; {_INT32_MAX} are allowed")
    if max(sizes, default=0) < _LARGE_BYTES:
        with contextlib.suppress(TypeError):  # one of them is elsewhere
            return [b"".join([_SIZE.pack(total), *parts])]  # type: ignore[list-item]  # which is what it says
    return _told_apart(parts, _SIZE.pack(total))


def _told_apart(parts: list[Part], size: bytes) -> list[Part]:
    pieces: list[Part] = []
    small: list[Bytes] = [size]
    for part in parts:
        if isinstance(part, (bytes, bytearray, memoryview)) and len(part) < _LARGE_BYTES:
            small.append(part)
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(part)
    if small:
        pieces.append(b"".join(small))
    return pieces
