"""Settings of Kafka's topics that logstore does not have, at the values that ask for nothing.

Tools that make a topic like another one, with all that is said of it, name them as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from logstore.config import KAFKAS_OTHERS

T = TypeVar("T", str, str | None)


def without_idle(settings: Mapping[str, T]) -> dict[str, T]:
    """Those that ask for something; None deletes one. With another value such a setting is refused by its
    name, as one that there is not."""
    return {
        name: value
        for name, value in settings.items()
        if value is None or KAFKAS_OTHERS.get(name) != value.strip().lower()
    }
