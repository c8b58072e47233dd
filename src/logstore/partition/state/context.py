"""What a log gets from its opener: the disk, the time, the background thread, the shared caches."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from logstore import build
from logstore.clock import Clock, SystemClock
from logstore.config import StoreConfig, check_store_config
from logstore.files import Files, OsFiles, open_file_limit
from logstore.lock import ForkFlag
from logstore.partition.segments.batch_cache import BatchCache
from logstore.partition.segments.segment import OpenSegments
from logstore.partition.state.home import LogHome
from logstore.partition.state.lost_ends import LostEnds
from logstore.schedule import Scheduler
from logstore.turns import flushed_at_a_time
from logstore.warning import Lines, warn

_RESERVED_DESCRIPTORS = 64  # for the application, and for files that are open only briefly
_DESCRIPTORS_PER_SEGMENT = 3  # the log and two indexes of a sealed one


@dataclass(frozen=True, kw_only=True, slots=True)
class LogContext:
    """Everything that the logs of one directory share."""

    home: LogHome
    files: Files
    clock: Clock
    scheduler: Scheduler
    lost_ends: LostEnds
    open_segments: OpenSegments
    batches: BatchCache
    config: StoreConfig
    random: random.Random = field(default_factory=random.Random)
    fork_flag: ForkFlag = field(default_factory=ForkFlag.watch)
    lines: Lines = field(default_factory=Lines)
    """What is told of a log when its lock is free."""


def make_context(
    path: str,
    *,
    config: StoreConfig | None = None,
    files: Files | None = None,
    clock: Clock | None = None,
    seed: int | None = None,
) -> LogContext:
    """The context of the directory ``path``, with the machine's disk and clock unless you pass others.

    Raises:
        InvalidConfigError: ``config`` is not a StoreConfig.
    """
    _tell_fallback()
    files = files or OsFiles()
    clock = clock or SystemClock()
    config = check_store_config(config) or StoreConfig()
    home = LogHome(files, files.absolute(path))
    scheduler = Scheduler(clock, at_a_time=flushed_at_a_time(files))
    return LogContext(
        home=home,
        files=files,
        clock=clock,
        scheduler=scheduler,
        lost_ends=LostEnds(home, scheduler),
        open_segments=_open_segments(config),
        batches=BatchCache(config.batch_cache_bytes),
        config=config,
        random=random.Random(seed),  # noqa: S311 - jitter, not secrets
    )


_has_told: set[str] = set()


def _tell_fallback() -> None:
    """Warn once per process that the compiled module is missing: pip hides a build without a compiler."""
    if build.is_fallback and not _has_told:
        reason = build.build_info().reason
        _has_told.add(reason)
        warn(
            "logstore runs in plain Python, many times slower: %s; %s. LOGSTORE_LOOPS=plain is quiet",
            reason,
            build.INSTALL_AGAIN,
        )


def _open_segments(config: StoreConfig) -> OpenSegments:
    """As many open segments as the configuration and the process allow; half of them active ones."""
    spare = max(open_file_limit() - _RESERVED_DESCRIPTORS, 2 * _DESCRIPTORS_PER_SEGMENT)
    sealed = min(config.max_open_segments, spare // 2 // _DESCRIPTORS_PER_SEGMENT)
    return OpenSegments(sealed, spare - sealed * _DESCRIPTORS_PER_SEGMENT)
