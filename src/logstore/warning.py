"""What the log of the program is told, through the standard library's ``logging``: what was found wrong, and
mended, replaced or left out, as warnings; and each deletion, one line an operation, at the level INFO.

The logger is that of the calling module, below ``logstore``. No handler is installed: where the program sets
none up, Python shows warnings on stderr and nothing else.
"""

from __future__ import annotations

import sys
from contextlib import suppress


def warn(message: str, *values: object) -> None:
    """Log a warning; ``values`` fill the message's places as in the standard library's ``logging``.

    Where ``logging`` cannot even be imported, for want of file descriptors, or where what a program has added
    to it fails, the warning is lost: the error that is being handled is worth more, and the work to be done.
    """
    with suppress(Exception):
        import logging  # takes as long to import as all of the format layer, and few programs get here

        logging.getLogger(_caller()).warning(message, *values, stacklevel=2)


def inform(message: str, *values: object) -> None:
    """Log at the level INFO, as :func:`warn`. Where nobody has imported ``logging`` nobody has a handler for
    that level, and it costs nothing."""
    logging = sys.modules.get("logging")
    if logging is not None:
        with suppress(Exception):
            logging.getLogger(_caller()).info(message, *values, stacklevel=2)


def _caller() -> str:
    """The module that calls the caller of this."""
    return str(sys._getframe(2).f_globals["__name__"])
