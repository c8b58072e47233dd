"""Converts a caller's arguments to plain values before anything else uses them.

An argument may be of any type, and its methods may raise anything. So error messages must not depend on its
``__repr__``, and its ``__bool__`` must not run while a lock is held.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from logstore.errors import InvalidTimestampError, UsageError
from logstore.model import milliseconds_since_epoch

_MAX_SHOWN = 200
_MOST_NAMES = 8


def shown(value: object) -> str:
    """A wrong value as an error message shows it; the type if the value cannot be shown."""
    try:
        text = repr(value)
        return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
    except Exception:
        return f"a {type(value).__name__}"


def did_you_mean(wrong: object, known: Iterable[str]) -> str:
    """What a message adds about an unknown name: the one probably meant, or the names that exist."""
    import difflib  # few programs get here

    names = sorted(known)
    if not names:
        return "; there are none"
    if isinstance(wrong, str):
        folded = {_folded(name): name for name in names}
        alike = difflib.get_close_matches(wrong, names, 1)
        alike = alike or [folded[each] for each in difflib.get_close_matches(_folded(wrong), folded, 1)]
        if alike:
            return f"; did you mean {alike[0]!r}?"
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"; there are {', '.join(map(repr, names[:_MOST_NAMES]))}{more}"


def _folded(name: str) -> str:
    """The same for each way to write it: ``FIND_COORDINATOR``, ``FindCoordinator``, ``find.coordinator``."""
    return "".join(filter(str.isalnum, name)).casefold()


def check_flag(value: object, name: str) -> bool:
    """
    Raises:
        UsageError: it cannot be taken as true or false.
    """
    if value is True or value is False:
        return value
    try:
        return bool(value)
    except Exception:
        raise UsageError(f"{name} is a {type(value).__name__}; it must be True or False") from None


def check_flags(**flags: object) -> list[bool]:
    """:func:`check_flag` for each of several."""
    return [check_flag(value, name) for name, value in flags.items()]


def check_callable(value: Any, name: str) -> None:
    """
    Raises:
        UsageError: it cannot be called.
    """
    if not callable(value):
        raise UsageError(f"{name} is {shown(value)}; it must be callable")


def check_callback(value: Any, name: str) -> None:
    """
    Raises:
        UsageError: it is not None and cannot be called.
    """
    if value is not None and not callable(value):
        raise UsageError(f"{name} is {shown(value)}; it must be a function, or None")


def check_list(value: Any, name: str, of: str) -> None:
    """
    Raises:
        UsageError: it is no list, or a single text, whose letters would be taken for its items.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise UsageError(f"{name} is {shown(value)}; it must be a list of {of}")


def check_least(name: str, value: Any, least: int) -> None:
    """
    Raises:
        UsageError: ``value`` is no whole number, or below ``least``.
    """
    if type(value) is not int or value < least:
        raise UsageError(f"{name} is {shown(value)}; it must be a whole number, {least} or above")


def milliseconds_of(when: datetime, name: str) -> int:
    """Whole milliseconds since the epoch, rounded down.

    Raises:
        InvalidTimestampError: it has no time zone, or is not a time (``pandas.NaT``).
    """
    try:
        has_zone = when.utcoffset() is not None
        if has_zone:
            return int(milliseconds_since_epoch(when))
    except Exception as error:
        raise InvalidTimestampError(f"{name} is {shown(when)}, which is not a time: {shown(error)}") from None
    raise InvalidTimestampError(
        f"{name} is {shown(when)}, a datetime without a time zone; when.astimezone() makes it local time, "
        "when.replace(tzinfo=timezone.utc) UTC"
    )


def plain_text(value: Any) -> Any:
    """An instance of a subclass of ``str`` as plain text; anything else unchanged."""
    return str.__str__(value) if isinstance(value, str) and type(value) is not str else value


def utf8_bytes(text: str) -> int:
    """How many bytes text has in UTF-8; 0 if UTF-8 cannot hold it (half of a surrogate pair)."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0
