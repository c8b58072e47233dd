"""Times and offsets as they are typed and shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

import typer

from logstore.clock import SystemClock
from logstore.model import NO_TIMESTAMP_MS, datetime_of, milliseconds_since_epoch

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"-(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h|d|w)", re.ASCII)
_HOW = (
    "give an offset (1500), a time in ISO 8601 (2026-11-23T22:48:07Z, UTC unless it says otherwise), "
    "milliseconds since 1970 (1795474087000ms), or how long ago (-90s, -1h, -2d)"
)


class Place(NamedTuple):
    """A place in a log: an offset, or the first record at or after a time."""

    offset: int | None
    timestamp_ms: int | None


def parse_place(text: str) -> Place:
    """
    Raises:
        BadParameter: it is neither an offset nor a time.
    """
    if re.fullmatch(r"\d{1,19}", text, re.ASCII):
        return Place(int(text), None)
    if re.fullmatch(r"\d{1,19}ms", text, re.ASCII):
        return Place(None, int(text[:-2]))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        before_ms = int(float(ago[1]) * _UNITS_MS[ago[2]])
        return Place(None, max(SystemClock().now_ms() - before_ms, 0))
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        timestamp_ms = milliseconds_since_epoch(moment)
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{text!r} is neither an offset nor a time; {_HOW}") from None
    if timestamp_ms < 0:
        raise typer.BadParameter(f"{text!r} is before 1970")
    return Place(None, timestamp_ms)


class Target(NamedTuple):
    """Where a group is to go on."""

    end: str | None
    """``earliest`` or ``latest``."""
    place: Place | None


def parse_target(text: str) -> Target:
    """
    Raises:
        BadParameter: it is neither an end of the log, nor an offset or a time.
    """
    if text in ("earliest", "latest"):
        return Target(text, None)
    try:
        return Target(None, parse_place(text))
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}, or earliest or latest") from None


def format_time(timestamp_ms: int | None) -> str | None:
    """``2026-11-23T22:48:07.000Z``; None for no time, the number for one outside 1970 to 9999."""
    if timestamp_ms is None or timestamp_ms == NO_TIMESTAMP_MS:
        return None
    try:
        moment = datetime_of(timestamp_ms)
    except OverflowError:
        moment = None
    if moment is None:
        return f"{timestamp_ms}ms"
    return f"{moment.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
