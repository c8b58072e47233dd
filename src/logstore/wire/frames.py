"""Frames: how messages are told apart on a connection. Each is preceded by its size in four bytes.

Bytes in, frames out; frames in, pieces out. Nothing here reads or writes a socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from logstore.errors import CorruptionError, UsageError
from logstore.format.received import Received, grow
from logstore.model import Bytes

MAX_FRAME_BYTES: Final = 100 * 2**20
"""What Kafka's ``socket.request.max.bytes`` is by default."""
_LARGE_BYTES: Final = 4096
"""Pieces of this size and above are sent as they are; smaller ones are joined, as a call of its own for each
would cost more than the copy."""
_ROOMY_BYTES: Final = 16 * 1024
"""So much of a frame has to be there before there is room for more than that: a client that only begins takes
no memory."""
_ROOM_TIMES: Final = 4
_SIZE: Final = struct.Struct(">i")
_TLS: Final = frozenset({0x1503, 0x1603})
"""How an alert and a handshake of TLS begin."""
_INT32_MAX: Final = 2**31 - 1


class FrameReader:
    """Cuts what arrives on a connection into frames.

    A frame that lies whole in what was fed is not copied. The beginning of one that does not is kept, and
    grows as its bytes arrive: the size that it announces takes no memory. What is still to come of a large
    one can be received where it belongs (:meth:`room`), without a copy, and is the caller's own in the end
    (:class:`~logstore.format.received.Received`).
    """

    def __init__(self, *, max_bytes: int = MAX_FRAME_BYTES, setting: str = "") -> None:
        """``setting``: the name of the one that says ``max_bytes``, for errors."""
        self.max_bytes = max_bytes
        """The largest frame that is taken."""
        self._setting = f" ({setting})" if setting else ""
        self._begun = Received()
        """The beginning of a frame, and room behind it."""
        self._filled_bytes = 0
        """Of what has begun; the rest is room."""
        self.fault: CorruptionError | None = None
        """Why nothing can be read behind the frames that were returned last."""
        self.is_tls = False
        """Whether that looks like TLS."""

    @property
    def missing_bytes(self) -> int:
        """How many bytes at least are still to come of the frame that has begun: as many can be received at
        once. 0 between frames, where a connection may end."""
        return self._whole_bytes - self._filled_bytes if self._filled_bytes else 0

    @property
    def _whole_bytes(self) -> int:
        """Of the frame that has begun, with its size, as far as it is known."""
        if self._filled_bytes < _SIZE.size:
            return _SIZE.size
        return _SIZE.size + self._size_at(self._begun, 0)

    def room(self) -> memoryview | None:
        """Where to receive what comes next of a large frame that has begun; say by :meth:`fill` how much that
        was. Up to three times as much as there is of it. None for all else: feed that."""
        if self._filled_bytes < _ROOMY_BYTES:
            return None
        if self._filled_bytes == len(self._begun):
            grow(self._begun, min(self._whole_bytes, _ROOM_TIMES * self._filled_bytes))
        return memoryview(self._begun)[self._filled_bytes :]

    def fill(self, size_bytes: int) -> list[memoryview]:
        """So many bytes have come into :meth:`room`. Returns the frame if it is whole with them."""
        self._filled_bytes += size_bytes
        return [] if self.missing_bytes else [self._take_begun()]

    def feed(self, data: Bytes) -> list[memoryview]:
        """The frames that are whole with these bytes, without their sizes. They are views of the bytes, which
        are to stay as they are.

        Raises:
            CorruptionError: a size is negative, or larger than is allowed. What follows cannot be read; the
                connection is to be closed. Behind whole frames it is :attr:`fault`, for after these.
        """
        view = memoryview(data)
        frames: list[memoryview] = []
        position = self._complete(view, frames) if self._filled_bytes else 0
        while len(view) - position >= _SIZE.size:
            start = position + _SIZE.size
            try:
                end = start + self._size_at(view, position)
            except CorruptionError as fault:
                if not frames:
                    raise
                self.fault = fault
                return frames
            if end > len(view):
                break
            frames.append(view[start:end])
            position = end
        if position < len(view):
            self._add(view[position:])
        return frames

    def _complete(self, view: memoryview, frames: list[memoryview]) -> int:
        """Add to the frame that has begun, and return the position after what it has taken."""
        position = 0
        while wanted := self.missing_bytes:
            if position == len(view):
                return position
            taken = view[position : position + wanted]
            self._add(taken)
            position += len(taken)
        frames.append(self._take_begun())
        return position

    def _add(self, piece: memoryview) -> None:
        """To what has begun."""
        end = self._filled_bytes + len(piece)
        if end > len(self._begun):
            grow(self._begun, end)
        memoryview(self._begun)[self._filled_bytes : end] = piece
        self._filled_bytes = end

    def _take_begun(self) -> memoryview:
        frame = memoryview(self._begun)[_SIZE.size : self._filled_bytes]
        self._begun, self._filled_bytes = Received(), 0
        return frame

    def _size_at(self, data: Bytes, position: int) -> int:
        size: int = _SIZE.unpack_from(data, position)[0]
        if not 0 <= size <= self.max_bytes:
            self.is_tls = size >> 16 in _TLS
            raise CorruptionError(
                f"a frame of {size} bytes; 0 to {self.max_bytes} are allowed{self._setting}"
                f"{'; it looks like TLS' if self.is_tls else ''}"
            )
        return size


def encode_frame(parts: Iterable[Bytes]) -> list[Bytes]:
    """The pieces of a frame, from those of a message: small ones joined, large ones the same objects.

    Raises:
        UsageError: they have more than 2³¹ - 1 bytes together.
    """
    parts = list(parts)
    sizes = list(map(len, parts))
    total = sum(sizes)
    if total > _INT32_MAX:
        raise UsageError(f"a frame of {total} bytes; {_INT32_MAX} are allowed")
    pieces: list[Bytes] = []
    small: list[Bytes] = [_SIZE.pack(total)]
    start = 0
    for at in [number for number, size_bytes in enumerate(sizes) if size_bytes >= _LARGE_BYTES]:
        small += parts[start:at]
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(parts[at])
        start = at + 1
    small += parts[start:]
    if small:
        pieces.append(b"".join(small))
    return pieces
