"""Encodes and decodes the messages that :mod:`~logstore.format.messages.fields` declares.

For each message and version one encoder and one decoder are generated from the declaration, when they are
first used.

Reading takes no memory on the word of a length: it is held against the bytes that are there first. Unknown
tagged fields are passed over, as KIP-482 wants.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.generating import Decoder, Encoder, Writer
from logstore.model import Bytes

T = TypeVar("T", bound=tuple[Any, ...])
_Encode = Callable[[list[Bytes], Any], None]
_Decode = Callable[[Bytes, int, int], Any]

_VERSION: Final = struct.Struct(">h")


class Message(Generic[T]):
    """A message, in the versions ``first`` to ``last``; from ``flexible`` on with KIP-482's encoding."""

    def __init__(self, kind: type[T], first: int, last: int, *, flexible: int | None = None) -> None:
        self.kind = kind
        self.first = first
        self.last = last
        self.flexible = flexible
        self._encoders: dict[int, _Encode] = {}
        self._decoders: dict[int, _Decode] = {}

    @property
    def name(self) -> str:
        """Kafka's name for it."""
        return self.kind.__name__

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return self.flexible is not None and version >= self.flexible

    def encode(self, message: T, version: int) -> bytes:
        """The message's bytes.

        Raises:
            UnsupportedVersionError: it has no such version, or one without a field that is set and needed.
            UsageError: a field does not fit: a number or a length is too large, a null is not allowed, or
                text is not Unicode.
        """
        return b"".join(self.encode_parts(message, version))

    def encode_parts(self, message: T, version: int) -> list[Bytes]:
        """The message's bytes in pieces; those of its records are the very objects that it holds. Raises as
        :meth:`encode`."""
        encode = self._encoders.get(version)
        if encode is None:
            encode = self._encoders[version] = self._compiled(version, Encoder)
        parts: list[Bytes] = []
        try:
            encode(parts, message)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{self.name} version {version} {error}") from None
        except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
            raise UsageError(f"{self.name} version {version} cannot be encoded: {error}") from None
        return parts

    def decode(self, data: Bytes, version: int, position: int = 0) -> tuple[T, int]:
        """The message at ``position``, and the position after it.

        Raises:
            UnsupportedVersionError: it has no such version.
            CorruptionError: the bytes end early, or a length is out of bounds, or text is not UTF-8.
        """
        decode = self._decoders.get(version)
        if decode is None:
            decode = self._decoders[version] = self._compiled(version, Decoder)
        try:
            decoded: tuple[T, int] = decode(data, position, len(data))
            return decoded
        except (struct.error, IndexError):
            what = "ends early"
        except UnicodeDecodeError as error:
            what = f"has text that is not UTF-8 ({error.reason})"
        except CorruptionError as error:
            what = error.reason
        raise CorruptionError(f"{self.name} version {version} {what}", position=position)

    def encode_versioned(self, message: T, version: int) -> bytes:
        """The key or the value of a record in one of Kafka's own topics: the version in two bytes, and the
        message. Raises as :meth:`encode`."""
        return _VERSION.pack(version) + b"".join(self.encode_parts(message, version))

    def decode_versioned(self, data: Bytes) -> T:
        """The message of such a key or value. Raises as :meth:`decode`."""
        return self.decode(data, version_of(data), _VERSION.size)[0]

    def _compiled(self, version: int, writer: type[Writer]) -> Any:
        if not self.first <= version <= self.last:
            raise UnsupportedVersionError(
                f"{self.name} has version {version}; {self.first} to {self.last} are known"
            )
        return writer(self.kind, version, is_flexible=self.is_flexible(version)).compiled()


def version_of(data: Bytes) -> int:
    """The version with which a key or value of Kafka's own topics begins.

    Raises:
        CorruptionError: it is too short for one.
    """
    if len(data) < _VERSION.size:
        raise CorruptionError(f"{len(data)} bytes are too few for a key or value with its version")
    return int(_VERSION.unpack_from(data)[0])
