"""What a later release might send: the same messages, with one more tagged field in each of their structs."""

from __future__ import annotations

import functools
import typing
from collections import namedtuple
from typing import Annotated

from logstore.format.messages.fields import String, tagged
from logstore.format.messages.message import Message

UNKNOWN_TAG = 9000
UNKNOWN = Annotated[String, tagged(UNKNOWN_TAG)]


def is_struct(hint):
    return isinstance(hint, type) and hasattr(hint, "_fields")


@functools.cache
def newer(kind):
    """The struct with one more field."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [*kind._fields, "unknown"]
    defaults = [with_unknown(kind._field_defaults[name]) for name in kind._fields]
    made = namedtuple(kind.__name__, fields, defaults=[*defaults, ""])
    made.__annotations__ = {name: with_newer(hint) for name, hint in hints.items()} | {"unknown": UNKNOWN}
    return made


def with_newer(hint):
    """The type with every struct in it replaced."""
    if is_struct(hint):
        return newer(hint)
    if extras := getattr(hint, "__metadata__", ()):
        return Annotated[(with_newer(hint.__origin__), *extras)]
    if typing.get_origin(hint) is tuple:
        return tuple[with_newer(typing.get_args(hint)[0]), ...]
    if type(None) in typing.get_args(hint):
        (given,) = (one for one in typing.get_args(hint) if one is not type(None))
        return with_newer(given) | None
    return hint


def with_unknown(value):
    return newer(type(value))(*map(with_unknown, value)) if is_struct(type(value)) else value


def without_unknown(value, kind):
    """The message as a release reads it that does not know the field."""
    if is_struct(type(value)):
        kind = struct_in(kind)
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(
            *(without_unknown(one, hints[name]) for name, one in zip(kind._fields, value[:-1], strict=True))
        )
    if isinstance(value, tuple):
        return tuple(without_unknown(one, kind) for one in value)
    return value


def struct_in(hint):
    """The struct that a type is made of, if it is."""
    if is_struct(hint):
        return hint
    inner = getattr(hint, "__origin__", None) if hasattr(hint, "__metadata__") else None
    return next(filter(None, map(struct_in, filter(None, (inner, *typing.get_args(hint))))), None)


def newer_message(message):
    return Message(newer(message.kind), message.first, message.last, flexible=message.flexible)
