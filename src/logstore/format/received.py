"""Memory for what comes in from elsewhere, so that it need not be copied to be stored."""

from __future__ import annotations

from typing import TypeGuard, cast

from logstore.build import compiled
from logstore.model import Bytes


class Received(bytearray):
    """Who has filled this memory gives it away, and writes there no more. In a view that can be written, its
    holder may change what it likes. What is in a view that is read-only stays as it is."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # so that a view can be hashed, as one of bytes


def grow(memory: bytearray, size_bytes: int) -> None:
    """Make it larger. What is added has any contents, and is to be written before it is read.

    With the compiled module this clears nothing, so a page takes no memory before something is written there.

    Raises:
        BufferError: there are views of it.
    """
    if compiled is not None:
        compiled.grow(memory, size_bytes)
    else:
        memory.extend(bytes(size_bytes - len(memory)))


def stays(data: Bytes) -> bool:
    """Whether the bytes can no longer change."""
    if type(data) is not memoryview:
        return type(data) is bytes
    return type(data.obj) is bytes or (type(data.obj) is Received and data.readonly)


def memory_bytes(data: memoryview) -> int:
    """How much memory a view keeps."""
    return len(cast(bytes, data.obj))


def is_given(data: Bytes) -> TypeGuard[memoryview]:
    """Whether who is given the bytes may change them."""
    return type(data) is memoryview and type(data.obj) is Received and not data.readonly
