"""A partition that is used alone: its directory is its own store.

Beside its segments it has the files that a store keeps for many partitions: the lock, the checkpoints, the
clean-shutdown marker. Kafka and a store ignore these files in a partition's directory.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig, check_topic_config
from logstore.errors import ClosedError, InvalidTopicError, UsageError
from logstore.files import Files, PathLike, check_path
from logstore.format.names import parse_directory_name
from logstore.model import Role, TopicPartition
from logstore.partition.arguments import check_timeout
from logstore.partition.recovery.loader import load_log
from logstore.partition.state.context import LogContext, make_context
from logstore.partition.state.home import LOCK_NAME, STORE_NAMES
from logstore.partition.writing.writer import LogWriter

_UNNAMED = TopicPartition("log", 0)
"""The name of a partition whose directory is not called ``<topic>-<partition>``."""


T = TypeVar("T")


def open_standalone(
    face: Callable[[LogWriter], T],
    path: PathLike,
    *,
    config: TopicConfig | None,
    store_config: StoreConfig | None,
    files: Files | None,
    clock: Clock | None,
    create: bool,
    accept_loss: bool,
    timeout: float | None,
) -> T:
    """See :meth:`Log.open`. ``face`` wraps the writer here: until there is something to close, an interrupt
    must release the lock."""
    check_topic_config(config)
    timeout = None if timeout is None else check_timeout(timeout)
    context = make_context(check_path(path), config=store_config, files=files, clock=clock)
    _check_place(context, create)
    try:
        context.home.acquire(timeout)
        return face(_open_held(context, config or context.config.topic, accept_loss))
    except BaseException:
        try:
            context.scheduler.stop()
        finally:
            context.home.release()
        raise


def _check_place(context: LogContext, create: bool) -> None:
    files, directory = context.files, context.home.path
    if files.is_file(f"{directory.rpartition('/')[0]}/{LOCK_NAME}"):
        raise UsageError(f"{directory} belongs to the store around it; open that with logstore.open()")
    if not files.is_directory(directory):
        if not create:
            raise UsageError(f"{directory} does not exist")
        files.make_directory(directory)
        files.flush_directory(directory.rpartition("/")[0] or "/")
    elif not STORE_NAMES.isdisjoint(entry.name for entry in files.list_directory(directory)):
        # its checkpoints are for many partitions, and a log would overwrite them with its own
        raise UsageError(f"{directory} is a store; open it with logstore.open(), and use one of its logs")


def _open_held(context: LogContext, config: TopicConfig, accept_loss: bool) -> LogWriter:
    partition = name_of(context.home.path)
    context.home.load()
    is_clean = context.home.take_clean_marker()
    directory = context.home.path
    loaded = load_log(context, directory, partition, config, is_clean=is_clean, accept_loss=accept_loss)
    log = LogWriter(context, directory, partition, config, loaded)
    log.settle()
    if not loaded.report.was_clean:
        context.home.store_checkpoints()
    if log.core.active.has_rest:  # after a crash
        context.scheduler.after(0, f"clear {partition}", log.durability.clear_rest, is_waiting=True)
    closing = threading.Lock()
    log.on_close = lambda: _close(context, log, closing)
    interval_ms = context.config.log_flush_offset_checkpoint_interval_ms
    context.scheduler.every(interval_ms, f"checkpoint {partition}", lambda: _checkpoint(log))
    interval_ms = context.config.replica_high_watermark_checkpoint_interval_ms
    store_high_watermark = partial(_store_high_watermark, context, log)
    context.scheduler.every(interval_ms, f"high watermark {partition}", store_high_watermark)
    return log


def _store_high_watermark(context: LogContext, log: LogWriter) -> None:
    """Store the high watermark of a replicated log: readers in other processes and the next open use it. For
    a log that is alone, the next checkpoint is soon enough."""
    home, offset = context.home, log.core.known_high_watermark
    if log.core.role is not Role.ALONE and home.high_watermark(log.partition) != offset:
        home.store_high_watermark(log.partition, offset)


def _checkpoint(log: LogWriter) -> None:
    with contextlib.suppress(ClosedError):  # closing stores one
        log.durability.checkpoint()


def _close(context: LogContext, log: LogWriter, closing: threading.Lock) -> None:
    """Store everything and release the directory. ``closing`` lets only one of two threads write the marker:
    the other would write it after the directory's lock is released."""
    with closing:
        if not context.home.is_held:
            return
        context.scheduler.stop()
        try:
            if log.guard.failure is None:
                context.home.store_checkpoints()
                context.home.put_clean_marker()
        finally:
            context.home.release()


def name_of(directory: str) -> TopicPartition:
    """The partition in a directory's name."""
    try:
        parsed = parse_directory_name(directory.rpartition("/")[2])
    except InvalidTopicError:
        return _UNNAMED
    return TopicPartition(parsed.topic, parsed.partition)
