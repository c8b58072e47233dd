"""Warnings: what was found wrong, and mended, replaced or left out. They go to the logger ``logstore``."""

from __future__ import annotations

from contextlib import suppress


def warn(message: str, *values: object) -> None:
    """Log a warning; ``values`` fill the message's places as in the standard library's ``logging``.

    Where ``logging`` cannot even be imported, for want of file descriptors, or where what a program has added
    to it fails, the warning is lost: the error that is being handled is worth more, and the work to be done.
    """
    with suppress(Exception):
        import logging  # takes as long to import as all of the format layer, and few programs get here

        logging.getLogger("logstore").warning(message, *values, stacklevel=2)
