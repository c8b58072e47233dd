"""Loading one partition inside a directory that this process holds, by what the directory knows of it."""

from __future__ import annotations

from logstore.config import TopicConfig
from logstore.model import Role, TopicPartition
from logstore.partition.recovery.loader import LoadedLog, Loader
from logstore.partition.state.context import LogContext
from logstore.partition.state.sidecars import read_role


def load_log(
    context: LogContext,
    directory: str,
    partition: TopicPartition,
    config: TopicConfig,
    *,
    is_clean: bool,
    accept_loss: bool = False,
    is_foreign: bool = False,
) -> LoadedLog:
    """Load a partition's directory, recovering it if need be.

    Above the recovery point a log that was never compacted has no gaps, and one is damage. Of a log that is
    ``is_foreign`` (a broker wrote it, under settings that nobody here knows) nothing of the kind is assumed.

    Raises:
        CorruptionError: durable data is damaged or missing.
        StorageError: the disk refused.
    """
    home = context.home
    role = read_role(context.files, directory)
    may_have_gaps = home.may_have_gaps(partition, config) or is_foreign
    loader = Loader(
        files=context.files,
        directory=directory,
        config=config,
        cache=context.open_segments,
        now_ms=context.clock.now_ms(),
        recovery_point=home.recovery_point(partition),
        is_dense=home.has_recovery_point(partition) and not may_have_gaps,
        log_start_offset=home.log_start(partition),
        is_clean=is_clean,
        accept_loss=accept_loss,
        has_recovery_point=home.has_recovery_point(partition),
        role=role,
        high_watermark=home.high_watermark(partition),
    )
    loaded = loader.load()
    loaded.may_have_gaps = may_have_gaps
    if loaded.log_start_offset < (home.log_start(partition) or 0):  # it was not believed
        home.store_log_start(partition, None)
    if role is not Role.ALONE:  # a crash may have taken the end: what takes its place is another's
        home.lower_high_watermark(partition, loaded.log_end_offset)
    return loaded
