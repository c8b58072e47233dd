"""Warnings: what was found wrong, and mended, replaced or left out. They go to the logger ``logstore``."""

from __future__ import annotations


def warn(message: str, *values: object) -> None:
    """Log a warning; ``values`` fill the message's places as in the standard library's ``logging``."""
    import logging  # takes as long to import as all of the format layer, and few programs get here

    logging.getLogger("logstore").warning(message, *values, stacklevel=2)
