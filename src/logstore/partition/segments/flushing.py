"""What an error in a flush tells of it."""

from __future__ import annotations

import threading

from logstore.errors import LogstoreError


def is_interrupt(error: BaseException, handled: BaseException | None) -> bool:
    """Whether a signal handler has raised it, in a flush of which no part has failed: after a failure, of
    which it would be the context, the data may be gone, and another flush proves nothing.

    Args:
        handled: the exception that was being handled when the flush began, which says nothing of it.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    cause: BaseException | None = error
    while cause is not None and cause is not handled:
        if isinstance(cause, (OSError, LogstoreError)):
            return False
        cause = cause.__context__
    return True
