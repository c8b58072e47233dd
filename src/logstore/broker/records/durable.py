"""Waits for several logs to be durable, without a thread for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from logstore.broker.codes import ErrorCode
from logstore.errors import LogstoreError
from logstore.model import Isolation
from logstore.partition.log import Log


def when_all_durable(waits: Sequence[tuple[Log, int]], done: Callable[[ErrorCode], object]) -> None:
    """Call ``done`` once, when each log is durable below its offset, or has failed: at once, if all are; else
    in the thread that makes the last of them durable, under its lock (see :meth:`.Log.when`)."""
    lock = threading.Lock()
    left = len(waits)
    result = ErrorCode.NONE

    def note(is_durable: bool) -> None:
        nonlocal left, result
        with lock:
            left -= 1
            if not is_durable:
                result = ErrorCode.KAFKA_STORAGE_ERROR
            is_last = not left
        if is_last:
            done(result)

    if not waits:
        done(result)
    for log, end in waits:
        try:
            log.when(end, note, isolation=Isolation.DURABLE, flush=True)
        except LogstoreError:
            note(False)
