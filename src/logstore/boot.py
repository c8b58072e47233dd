"""Tells the starts of the machine apart."""

from __future__ import annotations

from typing import Final

_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"


def read_boot_id() -> str:
    """The id of this start of the machine; empty if the system has none, as elsewhere than on Linux."""
    try:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
