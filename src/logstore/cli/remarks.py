"""What the engine warns of, on standard error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from logstore.cli import streams


@contextmanager
def on_standard_error() -> Iterator[None]:
    """What the engine warns of goes to standard error, escaped as all else."""
    logger, remarks = logging.getLogger("logstore"), _Remarks(logging.WARNING)
    logger.addHandler(remarks)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(remarks)


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        streams.tell(f"warning: {record.getMessage()}")
