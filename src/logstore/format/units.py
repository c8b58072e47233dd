"""Timestamps in the wrong unit: numbers that are read as milliseconds but were meant as another unit.

Take seconds, microseconds or nanoseconds since the epoch, for a time between the years 2000 and 2100. Read as
milliseconds, they lie in the first weeks of 1970 or 30,000 years from now, which is hardly ever meant.
"""

from __future__ import annotations

from typing import Final

_YEAR_2000: Final = 946_684_800
_YEAR_2100: Final = 4_102_444_800
_UNITS: Final = {"seconds": 1, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
"""How many of each make a second."""

PLAUSIBLE_FROM_MS: Final = _YEAR_2100 + 1
"""From here up to :data:`PLAUSIBLE_TO_MS`, no timestamp looks like another unit."""
PLAUSIBLE_TO_MS: Final = _YEAR_2000 * 1_000_000 - 1


def unit_of(timestamp_ms: int) -> str | None:
    """The unit that a timestamp seems to be in, if it is not milliseconds."""
    if PLAUSIBLE_FROM_MS <= timestamp_ms <= PLAUSIBLE_TO_MS:
        return None
    for unit, per_second in _UNITS.items():
        if _YEAR_2000 * per_second <= timestamp_ms <= _YEAR_2100 * per_second:
            return unit
    return None


def is_checkable(now_ms: int) -> bool:
    """Whether a clock that shows ``now_ms`` allows judging units. A clock set by hand may show any time, and
    timestamps taken from it are right."""
    return PLAUSIBLE_FROM_MS <= now_ms <= PLAUSIBLE_TO_MS


def describe(timestamp_ms: int, unit: str) -> str:
    """The rest of an error message: the unit it looks like, the date in it, and what to pass instead."""
    from datetime import UTC, datetime  # few programs get here

    seconds = timestamp_ms // _UNITS[unit]
    date = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    milliseconds = timestamp_ms * 1000 // _UNITS[unit]
    return f"looks like {unit} ({date} UTC); it must be milliseconds: {milliseconds}"
