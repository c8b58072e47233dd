"""What clients are told of errors in words. They may be strangers: they hear what is wrong with what they
ask, and neither where the files are nor what else there is. What the disk has said goes to the log in place
of them, for who runs the broker.

Every answer passes here, whatever its handler has put into it. Where the files are is asked for by name
(DescribeLogDirs), and is no error.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.format.messages.declared import Array, fields_of
from logstore.warning import is_due, warn

_MESSAGE: Final = "error_message"
_CODE: Final = "error_code"
_INSTEAD: Final = {
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk refuses it",
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker has failed",
}
"""Codes that say enough: the words are for who runs the broker."""
_told_at: dict[str, float] = {}
"""When the log last heard of a disk that refuses, by the path of the store: clients try again several times a
second."""
_SEGMENT_FILE: Final = re.compile(r"([\w.-]+)/\d{20}(?:\.\w+)+")


class _Plan(NamedTuple):
    """Where a message, or a part of it, has words."""

    words: tuple[tuple[str, str | None], ...]
    """The fields, each with that of its code, if there is one."""
    parts: tuple[tuple[str, _Plan], ...]
    """Fields that have many parts with words."""


@functools.cache
def _plan_of(kind: Any) -> _Plan | None:
    """None if there are no words in it."""
    fields = fields_of(kind)
    names = {field.name for field in fields}
    words, parts = [], []
    for field in fields:
        if field.name.endswith(_MESSAGE):
            code = field.name.removesuffix(_MESSAGE) + _CODE
            words.append((field.name, code if code in names else None))
        elif isinstance(field.type, Array):
            element: Any = field.type.element
            part = _plan_of(element) if isinstance(element, type) else None
            if part is not None:
                parts.append((field.name, part))
    return _Plan(tuple(words), tuple(parts)) if words or parts else None


def for_clients(response: Any, store_path: str) -> Any:
    """The response as a client gets it. ``store_path``: where the store's files are."""
    kind: Any = type(response)
    plan = _plan_of(kind)
    if plan is None:
        return response
    told = _told(response, plan, store_path)
    return response if told is None else told


def _told(value: Any, plan: _Plan, store_path: str) -> Any:
    """What is told in place of ``value``; None if that is the value itself, as nearly always."""
    changes: dict[str, Any] | None = None
    for name, code in plan.words:
        text = getattr(value, name)
        if text:
            words = words_for(text, None if code is None else getattr(value, code), store_path)
            if words != text:
                changes = {**(changes or {}), name: words}
    for name, part in plan.parts:
        items = getattr(value, name)
        told: list[Any] | None = None
        for at, each in enumerate(items or ()):
            new = _told(each, part, store_path)
            if new is not None:
                told = told or list(items)
                told[at] = new
        if told is not None:
            changes = {**(changes or {}), name: tuple(told)}
    return None if changes is None else value._replace(**changes)


def words_for(text: str, code: int | None, store_path: str) -> str:
    """What a client is told in place of ``text``."""
    instead = _INSTEAD.get(code)  # type: ignore[call-overload]  # an IntEnum is its number
    if instead is not None:
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            _tell(text, store_path)
        return str(instead)
    if len(store_path) > 1 and store_path in text:
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # what follows are names of other topics
            text = text.partition(f" in {store_path}")[0]
        text = text.replace(f"{store_path}/", "").replace(store_path, "the store")
    return _SEGMENT_FILE.sub(r"\1", text)


def _tell(text: str, store_path: str) -> None:
    if is_due(_told_at, store_path):
        warn("clients are told that the disk refuses it: %s", text)
