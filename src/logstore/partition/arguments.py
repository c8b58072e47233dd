"""Checks for the arguments of a log's methods.

It knows what an offset, a count, an isolation and a buffer may be, but not which of them a log has.
"""

from __future__ import annotations

from logstore.arguments import shown
from logstore.errors import OffsetOutOfRangeError, UsageError
from logstore.model import Bytes, Isolation, how_to_make_int

LONGEST_TIMEOUT = 1e9
"""In seconds. A longer timeout counts as this long, which is practically forever."""

MAX_EPOCH = 2**31 - 1
"""The largest leader epoch."""


def check_offset(offset: int, name: str) -> int:
    """
    Raises:
        UsageError: not a whole number.
        OffsetOutOfRangeError: negative, or beyond 64 bits.
    """
    if type(offset) is not int:
        raise UsageError(f"{name} is {shown(offset)}; it must be a whole number{how_to_make_int(offset)}")
    if not 0 <= offset < 2**63:
        raise OffsetOutOfRangeError(f"{name} is {shown(offset)}; offsets are from 0 to 2^63 - 1")
    return offset


def check_count(value: int, name: str) -> None:
    """
    Raises:
        UsageError: not a whole number, 1 or above.
    """
    if type(value) is not int or value < 1:
        raise UsageError(
            f"{name} is {shown(value)}; it must be a whole number, 1 or above{how_to_make_int(value)}"
        )


def check_epoch(epoch: int | None) -> None:
    """
    Raises:
        UsageError: neither None nor a leader epoch, 0 to 2^31 - 1.
    """
    if epoch is not None and (type(epoch) is not int or not 0 <= epoch <= MAX_EPOCH):
        raise UsageError(
            f"leader_epoch is {shown(epoch)}; it must be a number from 0 to {MAX_EPOCH}"
            + how_to_make_int(epoch)
        )


def check_timeout(timeout: float, name: str = "timeout") -> float:
    """
    Raises:
        UsageError: not a number of seconds, 0 or above.
    """
    if type(timeout) not in (int, float) or not timeout >= 0:
        raise UsageError(f"{name} is {shown(timeout)}; it must be a number of seconds, 0 or above")
    return min(timeout, LONGEST_TIMEOUT)


def check_isolation(isolation: Isolation) -> None:
    """
    Raises:
        UsageError: it is not an :class:`~logstore.model.Isolation`.
    """
    if not isinstance(isolation, Isolation):
        names = ", ".join(f"Isolation.{each.name}" for each in Isolation)
        raise UsageError(f"isolation is {shown(isolation)}; it must be one of {names}")


def check_buffer(data: Bytes) -> Bytes:
    """The data itself; an instance of a subclass as plain bytes.

    Raises:
        UsageError: it is not bytes-like, or it is a memoryview of anything but contiguous bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UsageError(f"data is a {type(data).__name__}; it must be bytes")
    if isinstance(data, memoryview) and not _is_of_bytes(data):
        raise UsageError("data is a memoryview that is not of contiguous bytes, or was released")
    return data if type(data) in (bytes, bytearray, memoryview) else bytes(data)


def _is_of_bytes(data: memoryview) -> bool:
    try:
        return data.c_contiguous and data.ndim == data.itemsize == 1
    except ValueError:  # it was released
        return False
