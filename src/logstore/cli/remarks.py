"""What the engine warns of, on standard error, and how far a long opening has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from logstore.cli import streams

if TYPE_CHECKING:
    from logstore.logdir.open_logs import OpenProgress

_BETWEEN_SECONDS: Final = 2.0


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


def of_opening(path: str, *, now: Callable[[], float] = time.monotonic) -> Callable[[OpenProgress], None]:
    """Tells every two seconds how far the opening of a directory has come: after a crash thousands of
    partitions take longer, and nothing else says that the program is at work."""
    told_at = now()

    def tell(progress: OpenProgress) -> None:
        nonlocal told_at
        if now() - told_at >= _BETWEEN_SECONDS:
            told_at = now()
            streams.tell(f"opening {path}: {progress.done_count} of {progress.total_count} partitions")

    return tell


class _Remarks(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        streams.tell(f"warning: {record.getMessage()}")


@contextmanager
def with_audit() -> Iterator[None]:
    """Calls that are refused and logins that fail go there, too, each with its time."""
    from logstore.wire.security.audit import LOGGER  # of a listener, which most commands have not

    logger, audit = logging.getLogger(LOGGER), _Audit(logging.INFO)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(audit)
    try:
        yield
    finally:
        logger.removeHandler(audit)
        logger.setLevel(before)


class _Audit(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        told_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        streams.tell(f"audit: {told_at} {record.getMessage()}")
