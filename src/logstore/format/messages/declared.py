"""What the declaration of a message says: its fields, and in which versions each of them is.

Reads the classes whose annotations :mod:`~logstore.format.messages.fields` describes. What encodes, what
decodes and what documents a message all ask here.
"""

from __future__ import annotations

import functools
import struct
import types
import typing
from typing import Any, NamedTuple

from logstore.format.messages.fields import ALL_VERSIONS, Fixed, Nullable, Sized, Tagged, Versions


class Array(NamedTuple):
    """The type of a field that has many of another type."""

    element: Any
    """Fixed, Sized, or a struct's class."""


class Field(NamedTuple):
    """One field of a message or struct."""

    name: str
    type: Any
    """Fixed, Sized, Array, or a struct's class."""
    default: Any
    versions: Versions = ALL_VERSIONS
    """Those that have the field."""
    nullable: Versions | None = None
    """Those in which it may be null; None if it never may."""
    tag: int | None = None

    def is_in(self, version: int) -> bool:
        """Whether the version has the field."""
        return version in self.versions

    def is_nullable(self, version: int) -> bool:
        """Whether it may be null in the version."""
        return self.nullable is not None and version in self.nullable


@functools.cache
def fields_of(kind: Any) -> tuple[Field, ...]:
    """The fields of a message or struct, in the order in which they are encoded."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple(_field(name, hints[name], kind._field_defaults[name]) for name in kind._fields)


def smallest_size(kind: Any, version: int, *, is_flexible: bool) -> int:
    """How many bytes a value of a type takes at least, or 1: what the count of an array is held against."""
    if isinstance(kind, Fixed):
        return struct.calcsize(">" + kind.code)
    if isinstance(kind, Sized):
        return 1 if is_flexible and not kind.is_classic else 2 if kind.short else 4
    if isinstance(kind, Array):
        return 1 if is_flexible else 4
    size = int(is_flexible)
    for field in fields_of(kind):
        if field.is_in(version) and field.tag is None:
            is_struct = isinstance(field.type, type)
            nullable_struct = is_struct and field.is_nullable(version)
            size += 1 if nullable_struct else smallest_size(field.type, version, is_flexible=is_flexible)
    return max(1, size)


def _field(name: str, hint: Any, default: Any) -> Field:
    declared, extras = _without_extras(hint)
    declared, may_be_null = _without_none(declared)
    versions, nullable, tag = ALL_VERSIONS, ALL_VERSIONS if may_be_null else None, None
    for extra in extras:
        if isinstance(extra, Versions):
            versions = versions.both(extra)
        elif isinstance(extra, Nullable):
            nullable = Versions(extra.first)
        else:
            tag = extra.tag
    return Field(name, _type_of(declared), default, versions, nullable, tag)


def _without_extras(hint: Any) -> tuple[Any, list[Any]]:
    """``Annotated[X | None, since(3)]`` is ``X | None`` and [since(3)]; a plain type stays as it is."""
    ours = Versions | Tagged | Nullable
    extras = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, ours)]
    if not extras:
        return hint, []
    kept = tuple(extra for extra in hint.__metadata__ if not isinstance(extra, ours))
    return (typing.Annotated[(hint.__origin__, *kept)] if kept else hint.__origin__), extras


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        given = [one for one in typing.get_args(hint) if one is not type(None)]
        return given[0], True
    return hint, False


def _type_of(hint: Any) -> Any:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Fixed | Sized):
            return extra
    if typing.get_origin(hint) is tuple:
        return Array(_type_of(typing.get_args(hint)[0]))
    return hint
