"""The types of which Kafka's messages are declared.

A message is a ``NamedTuple`` whose annotations say, for the type checker and for the encoder alike, what each
field is::

    class OffsetCommitValue(NamedTuple):
        offset: Int64 = -1
        leader_epoch: Annotated[Int32, since(3)] = -1
        metadata: String = ""

Fields are encoded in the order of their declaration. One that a version does not have is left out, and gets
its default when it is read; one that is declared with ``needs`` must not be set in such a version.
``X | None`` may be null, ``tuple[X, ...]`` is an array, another such class is a struct. See Kafka's protocol
guide for the encodings, and KIP-482 for flexible versions and tagged fields.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Final, NamedTuple

from logstore.model import Bytes

_LAST: Final = 32_767


class Fixed(NamedTuple):
    """A type of fixed size: its name, and its code in :mod:`struct`."""

    name: str
    code: str


class Sized(NamedTuple):
    """A type that begins with its length."""

    name: str
    is_text: bool
    short: bool
    """Whether the length takes 16 bits in versions that are not flexible, and not 32."""
    is_view: bool = False
    """Whether reading gives a memoryview of what was read, and not a copy."""
    is_classic: bool = False
    """Whether the length is as in versions that are not flexible, in all versions."""


class Versions(NamedTuple):
    """The versions that have a field."""

    first: int = 0
    last: int = _LAST
    is_needed: bool = False
    """Whether the others cannot encode a message in which it is set."""

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        if self.last == _LAST:
            return f"{self.first}+"
        return f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"

    def both(self, other: Versions) -> Versions:
        """The versions that are in both."""
        last, is_needed = min(self.last, other.last), self.is_needed or other.is_needed
        return Versions(max(self.first, other.first), last, is_needed)


class Nullable(NamedTuple):
    """The first version in which a field may be null."""

    first: int


class Tagged(NamedTuple):
    """A field of the tagged section, which is left out while it has its default."""

    tag: int


def since(first: int) -> Versions:
    """Versions from ``first`` on have the field."""
    return Versions(first)


def until(last: int) -> Versions:
    """Versions up to and including ``last`` have the field."""
    return Versions(0, last)


def needs(first: int, last: int = _LAST) -> Versions:
    """Versions ``first`` to ``last`` have the field, and it means too much to leave it out silently."""
    return Versions(first, last, is_needed=True)


def null_since(first: int) -> Nullable:
    """Versions from ``first`` on allow null."""
    return Nullable(first)


OWN_TAG: Final = 10_000
"""The tag of logstore's own field, in messages that have one. Kafka numbers its tags from 0, and passes over
those that it does not know."""


def tagged(tag: int) -> Tagged:
    """The field is tagged."""
    return Tagged(tag)


Bool = Annotated[bool, Fixed("bool", "?")]
Int8 = Annotated[int, Fixed("int8", "b")]
Int16 = Annotated[int, Fixed("int16", "h")]
Uint16 = Annotated[int, Fixed("uint16", "H")]
Int32 = Annotated[int, Fixed("int32", "i")]
Int64 = Annotated[int, Fixed("int64", "q")]
Float64 = Annotated[float, Fixed("float64", "d")]
Uuid = Annotated[uuid.UUID, Fixed("uuid", "16s")]
String = Annotated[str, Sized("string", is_text=True, short=True)]
ClassicString = Annotated[str, Sized("string", is_text=True, short=True, is_classic=True)]
Data = Annotated[bytes, Sized("bytes", is_text=False, short=False)]
Records = Annotated[Bytes, Sized("records", is_text=False, short=False, is_view=True)]
"""Encoding passes on the very object; reading gives a memoryview."""

ALL_VERSIONS: Final = Versions()
NO_UUID = uuid.UUID(int=0)
